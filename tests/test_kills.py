"""SIGKILL at any moment and the same command again: the very run that nothing disturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_run import (
    ROOT,
    copy_of,
    make_run,
    metrics_without_clock,
    mixed_config,
    outcome,
    run_here,
    tiny_config,
)

import core
from benchmarks.harness import save
from tests.forked import killed_at
from training.attempt.run_files import Status, read_run, read_status

pytestmark = pytest.mark.usefixtures("quick_start")

POINTS = [
    "checkpoint:written", "state.json:before_rename", "state.json:after_rename", "checkpoint:before_rename",
    "checkpoint:after_rename", "checkpoint:before_delete", "status.json:before_rename",
    "run.json:before_rename", "run.json:after_rename", "metrics.csv:before_rename",
]  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(tiny_config(tmp_path_factory.mktemp("undisturbed")))
    assert run_here(folder, "--quiet").returncode == 0
    return folder


def kill_at_point(folder: Path, point: str, count: int) -> bool:
    """Whether it came to the point so often."""

    def work() -> None:
        # one by the clock would be a point more
        Status.beat = lambda *_, **__: None  # type: ignore[method-assign]
        core.main([str(folder), "--quiet"])

    return killed_at(point, work, count)


def kill_after(folder: Path, seconds: float) -> int:
    process = subprocess.Popen([sys.executable, str(ROOT / "core.py"), str(folder), "--quiet"])
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def kill_many_times(folder: Path, kills: int, seed: int, points: Sequence[str] = POINTS) -> dict[str, int]:
    """Kill the run `kills` times, by turns at a named point and at a random moment; then let it end."""
    generator = random.Random(seed)
    counted = {"at a point": 0, "at a random moment": 0}
    while sum(counted.values()) < kills:
        if read_status(folder).get("state") == "done":
            break
        if generator.random() < 0.5:
            point, count = generator.choice(points), generator.randint(1, 3)
            counted["at a point"] += kill_at_point(folder, point, count)
        else:
            seconds = generator.uniform(0.2, 6)
            counted["at a random moment"] += kill_after(folder, seconds) == -signal.SIGKILL
    assert run_here(folder, "--quiet").returncode == 0
    return counted


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(undisturbed: Path, tmp_path: Path, point: str) -> None:
    folder = copy_of(tiny_config(undisturbed.parents[2]), tmp_path / "runs")
    assert kill_at_point(folder, point, 1)
    assert run_here(folder, "--quiet").returncode == 0
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.slow
def test_killed_while_rows_after_the_checkpoint_are_cut_off(undisturbed: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny_config(undisturbed.parents[2]), tmp_path / "runs")
    # The 15th time that status.json is written is the beginning of the stage after step 11.
    assert kill_at_point(folder, "status.json:before_rename", 15)
    newest = max((folder / "checkpoints").glob("step-*"))
    assert int(newest.name[5:]) < int(metrics_without_clock(folder)[-1]["step"])
    assert kill_at_point(folder, "metrics.csv:before_rename", 1)
    assert run_here(folder, "--quiet").returncode == 0
    assert outcome(folder) == outcome(undisturbed)


def test_killed_right_after_its_last_checkpoint_it_removes_those_before(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=4, checkpoint_every=2, evals=1, keep_checkpoints=1)
    undisturbed = make_run(config)
    assert run_here(undisturbed, "--quiet").returncode == 0
    folder = copy_of(config, tmp_path / "killed")
    assert kill_at_point(folder, "checkpoint:after_rename", 2)
    assert run_here(folder, "--quiet").returncode == 0
    assert outcome(folder) == outcome(undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_mixture_killed_six_times(tmp_path: Path) -> None:
    """Over a milestone, and over a source that begins anew."""
    config = mixed_config(tmp_path, {"when_dry": "repeat", "curriculum": ["0.1+0.9@1K"]}, max_steps=160)
    undisturbed = make_run(config)
    assert run_here(undisturbed, "--quiet").returncode == 0
    kills = 0
    for seed in range(100):
        folder = copy_of(config, tmp_path / f"killed{seed}")
        counted = kill_many_times(folder, 6 - kills, seed, points=[*POINTS, "sources.csv:before_rename"])
        kills += sum(counted.values())
        assert outcome(folder) == outcome(undisturbed)
        if kills >= 6:
            break
    assert kills >= 6
    passes = read_run(folder)["data"]["sources"][1]["passes"]
    assert passes > 1


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_ten_times(undisturbed: Path, tmp_path: Path) -> None:
    kills = 0
    for seed in range(100):
        folder = copy_of(tiny_config(undisturbed.parents[2]), tmp_path / f"runs{seed}")
        kills += sum(kill_many_times(folder, 10 - kills, seed).values())
        assert outcome(folder) == outcome(undisturbed)
        if kills >= 10:
            break
    assert kills >= 10


@pytest.mark.soak
def test_killed_hundreds_of_times(undisturbed: Path, tmp_path: Path) -> None:
    """Writes its counts to benchmarks/results/soak_kills.json."""
    wanted = int(os.environ.get("SOAK_KILLS", "200"))
    counted = {"at a point": 0, "at a random moment": 0}
    runs = 0
    started = time.time()
    while sum(counted.values()) < wanted:
        folder = copy_of(tiny_config(undisturbed.parents[2]), tmp_path / f"runs{runs}")
        for kind, count in kill_many_times(folder, 20, seed=1000 + runs).items():
            counted[kind] += count
        assert outcome(folder) == outcome(undisturbed)
        runs += 1
    result = {
        "what": "runs of 40 steps killed by SIGKILL up to 20 times each; all ended in the undisturbed run's "
        "metrics, evaluations, weights and moments, bit for bit",
        "kills": counted,
        "runs": runs,
        "differences": 0,
        "minutes": round((time.time() - started) / 60, 1),
    }
    save("soak_kills", result)
