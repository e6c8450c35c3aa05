"""A run that comes to no step boundary before its time is up: it is put back into the queue just before."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurm.cluster.current_job import Job
from slurm.in_job.run_in_job import _Late
from slurm.launch.processes import Children
from slurm.records.start_records import Start, note_start, read_starts
from tests.golden_text import Golden

START = Start("7", "7", 0, "n1", 100, started_s=0.0, attempt=1, step_before=100)


class Asked(Job):
    """It notes when it is to be put back into the queue."""

    times: list[str] = []  # noqa: RUF012  a frozen dataclass has no other place
    left: list[float] = []  # noqa: RUF012

    def left_s(self, *given: Any) -> float | None:
        return next(iter(self.left), None)

    def requeue(self, *given: Any, **how: Any) -> None:
        self.times.append(self.id)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Asked.times.clear()
    Asked.left.clear()
    for step in (100, 200):
        (tmp_path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    note_start(tmp_path, START)
    return tmp_path


def late(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    left_s: float | None,
    asked: int | None = signal.SIGUSR2,
    *,
    may_requeue: bool = True,
) -> _Late:
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    if left_s is not None:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left_s)))
    children = cast("Children", SimpleNamespace(requested=asked))
    return _Late(folder, Asked("7", "7"), START, children, may_requeue=may_requeue)


def test_it_is_put_back_before_its_time_is_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    found = late(folder, monkeypatch, 5)
    found.look()
    found.look()
    assert (found.has_requeued, Asked.times) == (True, ["7"])
    (start,) = read_starts(folder)
    assert (start.end, start.state, start.signal, start.step_after) == ("requeued", "timeout", "SIGUSR2", 200)
    golden.text(str(start.reason))


@pytest.mark.parametrize("left_s", [5.0, 60.0])
def test_slurm_is_asked_for_a_limit_that_it_has_not_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, left_s: float
) -> None:
    """Up to 22.05 the variables of a job do not have it."""
    Asked.left.append(left_s)
    found = late(folder, monkeypatch, None)
    found.look()
    assert found.has_requeued == (left_s == 5)


@pytest.mark.parametrize(
    ("left_s", "asked", "may_requeue"),
    [
        (60, signal.SIGUSR2, True),  # it has time yet
        (None, signal.SIGUSR2, True),  # without a limit
        (5, None, True),  # nobody has asked it to stop
        (5, signal.SIGTERM, True),  # cancelled
        (5, signal.SIGUSR2, False),  # slurm.requeue=false
    ],
)
def test_it_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, left_s: float | None, asked: int | None, may_requeue: bool
) -> None:
    found = late(folder, monkeypatch, left_s, asked, may_requeue=may_requeue)
    found.look()
    assert (found.has_requeued, Asked.times, read_starts(folder)[0].end) == (False, [], None)


def test_a_start_without_a_checkpoint_is_the_last(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would come there again, for ever."""
    (folder / "checkpoints" / "step-00000200").rmdir()
    found = late(folder, monkeypatch, 5)
    found.look()
    assert (found.has_requeued, Asked.times) == (False, [])
