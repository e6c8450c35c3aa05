"""Runs on datasets of the hub: which data they get, their plan, going on exactly where they were killed."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_kills import kill_at_point
from tiny_run import copy_of, make_run, outcome, run_core, run_here, tiny_config, write_text

from conf import Config
from conf.between_keys.dataset_rules import only_of_the_hub
from conf.schema import Dataset, Tokenizer
from data_loading import (
    materialize,
    open_held_out,
    open_train,
    prepare_data,
    prepare_run,
)
from data_loading.find import prepare
from data_loading.find.hub_data import StreamData
from data_loading.hub.client import Hub
from data_loading.hub_stream import hub_stream as stream_module
from data_loading.hub_stream.hub_stream import HubStream
from slurm.plans.sweep_plans import plan_all
from tests.data_loading.hub.test_client import write_dataset
from tests.golden_text import Golden
from training.attempt.run_files import read_run, read_status
from training.plan.run_plan import make_plan

pytest.importorskip("datasets")
BYTES = Tokenizer(name="bytes")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset of 3 files, 90 documents, 110 lines of val; the working folder is beside it."""
    monkeypatch.chdir(tmp_path)
    text = write_text(tmp_path / "words.txt", 6000).read_text().splitlines()
    folder = tmp_path / "mine"
    folder.mkdir()
    for part, lines in enumerate(text[at : at + 180] for at in range(0, len(text), 180)):
        name = f"train-{part}.jsonl" if part else "validation.jsonl"
        (folder / name).write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return folder


def dataset_of(folder: Path, **options: Any) -> Dataset:
    return Dataset(name="hf", source="hf", path=f"hf://{folder}", **options)


def config_of(folder: Path, **options: Any) -> Config:
    config = tiny_config(folder.parent, max_steps=20)
    return dataclasses.replace(config, dataset=dataset_of(folder, buffer_windows=32, **options))


