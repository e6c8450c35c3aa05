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
from slurm.records.start_records import Start, note_start, read_starts
from tests.golden_text import Golden

START = Start("7", "7", 0, "n1", 100, started_s=0.0, attempt=1, step_before=100)
USR2, TERM = signal.SIGUSR2, signal.SIGTERM


@pytest.mark.parametrize(
    ("left_s", "slurm_says_s", "number", "may_requeue", "step", "is_put_back"),
    [
        (5, None, USR2, True, 200, True),
        (None, 5, USR2, True, 200, True),  # up to 22.05 the variables of a job do not have its limit
        (None, 60, USR2, True, 200, False),
        (None, None, USR2, True, 200, False),  # without a limit
        (60, None, USR2, True, 200, False),  # it has time yet
        (5, None, None, True, 200, False),  # it was not asked to stop
        (5, None, TERM, True, 200, False),  # cancelled
        (5, None, USR2, False, 200, False),  # slurm.requeue=false
        (5, None, USR2, True, 100, False),  # without a new checkpoint it would come there again, for ever
    ],
)
def test_it_is_put_back_once_before_its_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden, left_s: float | None,
    slurm_says_s: float | None, number: int | None, may_requeue: bool, step: int, is_put_back: bool,
) -> None:  # fmt: skip
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    if left_s is not None:
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left_s)))
    put_back: list[str] = []
    monkeypatch.setattr(Job, "left_s", lambda job: slurm_says_s)
    monkeypatch.setattr(Job, "requeue", lambda job: put_back.append(job.id))
    (tmp_path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    note_start(tmp_path, START)
    children = cast("Any", SimpleNamespace(requested=number))
    late = _Late(tmp_path, Job("7", "7"), START, children, may_requeue=may_requeue)
    late.look()
    late.look()
    assert (late.has_requeued, put_back) == (is_put_back, ["7"] * is_put_back)
    (start,) = read_starts(tmp_path)
    if is_put_back:
        assert (start.end, start.state, start.signal, start.step_after) == (
            "requeued",
            "timeout",
            "SIGUSR2",
            200,
        )
        golden.text(str(start.reason))
    else:
        assert start.end is None
