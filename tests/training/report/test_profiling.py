"""The trace has the steps that were asked for, and changes nothing of the run."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
import torch
from tiny_run import copy_of, make_run, outcome, run_core, run_here, tiny_config

from conf.between_keys import rules
from conf.schema import Config, Training
from conf.step_range import parse_steps
from memory.attribute import allocators
from tests.golden_text import Golden
from training.report.profiling import Profiler


def test_steps_are_both_in_it_and_the_run_is_the_same(tmp_path: Path, golden: Golden) -> None:
    config = tiny_config(tmp_path, max_steps=12)
    plain = make_run(config)
    assert run_here(plain, "--quiet").returncode == 0
    config.training.profile = "4:6"
    traced = copy_of(config, tmp_path / "other")
    assert run_here(traced, "--quiet").returncode == 0
    assert outcome(traced) == outcome(plain)
    assert traced.name == plain.name  # the same identity
    [trace] = traced.glob("profile*")
    assert trace.name == "profile-steps-4-6.json.gz"
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    optimizer_steps = [one for one in events if str(one.get("name", "")).startswith("Optimizer.step#")]
    assert len(optimizer_steps) == 3
    log = (traced / "log.txt").read_text()
    golden.lines(log, "profile-steps-4-6.json.gz", numbers=False)
    assert log.count("  profile ") + log.count(" profile ") >= 3


@pytest.mark.slow
def test_the_tracer_writes_nothing_of_its_own(tmp_path: Path) -> None:
    done = run_core(make_run(tiny_config(tmp_path, max_steps=5, profile="3:4")), "--quiet")
    assert done.returncode == 0
    assert "profiler_start" not in done.stderr


@pytest.mark.slow
def test_a_range_that_ends_behind_the_run_ends_with_it(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, max_steps=5, profile="4:20"))
    assert run_here(folder, "--quiet").returncode == 0
    assert [path.name for path in folder.glob("profile*")] == ["profile-steps-4-5.json.gz"]


def test_one_behind_the_run_traces_nothing_and_says_so(tmp_path: Path) -> None:
    folder = make_run(tiny_config(tmp_path, max_steps=5, profile="6:7"))
    assert run_here(folder, "--quiet").returncode == 0
    assert list(folder.glob("profile*")) == []
    log = (folder / "log.txt").read_text()
    assert log.count("training.profile=6:7") == 1


@pytest.mark.parametrize(
    ("text", "steps"), [("10:20", range(10, 21)), ("3", range(3, 4)), ("1:1", range(1, 2))]
)
def test_ranges(text: str, steps: range) -> None:
    assert parse_steps(text) == steps


@pytest.mark.parametrize("text", ["", "0:3", "5:4", "a:b", "1:2:3", "-1:4", "1.5"])
def test_what_is_no_range_is_refused(text: str) -> None:
    [problem] = rules.steps_to_profile(Config(training=Training(profile=text)))
    assert problem.where == "training.profile"


@pytest.mark.parametrize("keeps_history", [False, True])
def test_cuda_memory_history_ends_with_the_window(
    keeps_history: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A history that is not ended takes Python's stack at each allocation of all steps that follow."""
    calls: list[str] = []

    def noted(name: str) -> Callable[..., bool]:
        return lambda *_: bool(calls.append(name))

    for name in ("record_cuda_history", "save_cuda_snapshot", "end_cuda_history"):
        monkeypatch.setattr(allocators, name, noted(name))
    tracer = mock.Mock()
    tracer.export_chrome_trace = lambda path: Path(path).touch()
    tracer.key_averages = list
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.profiler, "profile", lambda **_: tracer)
    profiler = Profiler(tmp_path, "2:3", 10, keeps_history=keeps_history)
    for step in range(1, 6):
        with profiler.step(step):
            calls.append(f"step {step}")
    ended = ["save_cuda_snapshot"] + ["end_cuda_history"] * (not keeps_history)
    assert calls == ["step 1", "record_cuda_history", "step 2", "step 3", *ended, "step 4", "step 5"]
