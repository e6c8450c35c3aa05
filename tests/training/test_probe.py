"""The micro-batch of `auto` is tried where memory is close, and only there."""

from __future__ import annotations

import dataclasses
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import ROOT, make_run, run_here, tiny_config

import experiment_utils
from training import probe
from training.probe import data_limited

MB = 1 << 20
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")


@linux
def test_what_does_not_fit_is_an_error_and_no_kill() -> None:
    code = (
        "import torch\n"
        "from memory.process import read_process\n"
        "import os, resource\n"
        "from training.probe import data_limited\n"
        "has = read_process(os.getpid()).anon_bytes\n"
        "with data_limited(has + (400 << 20)):\n"
        "    held = torch.zeros(200 << 18)\n"
        "    try:\n"
        "        more = torch.zeros(400 << 18)\n"
        "    except RuntimeError as error:\n"
        "        assert 'allocate' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError('600 MB where 400 are free')\n"
        "assert torch.zeros(400 << 18).sum() == 0\n"
        "assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=240)


def test_where_nothing_can_be_limited_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    monkeypatch.setattr(probe, "read_file", lambda path: None)
    with data_limited(0):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_auto_becomes_what_a_pass_went_through_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path, micro_batch="auto", max_steps=3, evals=1)
    asked: list[int] = []

    def fits(run: Any, model: Any, micro_batch: int, free_bytes: int) -> bool:
        asked.append(micro_batch)
        return micro_batch <= 1

    monkeypatch.setattr(probe, "fits_a_pass", fits)
    assert run_here(make_run(config)).returncode == 0
    assert asked == [], "far from the limit nothing is tried"
    monkeypatch.setattr(probe, "CLOSE", 0.0)
    folder = make_run(dataclasses.replace(config, seed=1))
    assert run_here(folder).returncode == 0
    assert asked == [4, 2, 1]
    run = experiment_utils.read_run(folder)
    assert (run["auto"]["micro_batch"], run["micro_batch"], run["accumulation"]) == (1, 1, 4)


def test_trying_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config(tmp_path, micro_batch="auto", max_steps=6, evals=2)
    plain = make_run(config)
    assert run_here(plain).returncode == 0
    monkeypatch.setattr(probe, "CLOSE", 0.0)
    tried = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "other")))
    assert run_here(tried).returncode == 0
    assert "micro-batch 4 was tried" in (tried / "log.txt").read_text()
    results = [experiment_utils.read_run(folder)["results"]["val_loss"] for folder in (plain, tried)]
    assert results[0] == results[1]
    assert torch.is_grad_enabled()
