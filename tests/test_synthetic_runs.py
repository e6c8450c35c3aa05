"""Runs on tokens that are computed: no file, the same losses again, and a floor that the loss comes near."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest
from tiny_run import copy_of, make_run, outcome, run_here, tiny_config

from analysis.summary import render_run
from conf import Config
from conf.schema import Dataset, Model, Optimizer, Tokenizer
from data_loading.synthetic.markov import Markov
from experiment_utils.errors import UserError
from tests.golden_text import Golden
from training.attempt.run_files import read_run
from training.plan.run_plan import make_plan


def synthetic(folder: Path, path: str, tokenizer: str = "ids", **training: object) -> Config:
    return dataclasses.replace(
        tiny_config(folder, **training),
        dataset=Dataset(name="synthetic", path=path),
        tokenizer=Tokenizer(name=tokenizer),
    )


@pytest.mark.slow
def test_a_run_knows_its_floor_from_the_plan_to_the_last_page(tmp_path: Path, golden: Golden) -> None:
    config = synthetic(tmp_path, "synthetic:markov:16:1T:3")
    floor = Markov(16, 3).entropy_rate
    plan = make_plan(config, tokenize=False)
    assert plan.identity is not None, "nothing has to be tokenized first"
    assert plan.data is not None
    assert (plan.vocab_size, plan.data["floor_loss"]) == (16, floor)
    assert f"{floor:.4f}" in plan.render()

    folder = make_run(config)
    done = run_here(folder)
    assert done.returncode == 0, done.stderr
    log = (folder / "log.txt").read_text()
    golden.lines(log, f"{floor:.4f}", numbers=False)
    run = read_run(folder)
    results = run["results"]
    assert run["data"]["floor_loss"] == results["floor_loss"] == floor
    assert results["bigram_val_loss"] is None, "a trillion tokens are not counted"
    above = results["val_loss"] - floor
    page = render_run(folder, color=False)
    assert f", {above:.4f} " in page
    golden.lines(page, "computed: no file")
    assert not (tmp_path / "Datasets").exists()


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import core

    config = synthetic(tmp_path, "synthetic:copy:20:100K")
    whole, stopped = make_run(config), copy_of(config, tmp_path / "again")
    assert run_here(whole).returncode == 0
    original = core.next_boundary

    def fail(run: object) -> int:
        if run.step >= 15:  # type: ignore[attr-defined]
            raise RuntimeError("the machine went down")
        return original(run)  # type: ignore[arg-type]

    monkeypatch.setattr(core, "next_boundary", fail)
    assert run_here(stopped).returncode == 1
    monkeypatch.undo()
    assert run_here(stopped).returncode == 0
    assert outcome(stopped) == outcome(whole)


def test_text_has_no_floor(tmp_path: Path) -> None:
    plan = make_plan(tiny_config(tmp_path), tokenize=True)
    assert plan.data is not None
    assert plan.data["floor_loss"] is None
    assert "floor " not in plan.render()


def test_a_larger_vocabulary_of_the_tokenizer_is_the_models_and_leaves_the_floor(tmp_path: Path) -> None:
    plan = make_plan(synthetic(tmp_path, "synthetic:uniform:16:1M", "bytes"), tokenize=False)
    assert plan.data is not None
    assert (plan.vocab_size, plan.data["floor_loss"]) == (257, math.log(16))
    with pytest.raises(UserError, match=r"synthetic:uniform:1000:1M:0 .*1,000"):
        make_plan(synthetic(tmp_path, "synthetic:uniform:1000:1M", "bytes"), tokenize=False)


def test_who_reads_what_is_no_part_of_older_names(tmp_path: Path) -> None:
    config = synthetic(tmp_path, "synthetic:uniform:16:1M")
    shared = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, ranks="shared"))
    names = [make_plan(each, tokenize=False).identity for each in (config, shared)]
    assert names[0] != names[1]


@pytest.mark.slow
def test_a_small_model_learns_a_chain_down_to_its_floor_and_no_further(tmp_path: Path) -> None:
    config = dataclasses.replace(
        synthetic(
            tmp_path, "synthetic:markov:16:100M:0",
            max_steps=400, seq_len=64, effective_batch=32, micro_batch=32, evals=8, eval_tokens=100_000,
        ),
        model=Model(name="32d", d_model=32),
        optimizer=Optimizer(lr=1e-2),
    )  # fmt: skip
    folder = make_run(config)
    assert run_here(folder).returncode == 0
    results = read_run(folder)["results"]
    floor = results["floor_loss"]
    assert floor == Markov(16, 0).entropy_rate
    # A label's cost has a standard deviation near 1: 0.003 over 100,000 of them.
    assert floor - 0.01 < results["best"]["val_loss"] <= results["val_loss"] < floor + 0.03
    assert math.log(16) - floor > 1, "there was something to learn"


def without_val(folder: Path, **training: object) -> Config:
    config = synthetic(folder, "synthetic:zipf:20:10K", **training)
    return dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, val_fraction=0.0))


def test_plan_without_val_trains_on_all(tmp_path: Path) -> None:
    config = without_val(tmp_path)
    plan = make_plan(config, tokenize=False)
    assert plan.data is not None
    assert plan.evaluations == []
    assert {name: plan.data[f"{name}_tokens"] for name in ("train", "val", "test")} == {
        "train": 10_000, "val": 0, "test": 0,
    }  # fmt: skip
    assert plan.data["train_windows"] == (10_000 - 1) // config.training.seq_len
    assert plan.render()
    held_out = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, val_fraction=0.1))
    assert plan.identity != make_plan(held_out, tokenize=False).identity


@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
def test_run_without_val_has_no_val_loss(mixed: bool, tmp_path: Path) -> None:
    config = without_val(tmp_path)
    if mixed:
        mix = Dataset(
            name="mix", source="mix", sources=["synthetic:zipf:20:10K", "synthetic:uniform:20:10K"],
            weights=["1/2", "1/2"], val_fraction=0.0,
        )  # fmt: skip
        config = dataclasses.replace(config, dataset=mix)
    folder = make_run(config)
    done = run_here(folder)
    assert done.returncode == 0, done.stderr
    results = read_run(folder)["results"]
    assert results["val_loss"] is results["best"] is results["floor_loss"] is None
    assert not (folder / "evals.jsonl").exists()
    assert render_run(folder, color=False)