class TestWhichData:
    def test_a_stream(self, folder: Path) -> None:
        found = prepare_data(dataset_of(folder), BYTES, tokenize=False)
        assert isinstance(found, StreamData)
        assert (found.vocab_size, found.eot_id, found.is_counted) == (257, 256, False)
        facts = found.describe()
        assert facts["tokens"] is None
        assert facts["val_path"] == f"hf://{folder} validation"
        assert len(facts["sets"][0]) == 64
        held_out = open_held_out(found, "val", dataset_of(folder), 16)
        lines = (folder / "validation.jsonl").read_text().splitlines()
        first = json.loads(lines[0])["text"].encode()[:16]
        assert bytes(held_out[0]["input_ids"].tolist()) == first

    def test_its_options_reach_the_stream(self, folder: Path) -> None:
        dataset = dataset_of(folder, shift=2, order="sequential", buffer_windows=9, val_tokens=77)
        found = prepare_data(dataset, BYTES, tokenize=False)
        stream = open_train(found, dataset, 16, 5, 4)
        assert isinstance(stream, HubStream)
        assert (stream.seq_len, stream.seed, stream.shift) == (16, 5, 2)
        assert (stream.order, stream.buffer_windows, stream.val_tokens) == ("sequential", 9, 77)

    def test_the_fingerprint_is_of_the_content(self, folder: Path, tmp_path: Path) -> None:
        def print_of(**options: Any) -> str:
            return prepare_data(dataset_of(folder, **options), BYTES, tokenize=False).fingerprint

        first = print_of()
        assert first == print_of(buffer_windows=9)
        assert len({first, print_of(hub_split="validation"), print_of(val_tokens=9)}) == 3
        moved = folder.rename(tmp_path / "elsewhere")
        assert prepare_data(dataset_of(moved), BYTES, tokenize=False).fingerprint == first
        with open(moved / "train-1.jsonl", "a") as file:
            file.write('{"text": "more"}\n')
        assert prepare_data(dataset_of(moved), BYTES, tokenize=False).fingerprint != first

    def test_a_run_keeps_the_commit_it_began_with(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = list[Any]()
        monkeypatch.setattr(stream_module, "check_reachable", lambda what: None)
        monkeypatch.setattr(stream_module, "revision_of", lambda name: "new")
        monkeypatch.setattr(
            stream_module, "splits_of", lambda name, revision: asked.append(revision) or ["train"]
        )
        dataset = Dataset(source="hf", path="hf://org/name")
        before = prepare_data(dataset, BYTES, tokenize=False, versions=["old"])
        now = prepare_data(dataset, BYTES, tokenize=False)
        assert asked == ["old", "new"]
        assert (before.describe()["sets"], now.describe()["sets"]) == (["old"], ["new"])
        assert before.fingerprint != now.fingerprint

    def test_by_name_the_files_here_come_first(self, folder: Path, golden: Golden) -> None:
        materialize(f"hf://{folder}", "bytes", "Datasets/dclm.npy", workers=0)
        found = prepare_data(Dataset(name="dclm", source="hf"), BYTES, tokenize=False)
        assert found.train.name == "Datasets/dclm.npy"
        np.save("Datasets/dclm_other.npy", np.arange(99, dtype="<u2"))
        with golden.refused("dataset-ambiguous"):
            prepare_data(Dataset(name="dclm", source="hf"), BYTES, tokenize=False)

    def test_by_name_else_the_hub(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        names = list[str]()
        monkeypatch.setattr(stream_module, "revision_of", lambda name: names.append(str(name)) or "commit")
        monkeypatch.setattr(stream_module, "splits_of", lambda name, revision: ["train", "test"])
        found = prepare_data(Dataset(name="c4", source="hf"), BYTES, tokenize=False)
        assert (names, found.describe()["path"]) == (["hf://allenai/c4:en"], "hf://allenai/c4:en")
        with golden.refused("hub-path-missing"):
            prepare_data(Dataset(name="hf", source="hf"), BYTES, tokenize=False)
        with golden.refused("dataset-not-found"):
            prepare_data(Dataset(name="c4"), BYTES, tokenize=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with golden.refused("dataset-not-found"):
            prepare_data(Dataset(name="c4"), BYTES, tokenize=False)

    def test_options_of_sets_are_refused_together(self, folder: Path, golden: Golden) -> None:
        dataset = dataset_of(folder, windows="streams", val_fraction=0.2, order="shuffled_blocks")
        with golden.refused("streamed-has-no-option", "streamed-order") as caught:
            prepare_data(dataset, BYTES, tokenize=False)
        assert [problem.where for problem in caught.value.problems] == [
            "dataset.windows", "dataset.val_fraction", "dataset.order",
        ]  # fmt: skip


def test_a_stream_is_no_source_of_a_mixture(folder: Path, golden: Golden) -> None:
    dataset = Dataset(name="mix", source="mix", sources=[f"hf://{folder}", "words.txt"], weights=["1", "1"])
    with golden.refused("mixture-of-streams") as caught:
        prepare_run(dataset, BYTES, tokenize=True)
    golden.text(caught.value.problems[0].where)


class TestMaterialized:
    def test_once(self, folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:
        dataset = dataset_of(folder, materialize=True, materialize_tokens=5000)
        with golden.refused("not-tokenized") as caught:
            prepare_data(dataset, BYTES, tokenize=False)
        golden.text(caught.value.command)
        made = prepare_data(dataset, BYTES, tokenize=True)
        assert (made.train.name, made.is_counted) == ("Datasets/mine.npy", True)
        assert 5000 <= made.train.n_tokens < 5100
        assert made.windows("train", 16) > 200

        def forbidden(*question: Any) -> Any:
            raise AssertionError("the hub is asked no more")

        monkeypatch.setattr("data_loading.hub.client.HUB", Hub(forbidden, forbidden))
        again = prepare_data(dataset, BYTES, tokenize=False)
        assert again.fingerprint == made.fingerprint
        with golden.refused("materialize-tokens-differ"):
            prepare_data(dataclasses.replace(dataset, materialize_tokens=None), BYTES, tokenize=True)

    def test_not_where_it_may_not_be(self, folder: Path, golden: Golden) -> None:
        with golden.refused("not-tokenized"):
            prepare_data(dataset_of(folder, materialize=True, auto_tokenize=False), BYTES, tokenize=True)


def test_keys_of_the_hub_alone() -> None:
    def paths(**options: Any) -> list[str]:
        return [problem.where for problem in only_of_the_hub(Config(dataset=Dataset(**options)))]

    hub = {"hub_split": "test", "text_field": "body", "materialize": True, "materialize_tokens": 5}
    assert paths(path="x.npy", **hub) == [f"dataset.{name}" for name in hub]
    assert paths(path="hf://org/name", **hub) == paths(source="hf", **hub) == paths() == []
    assert paths(source="hf", materialize_tokens=5) == ["dataset.materialize_tokens"]


class TestRuns:
    def test_the_plan_says_what_is_not_known(self, folder: Path, golden: Golden) -> None:
        plan = make_plan(config_of(folder), tokenize=False)
        assert plan.identity
        assert plan.data
        assert plan.data["tokens"] is plan.data["train_windows"] is None
        page = plan.render()
        golden.text("\n".join(line for line in page.splitlines() if line.startswith("data")), numbers=False)
        assert "epochs" not in page
        assert json.dumps(plan.to_json())

    def test_same_command_resumes_with_the_commit_of_the_run(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        golden: Golden,
    ) -> None:
        commit = "a" * 40
        monkeypatch.setattr(stream_module, "check_reachable", lambda what: None)
        monkeypatch.setattr(stream_module, "revision_of", lambda name: commit)
        monkeypatch.setattr(stream_module, "splits_of", lambda name, revision: ["train"])
        dataset = Dataset(name="hf", source="hf", path="hf://org/name")
        config = dataclasses.replace(tiny_config(tmp_path), dataset=dataset)
        begun = make_run(config)
        (begun / "run.json").write_text(json.dumps(make_plan(config, tokenize=False).to_json()))
        (begun / "status.json").write_text('{"state": "failed"}')
        commit = "b" * 40
        with caplog.at_level(logging.INFO):
            (plan,) = plan_all([config], tokenize=False)
        assert plan.folder == begun
        golden.text("\n".join(caplog.messages), numbers=False)

    @pytest.mark.slow
    def test_from_its_beginning_to_its_end(self, folder: Path) -> None:
        run = make_run(config_of(folder))
        done = run_here(run)
        assert done.returncode == 0, done.stdout + done.stderr
        results = read_run(run)["results"]
        assert results["val_loss"] < 5.6
        assert results["bigram_val_loss"] is None

    @pytest.mark.slow
    def test_data_that_end_before_the_budget(self, folder: Path, golden: Golden) -> None:
        config = config_of(folder)
        config = dataclasses.replace(
            config,
            training=dataclasses.replace(config.training, max_steps=500, seq_len=64, effective_batch=8),
        )
        run = make_run(config)
        assert run_here(run, "--quiet").returncode == 2
        golden.text(read_status(run)["reason"])
        repeated = dataclasses.replace(config.dataset, repeat=True)
        more = dataclasses.replace(config.training, max_steps=90, evals=2)
        run = make_run(dataclasses.replace(config, dataset=repeated, training=more))
        assert run_here(run, "--quiet").returncode == 0

    @pytest.mark.slow
    def test_other_content_under_a_run_is_refused(self, folder: Path, golden: Golden) -> None:
        run = make_run(config_of(folder))
        assert run_here(run, "--quiet").returncode == 0
        status = run / "status.json"
        status.write_text(status.read_text().replace('"done"', '"failed"'))
        with open(folder / "train-1.jsonl", "a") as file:
            file.write('{"text": "more"}\n')
        assert run_here(run, "--quiet").returncode == 2
        golden.text(read_status(run)["reason"])

    @pytest.mark.slow
    def test_killed_and_gone_on_with_it_is_the_run_that_nothing_disturbed(
        self, folder: Path, tmp_path: Path
    ) -> None:
        config = config_of(folder, repeat=True)
        undisturbed = make_run(config)
        assert run_core(undisturbed, "--quiet").returncode == 0
        killed = copy_of(config, tmp_path / "killed")
        for count in (2, 1, 1):
            assert kill_at_point(killed, "checkpoint:after_rename", count)
        assert run_core(killed, "--quiet").returncode == 0
        assert outcome(killed) == outcome(undisturbed)


def test_a_set_of_many_files_is_no_stream(folder: Path) -> None:
    assert not prepare.is_of_hub(Dataset(name="c4"))
    assert prepare.is_of_hub(Dataset(path=f"hf://{folder}"))
    write_dataset(folder / "other")
    assert isinstance(prepare_data(Dataset(path=f"hf://{folder}/other"), BYTES, tokenize=False), StreamData)
