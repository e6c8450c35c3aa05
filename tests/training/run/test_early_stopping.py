"""A run ends early where it is asked to, in the right state, and goes on as if it had not."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import copy_of, make_run, metrics_without_clock, outcome, run_here, tiny_config

from conf.schema import Optimizer
from tests.forked import killed_at
from training.attempt.run_files import read_run, read_status
from training.checkpoint.checkpoints import checkpoint_steps
from training.run.early_stopping import is_out_of_patience


@given(st.integers(1, 5), st.none() | st.integers(1, 40), st.integers(0, 40))
def test_patience_counts_evaluations_behind_the_best(patience: int, best: int | None, step: int) -> None:
    evaluations = [4, 8, 15, 16, 23, 40]
    found = is_out_of_patience(patience, best, step, evaluations)
    assert found == (best is not None and len([e for e in evaluations if best < e <= step]) >= patience)
    assert not is_out_of_patience(None, best, step, evaluations)


@pytest.mark.slow
def test_a_run_that_gets_no_better_ends_as_done(tmp_path: Path) -> None:
    """With so large an lr the first evaluations are the best ones; also where it is killed before its end."""
    config = tiny_config(tmp_path, max_steps=60, evals=20, patience=3)
    config = dataclasses.replace(config, optimizer=Optimizer(lr=0.5))
    folder, killed = make_run(config), copy_of(config, tmp_path / "killed")
    assert run_here(folder, "--quiet").returncode == 0
    run, status = read_run(folder), read_status(folder)
    best = run["results"]["best"]["step"]
    assert (status["state"], status["step"]) == ("done", best + 3 * 3)
    assert run["results"]["ended_by"] == "patience"
    assert len(metrics_without_clock(folder)) == status["step"] < 60
    assert checkpoint_steps(folder / "checkpoints")[-1] == status["step"]
    assert killed_at("run.json:before_rename", lambda: run_here(killed, "--quiet"), count=3)
    assert read_status(killed)["stage"] == "finish"
    assert run_here(killed, "--quiet").returncode == 0
    assert outcome(killed) == outcome(folder)


def test_a_run_whose_time_is_over_stops_and_goes_on_where_it_gets_more(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    short = dataclasses.replace(config, training=dataclasses.replace(config.training, max_time="0.02s"))
    whole, folder = make_run(config), copy_of(short, tmp_path / "short")
    assert folder.name == whole.name
    assert run_here(whole, "--quiet").returncode == 0
    done = run_here(folder)
    status = read_status(folder)
    assert (done.returncode, status["state"]) == (1, "timeout")
    assert "Traceback" not in done.stdout + done.stderr
    assert status["reason"].startswith("training.max_time=0.02s ")
    assert 0 < status["step"] < 40
    assert checkpoint_steps(folder / "checkpoints")[-1] == status["step"]
    last = json.loads((folder / "evals.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["extra"]) == (status["step"], True)
    assert f"{last['loss']:.4f}" in status["reason"]
    assert run_here(folder).returncode == 1
    assert read_status(folder)["step"] == status["step"]
    again = copy_of(config, tmp_path / "short")
    assert again == folder
    assert run_here(folder, "--quiet").returncode == 0
    assert outcome(folder) == outcome(whole)
