"""The history of a run: the starts of its jobs, oldest first, each with all that is known of it.

Every file of the run and every row of Slurm is an event of one start. Events with equal stamps are of the
same start; one without a stamp is assigned by its time. The order in which events are given does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from experiment_utils.json_values import integer, seconds
from memory.accounting.sacct import Job, Row, moment
from slurm.records.stamps import CLOCKS_APART_S, Stamp, is_before, stamp_of_note
from slurm.states import FROM_SLURM
from slurm.status.run_evidence import RunEvidence
from slurm.status.slurm_answers import QueueRow

KINDS = ACCOUNTED, NOTED, HEARD, EXITED, QUEUED = "accounted", "noted", "heard", "exited", "queued"
"""Kinds of events: a row of sacct with its steps, an entry of starts.json, status.json, outcome.json, a row
of squeue. Each is a field of JobStart too.
"""


@dataclass(frozen=True)
class Event:
    """One record of a run."""

    kind: str
    facts: Any
    stamp: Stamp | None = None
    """The start that it is of; None: not known, as for all rows of squeue."""
    time_s: float | None = None
    """Unix time of the record."""
    attempt: int = 0
    """Number of the attempt that it is of, 0 if not known."""


@dataclass(frozen=True)
class JobStart:
    """One start of a job for a run: what Slurm, the job, the run and its supervisor recorded of it."""

    job: str = ""
    """`4242_3` or `4242`; empty for a run of this machine."""
    restart: int = 0
    since_s: float | None = None
    """Unix time before which the run cannot have written anything in it; infinite while the job waits."""
    queued: QueueRow | None = None
    """squeue's row."""
    accounted: Job | None = None
    """sacct's row, with those of its steps."""
    noted: dict[str, Any] = field(default_factory=dict)
    """Entry of starts.json."""
    heard: dict[str, Any] = field(default_factory=dict)
    """status.json, if the run wrote it in this start."""
    exited: dict[str, Any] = field(default_factory=dict)
    """outcome.json, if the supervisor wrote it in this start."""

    @property
    def has_spoken(self) -> bool:
        """Whether the run or its supervisor wrote something in it."""
        return bool(self.heard or self.exited)

    @property
    def row(self) -> Row | None:
        """The job's own row of sacct."""
        return self.accounted.row if self.accounted else None

    @property
    def began_s(self) -> float | None:
        """Unix time of its begin on Slurm's clock. While a job completes squeue shows the current time."""
        if self.queued is not None and self.queued.state != "COMPLETING":
            return None if FROM_SLURM.get(self.queued.state) == "queued" else self.queued.start_s
        return moment(self.row.start) if self.row else None


def events_of(
    evidence: RunEvidence, job: str, queue: QueueRow | None, accounting: Iterable[Job]
) -> list[Event]:
    """All that is known of a run, as events.

    Args:
        evidence: its files.
        job: its job, as Slurm writes it; empty if it has none.
        queue: squeue's row of that job.
        accounting: sacct's starts of that job, oldest first; a start can be listed twice.
    """
    rows = list({(one.row.restarts, one.row.start): one for one in accounting}.values())
    found = [] if queue is None else [Event(QUEUED, queue)]
    for place, one in enumerate(rows):  # versions of sacct before 22.05 do not count restarts
        restart = place if one.row.restarts is None else one.row.restarts
        found.append(Event(ACCOUNTED, one, Stamp(job, restart)))
    for note in evidence.notes:
        time_s = seconds(note.get("started_s")) or seconds(note.get("ended_s"))
        if (stamp := stamp_of_note(note)) is not None:
            found.append(Event(NOTED, note, stamp, time_s, integer(note.get("attempt")) or 0))
    beat_s, attempt = evidence.heartbeat_s, integer(evidence.status.get("attempt")) or 0
    if evidence.status:
        found.append(Event(HEARD, evidence.status, evidence.stamp, beat_s, attempt))
    if outcome := evidence.outcome:
        time_s, exited = seconds(outcome.get("ended_s")), integer(outcome.get("attempt"))
        stamp = evidence.supervised_stamp or evidence.stamp
        found.append(Event(EXITED, outcome, stamp, time_s or beat_s, exited or attempt))
    return found


