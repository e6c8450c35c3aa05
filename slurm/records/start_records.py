"""RUN/starts.json: every start of a job for this run, and what came of it. Written by the job alone.

A start of a job is not an attempt of the run: one that finds its run done, or another copy at work, is none.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from experiment_utils import atomic_files
from slurm.records.parse_record import shaped

STARTS = "starts.json"
VERSION = 1
_KEPT = 100

DONE, REQUEUED, GAVE_UP, ENDED, LEFT = "done", "requeued", "gave_up", "ended", "left"
"""How a start ends: done; the job was put back into the queue; it was not, since no start got further;
anything else, which `state` and `reason` tell. `left`: another copy is at work, and nothing is written."""


PREEMPTED = "preempted"
"""`state` of a run that stopped because another job was to have its place; status.json cannot know that."""


LEASE_LOST = 77
"""Exit status of a run whose lease another process has taken: that one's records count."""


@dataclass(frozen=True)
class Start:
    """job_id: as Slurm writes it. restart: how often it was put back before. attempt: of the run.
    step_before, step_after: of its newest checkpoint. end: None as long as it goes on, and where it was
    killed. state, reason, exit_code: of the run's process. signal: which came first, if one did.
    """

    job_id: str
    raw_job_id: str
    restart: int
    host: str
    pid: int
    started_s: float
    attempt: int
    step_before: int
    step_after: int | None = None
    ended_s: float | None = None
    end: str | None = None
    state: str | None = None
    reason: str | None = None
    exit_code: int | None = None
    signal: str | None = None


def read_starts(run: Path) -> list[Start]:
    """Oldest first; of a file that is missing or damaged none.

    Raises:
        atomic_files.Unreadable: the file cannot be read.
    """
    try:
        plain = atomic_files.read_object(run / STARTS)
        return [] if plain is None else [shaped(Start, one) for one in plain["starts"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def note_start(run: Path, start: Start) -> None:
    """Add one. Raises OSError: the disk is full, or read-only."""
    _write(run, [*read_starts(run), start])


def note_end(run: Path, start: Start) -> None:
    """Replace the one that began at the same time in the same job. Raises OSError."""
    others = [
        one
        for one in read_starts(run)
        if (one.raw_job_id, one.started_s) != (start.raw_job_id, start.started_s)
    ]
    _write(run, [*others, start])


def idle_starts(starts: Sequence[Start], raw_job_id: str, step_now: int) -> int:
    """How many starts of this job, up to the last one, have brought the run no further."""
    count, after = 0, step_now
    for start in reversed([start for start in starts if start.raw_job_id == raw_job_id]):
        if start.step_before < after:
            break
        count, after = count + 1, start.step_before
    return count


LATE_S = 300.0
"""Slurm repeats each minute what it could not tell a node, a job's step by its number alone."""


def follows_a_lost_node(starts: Sequence[Start], start: Start, now_s: float | None = None) -> bool:
    """Whether Slurm put the job back by itself, unasked and without a signal to it, and it has just begun
    again: a node of the start before was lost, and what was to end that one may still come.
    """
    now_s = time.time() if now_s is None else now_s
    before = [one for one in starts if one.raw_job_id == start.raw_job_id and one.restart < start.restart]
    if not before or now_s - start.started_s > LATE_S:
        return False
    return before[-1].signal is None and before[-1].end in (None, ENDED)


def is_over_in(starts: Sequence[Start], array: str | None) -> bool:
    """Whether a run has ended by itself in this array, whose jobs it shares: none of them takes it again."""
    own = [start for start in starts if start.job_id.partition("_")[0] == array]
    return bool(own) and own[-1].end in (DONE, ENDED, GAVE_UP) and own[-1].signal is None


def _write(run: Path, starts: Sequence[Start]) -> None:
    atomic_files.write_json(
        run / STARTS, {"version": VERSION, "starts": [asdict(start) for start in starts[-_KEPT:]]}
    )
