"""RUN/starts.json: every start of a job for this run, and how it ended. Only the job writes it.

A start of a job is not always an attempt of the run: it can find its run done, or another copy running.
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
"""Ends of a start: the run is done; the job was requeued; it was not, since its starts brought no step
forward; the run ended otherwise, by `state` and `reason`; another copy runs (`left`, never written)."""
PREEMPTED = "preempted"
"""`state` of a run that stopped for a job of higher priority; status.json cannot know that."""


@dataclass(frozen=True)
class Start:
    """One start of a job for the run."""

    job_id: str
    """`4242_3`, `4242`."""
    raw_job_id: str
    restart: int
    """Number of times that the job was requeued before."""
    host: str
    pid: int
    started_s: float
    attempt: int
    """Number of the run's attempt."""
    step_before: int
    """Step of the newest checkpoint."""
    step_after: int | None = None
    ended_s: float | None = None
    end: str | None = None
    """None as long as it runs, and if it was killed."""
    state: str | None = None
    """State in which the run's process ended, with `reason` and `exit_code`."""
    reason: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    """The first signal that reached it."""


def read_starts(run: Path) -> list[Start]:
    """Starts, oldest first; none if the file is missing or damaged.

    Raises:
        atomic_files.Unreadable: the file cannot be read.
    """
    try:
        plain = atomic_files.read_object(run / STARTS)
        return [] if plain is None else [shaped(Start, one) for one in plain["starts"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []


def note_start(run: Path, start: Start) -> None:
    """Add a start. Raises OSError: the disk is full, or read-only."""
    _write(run, [*read_starts(run), start])


def note_end(run: Path, start: Start) -> None:
    """Replace the start with the same job and time. Raises OSError."""
    key = start.raw_job_id, start.started_s
    _write(run, [*(one for one in read_starts(run) if (one.raw_job_id, one.started_s) != key), start])


def idle_starts(starts: Sequence[Start], raw_job_id: str, step_now: int) -> int:
    """Number of this job's last starts that brought no step forward."""
    count, after = 0, step_now
    for start in reversed([start for start in starts if start.raw_job_id == raw_job_id]):
        if start.step_before < after:
            break
        count, after = count + 1, start.step_before
    return count


LATE_S = 300.0
"""Slurm repeats a signal to a lost node each minute, to a step of the job by its number alone."""


def follows_a_lost_node(starts: Sequence[Start], start: Start, now_s: float | None = None) -> bool:
    """Whether the job has just begun again after Slurm requeued it without a signal: a node was lost.

    A signal for the start before can still arrive.
    """
    now_s = time.time() if now_s is None else now_s
    before = [one for one in starts if one.raw_job_id == start.raw_job_id and one.restart < start.restart]
    if not before or now_s - start.started_s > LATE_S:
        return False
    return before[-1].signal is None and before[-1].end in (None, ENDED)


def is_over_in(starts: Sequence[Start], array: str | None) -> bool:
    """Whether a run has ended by itself in an array of shared jobs: none of them takes it again."""
    own = [start for start in starts if start.job_id.partition("_")[0] == array]
    return bool(own) and own[-1].end in (DONE, ENDED, GAVE_UP) and own[-1].signal is None


def _write(run: Path, starts: Sequence[Start]) -> None:
    atomic_files.write_json(
        run / STARTS, {"version": VERSION, "starts": [asdict(start) for start in starts[-_KEPT:]]}
    )
