"""A run with all that is known of it: its files, the starts of its jobs, and which processes are alive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from experiment_utils.json_values import seconds
from memory.accounting.sacct import Row
from memory.explain import Explanation
from slurm.records.start_records import ENDED, GAVE_UP, PREEMPTED
from slurm.states import FROM_SLURM
from slurm.status.run_evidence import RunEvidence
from slurm.status.timeline import JobStart

ALIVE_S = 15.0
"""A process was heard of less than this long ago: it is alive, whatever other records say."""


@dataclass(frozen=True)
class RunHistory:
    """All that the table of states decides by."""

    evidence: RunEvidence
    now_s: float
    starts: tuple[JobStart, ...] = (JobStart(),)
    """Oldest first; the last is the newest start of the newest job, and may not have begun."""
    in_queue: bool = False
    """Whether squeue answered."""
    in_accounting: bool = False
    """Whether sacct answered."""
    explain: Callable[[], Explanation | None] = lambda: None
    """Memory's verdict on how the run ended. Reads logs: slow."""
    last_words: Callable[[], str | None] = lambda: None
    """The most useful line of the job's own output. Slow."""
    launcher_lives: bool | None = None
    """For a run of this machine: whether the process that starts it is alive; None: not known."""
    submitter_lives: bool | None = None
    """For an array without a job id: whether a process still submits it; None: not known."""
    knows_array: bool = False
    """Whether Slurm knows any task of the run's array."""
    asked_to_stop: bool = False
    """Whether the process that started the run got a signal and passed it on."""
    notes: tuple[str, ...] = field(default=())
    """Sources that did not answer, and why."""

    @property
    def last(self) -> JobStart:
        """The newest start."""
        return self.starts[-1]

    @cached_property
    def spoken(self) -> JobStart | None:
        """The newest start in which the run or its supervisor wrote something."""
        return next((start for start in reversed(self.starts) if start.has_spoken), None)

    @property
    def row(self) -> Row | None:
        """The job's own row of sacct, of the newest start."""
        return self.last.row

    @property
    def job_row(self) -> Row | None:
        """The newest row of sacct of the newest job, also if sacct does not know its newest start yet."""
        rows = [start.row for start in self.starts if start.job == self.last.job and start.row is not None]
        return rows[-1] if rows else None

    @cached_property
    def job_word(self) -> str:
        """Slurm's newest word for the job; a job that squeue no longer lists does not wait or run."""
        if self.last.queued is not None:
            return self.last.queued.state
        word = self.row.state if self.row else ""
        is_live = FROM_SLURM.get(word) in ("queued", "running")
        return "" if is_live and self.in_queue else word

    @cached_property
    def job_state(self) -> str | None:
        """That word as a state; None where nothing is known."""
        return FROM_SLURM.get(self.job_word)

    @cached_property
    def is_job_over(self) -> bool:
        """Slurm says that the job has ended, or answers and does not know it any more."""
        if self.job_state in ("queued", "running") or not self.evidence.job:
            return False
        return self.job_state is not None or self.in_queue

    @property
    def queue_reason(self) -> str:
        """Slurm's word for why the job waits."""
        return self.last.queued.reason if self.last.queued else self.row.reason if self.row else ""

    @property
    def is_restarted(self) -> bool:
        """Whether an earlier start of the same job is known."""
        return self.last.restart > 0 or bool(self.row and self.row.restarts)

    @property
    def nodes(self) -> str:
        """The nodes of the newest start, as Slurm writes them."""
        return (self.last.queued.nodes if self.last.queued else self.row.nodes if self.row else "") or ""

    @property
    def is_heard_now(self) -> bool:
        """The run says that it runs, and was heard of a moment ago. Slurm can lose a job that still runs."""
        known = self.evidence
        if known.state != "running" or known.is_gone or known.silent_s is None:
            return False
        return max(known.silent_s, known.unheard_s or 0.0) < ALIVE_S

    @cached_property
    def has_left_job(self) -> bool:
        """The run ended by itself in a job that it shares: no later start of that job runs it again."""
        known, note = self.evidence, self.evidence.note
        if not known.is_shared or known.array is None or note.get("signal") is not None:
            return False
        job = note.get("job_id")
        is_of_array = isinstance(job, str) and job.partition("_")[0] == known.array.job_id
        return is_of_array and note.get("end") in (ENDED, GAVE_UP) and not self.is_heard_now

    @cached_property
    def step_rows(self) -> list[Row]:
        """Rows of sacct that are of the run: all of its job, or its step of a job that it shares."""
        known, start = self.evidence, self.last.accounted
        if not known.is_shared:
            return list(start.rows) if start else []
        if self.spoken is not None and self.spoken.job == self.last.job:
            start = self.spoken.accounted  # in another start the same number is of another run
        return [row for row in start.steps if row.step == known.step] if start else []

    @cached_property
    def is_step_over(self) -> bool:
        """Slurm says that the run's step of a shared job has ended, and nothing was heard of it since."""
        if not self.evidence.is_shared or self.is_heard_now or not self.last.has_spoken:
            return False
        return any(FROM_SLURM.get(row.state) not in ("queued", "running", None) for row in self.step_rows)

    @property
    def is_waiting(self) -> bool:
        """The job waits in the queue, and no process of the run is alive."""
        is_elsewhere = self.evidence.is_here or self.is_heard_now or self.has_left_job
        return self.job_state == "queued" and not is_elsewhere

    @cached_property
    def is_running(self) -> bool:
        """The run says that it runs, and no record says that its process has ended."""
        known = self.evidence
        if known.state != "running" or known.is_gone or self.is_step_over:
            return False
        if self.is_heard_now:
            return True
        if self.job_state == "running":
            return self.last.has_spoken
        # a run takes its lock before it writes its status, and removes it when it ends
        return (known.is_here or not self.is_job_over) and (known.holder is not None or known.sampled)

    @cached_property
    def is_job_unheard(self) -> bool:
        """The job runs, and the run has written nothing in this start."""
        known = self.evidence
        if self.job_state != "running" or self.has_left_job or self.is_step_over:
            return False
        has_ended = bool(known.outcome) if known.state is None else known.state != "running" or known.is_gone
        return not (self.last.has_spoken and has_ended)

    @property
    def turn_s(self) -> float | None:
        """When the job began to start this run; None: not known, or not yet in a job that runs share."""
        array, note = self.evidence.array, self.last.noted
        how = "each" if array is None else array.how
        if how != "each" and note and note.get("end") is None and seconds(note.get("started_s")):
            return seconds(note.get("started_s"))
        return None if array is not None and array.takes_any else self.last.began_s

    @property
    def had_turn(self) -> bool:
        """Whether the end of its job says something of the run, which may only have waited in it."""
        array = self.evidence.array
        return array is None or array.how == "each" or self.evidence.state is not None

    @property
    def is_cancelled_by_us(self) -> bool:
        """The SIGTERM that stopped the run came from `slurm cancel`, its launcher, or to its job as a whole.

        A row of Slurm that says CANCELLED is looked at before.
        """
        if self.asked_to_stop or self.evidence.cancelled_s is not None:
            return self.asked_to_stop or self.last.has_spoken
        return self.evidence.attempt_note.get("signal") == "SIGTERM" and self.job_state is None

    @property
    def lost_node(self) -> Row | None:
        """Slurm's row of the start that the run was in, if that lost its node and cut the run off."""
        row = self.spoken.row if self.spoken else None
        was_cut_off = self.evidence.state in ("cancelled", "running")
        is_lost = row is not None and FROM_SLURM.get(row.state) == "node_failed"
        return row if was_cut_off and is_lost and "Ctrl-C" not in (self.evidence.reason or "") else None

    @property
    def was_preempted(self) -> bool:
        """The last attempt was stopped for another job, by the note of its job or by Slurm's row."""
        known, row = self.evidence, self.spoken.row if self.spoken else None
        by_row = row is not None and row.state == "PREEMPTED"
        by_row = by_row and known.state in ("timeout", "cancelled", "running")
        return by_row or known.attempt_note.get("state") == PREEMPTED

    @property
    def launcher_host(self) -> str:
        """Host of the process that starts runs of a machine; its array's job id is HOST:PID:STARTED_AT."""
        array = self.evidence.array
        return (array.job_id or "").partition(":")[0] if array is not None else ""

    @cached_property
    def explained(self) -> Explanation | None:
        """`explain`, once; None if it fails."""
        try:
            return self.explain()
        except Exception:  # the state is known without it
            return None

    @cached_property
    def last_error(self) -> str | None:
        """`last_words`, once; None if it fails."""
        try:
            return self.last_words()
        except Exception:
            return None
