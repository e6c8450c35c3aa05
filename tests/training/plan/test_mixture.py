"""A run of a mixture: planned to the window, told by source; plain runs know nothing of it."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import make_run, mixed_config, run_here, tiny_config

from conf import Config
from conf.schema import Arch, Dataset, Model, Optimizer, Tokenizer
from experiment_utils.errors import UserError
from models import build_model
from tests.golden_text import Golden
from training.attempt.run_files import read_run
from training.devices.device import Device
from training.optimizers import build_optimizer
from training.plan.run_plan import make_plan
from training.step.train_step import Step


def planned(config: Config) -> Any:
    return make_plan(config, tokenize=True)


class TestPlan:
    def test_it_tells_what_is_read_of_each_source(self, tmp_path: Path, golden: Golden) -> None:
        plan = planned(mixed_config(tmp_path, max_steps=40))
        sources = plan.data["sources"]
        assert [source["read_tokens"] for source in sources] == [40 * 64 * 3 // 4, 40 * 64 // 4]
        for source in sources:
            assert source["passes"] == source["read_tokens"] / 16 / source["train_windows"]
            assert source["dry_after_tokens"] is None
        assert plan.eval_tokens == 2 * 512
        page = plan.render()
        golden.lines(page, "short")
        assert plan.to_json()["data"]["sources"] == sources

    def test_a_milestone_beyond_the_budget_is_told(self, tmp_path: Path, golden: Golden) -> None:
        milestones = {"curriculum": ["0.5+0.5@1280", "0.1+0.9@1M"]}
        page = planned(mixed_config(tmp_path, milestones, max_steps=40)).render()
        golden.lines(page, "0.1+0.9@1000000")

    def test_a_dry_source_ends_it_or_is_told(self, tmp_path: Path) -> None:
        steps = 40_000 // 64
        with pytest.raises(UserError) as error:
            planned(mixed_config(tmp_path, max_steps=steps))
        assert "(dataset.when_dry=stop)" in str(error.value)
        most = int(str(error.value).partition("training.max_steps=")[2].partition(",")[0])
        assert planned(mixed_config(tmp_path, max_steps=most)).budget.steps == most
        with pytest.raises(UserError):
            planned(mixed_config(tmp_path, max_steps=most + 1))
        again = planned(mixed_config(tmp_path, {"when_dry": "repeat"}, max_steps=2 * steps))
        short = again.data["sources"][1]
        assert short["passes"] == 2 * steps * 4 / 4 / short["train_windows"] > 1
        assert f"{short['dry_after_tokens']:,}" in again.render()
        alone = planned(mixed_config(tmp_path, {"when_dry": "rebalance"}, max_steps=steps))
        assert alone.data["sources"][1]["passes"] == 1
        with pytest.raises(UserError):
            planned(mixed_config(tmp_path, {"when_dry": "rebalance"}, max_steps=2 * steps))

    def test_seq_len_longer_than_a_source_names_the_source(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"5000.*short\.npy"):
            planned(mixed_config(tmp_path, seq_len=5000))

    def test_its_identity_is_that_of_sources_weights_milestones_and_policy(self, tmp_path: Path) -> None:
        same = planned(mixed_config(tmp_path))
        spelled = planned(mixed_config(tmp_path, {"weights": ["3/4", "2.5e-1"]}))
        assert spelled.identity == same.identity
        assert spelled.config == same.config
        (tmp_path / "elsewhere").mkdir()
        for name in ("long.txt", "short.txt"):
            (tmp_path / "elsewhere" / name).write_text((tmp_path / name).read_text())
        moved = [str(tmp_path / "elsewhere" / name) for name in ("long.txt", "short.txt")]
        assert planned(mixed_config(tmp_path, {"sources": moved})).identity == same.identity
        others = [
            {"weights": ["0.7", "0.3"]},
            {"curriculum": ["0.5+0.5@1000"]},
            {"when_dry": "repeat"},
            {"sources": [str(tmp_path / "short.txt"), str(tmp_path / "long.txt")]},
        ]
        identities = [planned(mixed_config(tmp_path, other)).identity for other in others]
        assert len({same.identity, *identities}) == 5

    def test_the_floor_of_computed_sources_is_their_mean(self, tmp_path: Path) -> None:
        kinds = {"sources": ["synthetic:uniform:64:20K", "synthetic:copy:64:20K:3"]}
        config = dataclasses.replace(mixed_config(tmp_path, kinds), tokenizer=Tokenizer(name="ids"))
        floors = []
        for source in kinds["sources"]:
            alone = dataclasses.replace(config, dataset=Dataset(name="text", path=source))
            floors.append(planned(alone).data["floor_loss"])
        assert planned(config).data["floor_loss"] == pytest.approx(0.75 * floors[0] + 0.25 * floors[1])
        with_text = mixed_config(tmp_path, {"sources": [kinds["sources"][0], str(tmp_path / "short.txt")]})
        assert planned(with_text).data["floor_loss"] is None


class TestRun:
    def test_losses_and_tokens_are_told_by_source(self, tmp_path: Path) -> None:
        options = {"test_fraction": 0.1, "curriculum": ["0+1@1280"]}
        folder = make_run(mixed_config(tmp_path, options, max_steps=30, evals=3))
        done = run_here(folder, "--quiet")
        assert done.returncode == 0, done.stderr
        with open(folder / "metrics.csv", newline="") as file:
            steps = list(csv.DictReader(file))
        with open(folder / "sources.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert [(row["step"], row["source"]) for row in rows] == [
            (str(step), name) for step in range(1, 31) for name in ("long", "short")
        ]
        for step, long, short in zip(steps, rows[::2], rows[1::2], strict=True):
            assert int(long["tokens"]) + int(short["tokens"]) == int(step["tokens"])
            if int(step["step"]) <= 20:
                mean = 0.75 * float(long["train_loss"]) + 0.25 * float(short["train_loss"])
            else:
                assert long["train_loss"] == ""
                mean = float(short["train_loss"])
            assert mean == pytest.approx(float(step["train_loss"]), rel=1e-5)
        evaluations = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
        assert [one["source"] for one in evaluations] == ["val/long", "val/short", "val"] * 3
        *_, long_val, short_val, val = evaluations
        assert val["loss"] == pytest.approx(0.75 * long_val["loss"] + 0.25 * short_val["loss"])
        results = read_run(folder)["results"]
        assert results["val_loss"] == val["loss"]
        assert set(results["test_losses"]) == {"test/long", "test/short"}
        from analysis.summary import render_run
        from experiment_utils.run_folder import RunFolder

        assert [one["source"] for one in RunFolder(folder).evals] == ["val"] * 3
        page = render_run(folder, color=False)
        of_short = rf"short +0\.25 +{int(rows[-1]['tokens']):,} +[\d.]+ +{short_val['loss']:.4f}"
        assert re.search(of_short, page), page

    def test_a_plain_run_has_no_such_file(self, tmp_path: Path) -> None:
        folder = make_run(tiny_config(tmp_path, max_steps=2, evals=1))
        assert run_here(folder, "--quiet").returncode == 0
        assert not (folder / "sources.csv").exists()
        assert "sources" not in read_run(folder)["data"]


@pytest.mark.parametrize("micro", [2, 8])
@pytest.mark.parametrize("chunk", [5, 256])
def test_a_step_sums_the_losses_of_each_source(micro: int, chunk: int) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 50, (8, 9), generator=generator)
    source = torch.tensor([0, 2, 2, 0, 2, 0, 0, 2])
    labels = ids[:, 1:].where(ids[:, 1:] > 9, -100)
    step = {"input_ids": ids[:, :-1].contiguous(), "labels": labels, "source": source}
    step["position_ids"] = torch.arange(8).repeat(8, 1)
    found = {}
    for sources in (0, 3):
        torch.manual_seed(0)
        model = build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 50, 8)
        with torch.no_grad():
            logits = model(step["input_ids"])
        parts = [{name: rows[i : i + micro] for name, rows in step.items()} for i in range(0, 8, micro)]
        whole = Step(
            model, build_optimizer(model, Optimizer(), "cpu"), Device("cpu", "fp32", 1),
            accumulation=8 // micro, loss_chunk=chunk, grad_clip=None, sources=sources,
        )  # fmt: skip
        found[sources] = whole.take(iter(parts), 0.01)
    assert found[0].by_source is None
    assert found[3].loss.item() == pytest.approx(found[0].loss.item(), rel=1e-5)
    assert found[3].grad_norm.item() == pytest.approx(found[0].grad_norm.item(), rel=1e-4)
    each = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    sums, counts = found[3].by_source.tolist()
    for i in range(3):
        assert sums[i] == pytest.approx(each[source == i].sum().item(), rel=1e-5)
        assert counts[i] == (labels[source == i] != -100).sum()
