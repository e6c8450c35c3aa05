"""A run that goes back from spikes is the one that left out all that it undid, also where it was killed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import copy_of, make_run, metrics_without_clock, outcome, run_here, tiny_config

from conf import Config
from conf.schema import Training
from tests.forked import killed_at
from tests.golden_text import Golden
from tests.training.test_exact_resume import CASES, config_of
from training.attempt.run_files import read_run, read_status
from training.plan.run_plan import make_plan
from training.step.spike_guard import BACK_IN_A_ROW, Diverged, RollbackGuard, SpikeGuard

BAD = {2: float("nan"), 18: 1e6, 20: float("inf"), 24: 1e6}
"""Losses as the guard is told them, by step. Before the first point a step is skipped."""
LEFT_OUT = [2, 15, 16, 17, 18, 19, 20, 22, 23, 24]
OPTIONS = {
    "spike_window": 4, "spike_threshold": 1000.0, "checkpoint_every": 9, "keep_checkpoints": 1,
    "max_steps": 30, "evals": 3, "eval_tokens": 128,
}  # fmt: skip
ROLLBACK = OPTIONS | {"on_spike": "rollback", "rollback_every": 7}


@pytest.fixture
def bad(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """The guard sees these losses in the place of those of their steps, in any attempt."""
    return told_to_the_guard(monkeypatch, dict(BAD))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    """A run that goes back three times, undisturbed."""
    config = tiny_config(tmp_path_factory.mktemp("whole"), **ROLLBACK)
    folder = make_run(config)
    with pytest.MonkeyPatch.context() as patch:
        told_to_the_guard(patch, dict(BAD))
        assert run_here(folder, "--quiet").returncode == 0
    assert len(rollbacks(folder)) == 3
    return config, folder


def told_to_the_guard(monkeypatch: pytest.MonkeyPatch, losses: dict[int, float]) -> dict[int, float]:
    refuses = SpikeGuard.refuses

    def told(self: SpikeGuard, loss: torch.Tensor, norm: torch.Tensor, step: int) -> bool:
        seen = torch.tensor(losses[step]) if step in losses else loss
        return refuses(self, seen, norm, step)

    monkeypatch.setattr(SpikeGuard, "refuses", told)
    return losses


def longer(case: dict[str, Any], folder: Path, **options: Any) -> Config:
    config = config_of(case, folder)
    training = dataclasses.replace(config.training, **options)
    return dataclasses.replace(config, training=training)


def rollbacks(folder: Path) -> list[dict[str, Any]]:
    path = folder / "rollbacks.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def weights_and_moments(folder: Path) -> dict[str, str]:
    newest = max((folder / "checkpoints").glob("step-*"))
    found: dict[str, str] = json.loads((newest / "state.json").read_text())["sha256"]
    return found


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("ema", "schedule_free", "states of rows")]


@pytest.mark.parametrize("name", ["adamw", "dropout", *SLOW])
def test_it_is_the_run_that_left_out_what_was_undone(
    name: str, bad: dict[int, float], tmp_path: Path
) -> None:
    going_back = make_run(longer(CASES[name], tmp_path, **ROLLBACK))
    assert run_here(going_back, "--quiet").returncode == 0
    found = rollbacks(going_back)
    assert [(each["step"], each["to_step"], each["undone"]) for each in found] == [
        (18, 14, [15, 18]),
        (20, 14, [15, 20]),
        (24, 21, [22, 24]),
    ]
    assert "1e+06" in found[0]["why"]
    results = read_run(going_back)["results"]
    assert (results["skipped_steps"], results["rollbacks"]) == (len(LEFT_OUT), 3)

    bad.clear()
    bad.update(dict.fromkeys(LEFT_OUT, float("nan")))
    leaving_out = make_run(longer(CASES[name], tmp_path, on_spike="skip", **OPTIONS))
    assert leaving_out != going_back
    assert run_here(leaving_out, "--quiet").returncode == 0
    weights = [weights_and_moments(folder) for folder in (going_back, leaving_out)]
    assert weights[0]["model.safetensors"] == weights[1]["model.safetensors"]
    losses = [
        [row["val_loss"] for row in metrics_without_clock(folder) if row["val_loss"]]
        for folder in (going_back, leaving_out)
    ]
    assert losses[0] == losses[1]
    assert len(metrics_without_clock(going_back)) == 30, "every step has its row, undone or not"


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("rollback:restored", 1),
        ("checkpoint:after_rename", 4),
        pytest.param("rollback:restored", 2, marks=pytest.mark.slow),
        pytest.param("checkpoint:before_rename", 4, marks=pytest.mark.slow),
        pytest.param("checkpoint:after_rename", 6, marks=pytest.mark.slow),
    ],
)
def test_a_kill_in_the_middle_changes_nothing(
    point: str, count: int, whole: tuple[Config, Path], bad: dict[int, float], tmp_path: Path
) -> None:
    config, undisturbed = whole
    killed = copy_of(config, tmp_path / "killed")
    assert killed_at(point, lambda: run_here(killed, "--quiet"), count=count)
    assert run_here(killed, "--quiet").returncode == 0
    assert outcome(killed) == outcome(undisturbed)
    assert rollbacks(killed) == rollbacks(undisturbed)


def test_it_ends_where_going_back_does_not_help(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    told_to_the_guard(monkeypatch, dict.fromkeys(range(23, 31), float("nan")))
    folder = make_run(tiny_config(tmp_path, **ROLLBACK))
    assert run_here(folder, "--quiet").returncode == 1
    status = read_status(folder)
    assert status["state"] == "failed"
    golden.text(status["reason"])
    assert len(rollbacks(folder)) == BACK_IN_A_ROW
    assert (folder / "checkpoints" / "step-00000021").is_dir(), "kept, though one more recent is not"


def test_a_checkpoint_that_is_gone_is_named(
    bad: dict[int, float], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, golden: Golden
) -> None:
    from training.checkpoint.checkpoints import Checkpoints, CorruptError

    def gone(self: Checkpoints, step: int) -> None:
        raise CorruptError(f"step-{step:08d}: No such file")

    monkeypatch.setattr(Checkpoints, "of_step", gone)
    folder = make_run(tiny_config(tmp_path, **ROLLBACK))
    assert run_here(folder, "--quiet").returncode == 1
    reason = read_status(folder)["reason"]
    assert "step-00000014" in reason
    golden.text(reason, numbers=False)


def guard() -> RollbackGuard:
    return RollbackGuard(Training(on_spike="rollback"))


def refuses(of: SpikeGuard, loss: float, step: int) -> bool:
    return of.refuses(torch.tensor(loss), torch.tensor(1.0), step)


def test_before_the_first_point_a_step_is_skipped() -> None:
    found = guard()
    assert refuses(found, float("nan"), 3)
    assert (found.asked, found.skipped) == (None, 1)
    found.reach(4)
    at_point = found.state()
    assert refuses(found, float("nan"), 9)
    assert "nan" in str(found.asked)
    found.go_back(at_point, 9)
    assert (found.asked, found.skipped, found.rollbacks) == (None, 1 + 5, 1)


def test_a_later_point_is_progress() -> None:
    found = guard()
    for point in (10, 20):
        found.reach(point)
        at_point = found.state()
        for number in range(BACK_IN_A_ROW):
            assert refuses(found, float("nan"), point + 1 + number)
            found.go_back(at_point, point + 1 + number)
    again = guard()
    again.load(found.state())
    for one in (found, again):
        with pytest.raises(Diverged, match=r"\b20\b"):
            refuses(one, float("nan"), 28)


def test_the_plan_tells_it_and_knows_its_memory_and_disk(tmp_path: Path) -> None:
    plain = make_plan(tiny_config(tmp_path), tokenize=True)
    back = make_plan(tiny_config(tmp_path, on_spike="rollback", rollback_every=7), tokenize=True)
    assert back.most_checkpoints == plain.most_checkpoints + 1
    at_checkpoint = [plan.memory.estimate.host_at("checkpoint") for plan in (plain, back)]
    assert at_checkpoint[0] < at_checkpoint[1]
    assert plain.identity != back.identity
