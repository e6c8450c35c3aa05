"""What is known of a run and of its job, side by side, and what follows from it for all rules that judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from memory.accounting.sacct import Job, Row, moment
from memory.explain import Explanation
from slurm.states import FROM_SLURM
from slurm.status.run_evidence import Known
from slurm.status.slurm_answers import QueueRow

CLOCKS_APART_S = 30.0


@dataclass(frozen=True)
class Case:
    """A run before its judge.

    queue: squeue's row of its job. starts: of the job by accounting, the oldest first. in_queue: whether
    squeue answered; in_accounting: whether sacct, or scontrol in its place, did. explain: memory's word for
    its end. last_words: of the job's own output, the line that tells most.
    """

    known: Known
    now_s: float
    queue: QueueRow | None = None
    starts: tuple[Job, ...] = ()
    in_queue: bool = False
    in_accounting: bool = False
    source: str = "sacct"
    explain: Callable[[], Explanation | None] = lambda: None
    last_words: Callable[[], str | None] = lambda: None
    launcher_lives: bool | None = None
    """Of a run of this machine that waits for its turn: whether what starts it is there; None: not known."""
    submitter_lives: bool | None = None
    """Of an array that is not known to be submitted: whether somebody still submits it; None: not known."""
    waiter_lives: bool | None = False
    """Of a run that the queue had no room for: whether a command waits to submit it; None: not known."""
    knows_array: bool = False
    """Whether Slurm knows the array that it is a task of, of whatever of its tasks."""
    asked_to_stop: bool = False
    """Whether what started the run was asked to stop, and has passed that on."""
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def start(self) -> Job | None:
        return self.starts[-1] if self.starts else None

    @cached_property
    def row(self) -> Row | None:
        """Of the job's last start."""
        return self.start.row if self.start else None

    @cached_property
    def own_start(self) -> Job | None:
        """The start of its job that the run's last attempt was in; others may follow. None: not known."""
        restarts = self.known.own_restarts
        if restarts is None or self.known.own_job != self.known.job:
            return None
        told = {start.row.restarts: start for start in self.starts if start.row.restarts is not None}
        by_place = None if told or restarts >= len(self.starts) else self.starts[restarts]
        return told.get(restarts, by_place)

    @property
    def own_row(self) -> Row | None:
        return self.own_start.row if self.own_start else None

    @cached_property
    def word(self) -> str:
        """Slurm's word for the job: squeue's is newer, and what it has forgotten does not run."""
        if self.queue is not None:
            return self.queue.state
        told = self.row.state if self.row else ""
        live = FROM_SLURM.get(told) in ("queued", "running")
        return "" if live and self.in_queue else told

    @cached_property
    def stands(self) -> str | None:
        """What that word means as a state; None where nothing is known."""
        return FROM_SLURM.get(self.word)

    @cached_property
    def has_ended(self) -> bool:
        """Slurm says that the job is over, or knows nothing of it any more though it answered."""
        if self.stands in ("queued", "running"):
            return False
        return bool(self.known.job) and (self.stands is not None or self.in_queue)

    @cached_property
    def start_s(self) -> float | None:
        """Unix time, on slurmctld's clock. Of a job that is to start again squeue tells, while it ends, the
        moment in which it is asked.
        """
        if self.queue is not None and self.stands != "queued" and self.word != "COMPLETING":
            return self.queue.start_s
        return moment(self.row.start) if self.row else None

    @cached_property
    def spoke_now(self) -> bool:
        """Whether the run's own files are of this start of its job, and not of one before."""
        known = self.known
        if (known.status == {} and known.outcome == {}) or self._is_of_another_job:
            return False
        restarts = (self.row.restarts if self.row else None) or (
            len(self.starts) - 1 if self.starts else None
        )
        if known.own_restarts is not None and restarts is not None and known.own_job == known.job:
            return known.own_restarts >= restarts and self._spoke_in_last_start()
        return self._is_later()

    @property
    def _is_of_another_job(self) -> bool:
        """The run's last start was in a job before this one; what shares an array takes each other's runs."""
        own, job = self.known.own_job, self.known.job
        return own is not None and job is not None and own.partition("_")[0] != job.partition("_")[0]

    def _spoke_in_last_start(self) -> bool:
        """Not if the job has written that it starts an attempt of which nothing was heard yet."""
        attempt = self.known.start.get("attempt")
        return not isinstance(attempt, int) or (self.known.attempt or 0) >= attempt

    def _is_later(self) -> bool:
        """By the clocks."""
        beat, start = self.known.heartbeat_s, self.start_s
        if beat is None or start is None:
            return True
        return beat >= start - CLOCKS_APART_S

    @cached_property
    def has_ended_badly(self) -> bool:
        """The run's process is no more, by its own word or its supervisor's or its job's."""
        known = self.known
        if known.state in (None, "done"):
            return bool(known.outcome) and known.state is None
        return known.state != "running" or known.is_gone or self.has_ended

    @cached_property
    def explained(self) -> Explanation | None:
        try:
            return self.explain()
        except Exception:  # a word less, not an answer less
            return None