def fold(
    events: Iterable[Event],
    job: str = "",
    submitted_s: float | None = None,
    clocks_apart_s: float = CLOCKS_APART_S,
) -> tuple[JobStart, ...]:
    """The starts of a run, oldest first; the last is the newest of its newest job, which may not have begun.

    Args:
        events: in any order.
        job: of its newest submission, as Slurm writes it; empty: not known, or of this machine.
        submitted_s: when that was made, Unix time.
        clocks_apart_s: largest difference between the clocks of two events.
    """
    ordered = sorted(events, key=_order)
    queue = next((one.facts for one in ordered if one.kind == QUEUED), None)
    numbers = {one.facts.row.raw for one in ordered if one.kind == ACCOUNTED}
    numbers |= {job, job.partition("_")[0], queue.raw if queue else ""}
    starts: dict[tuple[str, int], JobStart] = {}
    times: dict[tuple[str, int], float] = {}
    for event in ordered:
        if event.stamp is not None:
            # a task of an array has a number of its own too
            key = job if event.stamp.job in numbers else event.stamp.job, event.stamp.restart
            starts[key] = replace(starts.get(key, JobStart(*key)), **{event.kind: event.facts})
            times[key] = max(times.get(key, 0.0), event.time_s or 0.0)
    own = max((restart for name, restart in starts if name == job), default=None)
    if own is None:
        own = 0
    elif queue is not None and not _is_row_of(queue, starts[job, own], times[job, own], clocks_apart_s):
        own += 1
    starts.setdefault((job, own), JobStart(job, own))
    starts[job, own] = replace(starts[job, own], queued=queue)
    found = sorted(
        starts.values(), key=lambda one: (one.job == job, one.job == job or _noted_s(one), one.restart)
    )
    found = [replace(start, since_s=_since_s(start, job, submitted_s)) for start in found]
    for event in ordered:
        if event.stamp is None and event.kind != QUEUED:
            _assign(event, found, clocks_apart_s)
    return tuple(found)


def _order(event: Event) -> tuple[Any, ...]:
    """Later records replace earlier ones of the same kind and start."""
    return KINDS.index(event.kind), event.attempt, event.time_s or 0.0, repr(event.facts)


def _is_row_of(queue: QueueRow, start: JobStart, time_s: float, margin_s: float) -> bool:
    """Whether squeue's row is of the newest start that other records name; else it is of the next one.

    time_s: of the latest record of that start, 0 if not known.
    """
    word, row = FROM_SLURM.get(queue.state), start.row
    if word == "queued":
        return row is not None and moment(row.start) is None
    if word != "running" or queue.state == "COMPLETING":  # the job of that start has just ended
        return True
    if row is not None:  # both times are slurmctld's
        begun_s = moment(row.start)
        return None in (begun_s, queue.start_s) or abs((begun_s or 0.0) - (queue.start_s or 0.0)) <= 1.0
    return not time_s or not is_before(time_s, queue.start_s, margin_s)


def _noted_s(start: JobStart) -> float:
    return seconds(start.noted.get("started_s")) or 0.0


def _since_s(start: JobStart, job: str, submitted_s: float | None) -> float | None:
    word = FROM_SLURM.get(start.queued.state if start.queued else start.row.state if start.row else "")
    if start.began_s is None and word == "queued":
        return math.inf
    noted_s = seconds(start.noted.get("started_s"))
    return start.began_s or noted_s or (submitted_s if start.job == job else None)


def _assign(event: Event, starts: list[JobStart], margin_s: float) -> None:
    """Add a record without a stamp to the newest start that had begun when it was written."""
    for place in reversed(range(len(starts))):
        start = starts[place]
        is_later = (integer(start.noted.get("attempt")) or 0) > event.attempt > 0
        if not is_later and not is_before(event.time_s, start.since_s, margin_s):
            starts[place] = replace(start, **{event.kind: event.facts})
            return
    starts.insert(0, replace(JobStart(), **{event.kind: event.facts}))
