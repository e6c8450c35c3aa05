"""What a case shows: the questions about a run and its job that more than one rule asks."""

from __future__ import annotations

from experiment_utils.json_values import seconds
from memory.accounting.sacct import Row, moment
from slurm.records.start_records import ENDED, GAVE_UP, PREEMPTED
from slurm.records.submissions import LOCAL
from slurm.records.submitter_liveness import NO_ROOM
from slurm.states import FROM_SLURM
from slurm.status.case import CLOCKS_APART_S, Case

_BEFORE_THE_JOB_S = 180.0
"""A run that had failed so long before its job was ended, longer than KillWait and any grace time, failed."""
_BEGINS_S = 15.0
"""A supervisor looks at a run that begins more often."""
_JUDGED_S = 60.0
"""After so long the job of a run that was stopped has asked for another start, or never will."""


def is_waiting(case: Case) -> bool:
    is_left = case.known.is_here or still_beats(case) or is_over_in_its_job(case)
    return case.stands == "queued" and not is_left


def waits_again_here(case: Case) -> bool:
    """In the background of a machine: what it has said is of before its newest submission."""
    return bool(case.launcher_lives) and not case.known.is_here and spoke_before_its_submission(case)


def spoke_before_its_submission(case: Case) -> bool:
    """All that it has said is of before the newest one."""
    beat, submission = case.known.heartbeat_s, case.known.submission
    return beat is not None and submission is not None and beat < submission.created_s


def was_cancelled_before_its_start(case: Case) -> bool:
    """`slurm cancel` has ended its newest submission while it waited."""
    known = case.known
    if known.cancelled_s is None:
        return False
    waited = spoke_before_its_submission(case) and case.stands in (None, "cancelled")
    return known.state is None or waited


def waits_for_room(case: Case) -> bool:
    """The queue had no room for it, and a command waits to submit it."""
    known = case.known
    if known.array is None or known.array.error != NO_ROOM or known.is_here:
        return False
    return case.waiter_lives is not False and known.cancelled_s is None


def begins_here(case: Case) -> bool:
    """Of a run of a machine: its supervisor looks at it, and it has not come to its first word."""
    known = case.known
    if known.looked_s is None or known.submission is None or case.launcher_lives in (None, False):
        return False
    is_new = known.looked_s >= known.submission.created_s and case.now_s - known.looked_s < _BEGINS_S
    return is_new and ((known.state is None and not known.outcome) or waits_again_here(case))


def still_beats(case: Case) -> bool:
    """The run was heard of just now, whatever its job's row says: a job can run twice (a lost slurmd)."""
    known = case.known
    if known.state != "running" or known.is_gone or known.silent_s is None:
        return False
    return max(known.silent_s, known.unheard_s or 0.0) < 15.0  # what a dead node left stands still


def is_stopping(case: Case) -> bool:
    """It stopped because it was asked to, a moment ago, and its job, which still runs, has yet to judge."""
    known = case.known
    if case.stands != "running" or not case.spoke_now or known.noted_oom:
        return False
    is_judged = known.start.get("end") not in (None, ENDED) or not known.start
    silent = known.silent_s
    return (
        known.state in ("timeout", "cancelled")
        and not is_judged
        and silent is not None
        and silent < _JUDGED_S
    )


def ran_in_its_job(case: Case) -> bool:
    """In a start of it before this one."""
    known = case.known
    own = known.own_job is not None and known.own_job == known.job and known.own_restarts is not None
    return own or len(case.starts) > 1 or bool(case.row and case.row.restarts)


def began_again(case: Case) -> bool:
    """Of a job that was put back into the queue: whether it has been started since."""
    restarts = (case.row.restarts if case.row else None) or len(case.starts) - 1
    if case.known.own_restarts is not None and restarts > case.known.own_restarts:
        return True
    ended_s = seconds(case.known.start.get("ended_s"))
    return ended_s is not None and case.start_s is not None and case.start_s > ended_s


def its_turn_s(case: Case) -> float | None:
    """Of a job that runs share: when it began to start this one, if it has, and this has not ended since.

    Side by side all begin with their job, workers take one run after the other.
    """
    begun, array = case.known.start, case.known.array
    side_by_side_s = case.start_s if array is not None and array.how in ("pack", "ensemble") else None
    started_s = seconds(begun.get("started_s"))
    if begun.get("end") is not None or started_s is None:
        return side_by_side_s
    is_of_this = case.start_s is None or started_s >= case.start_s - CLOCKS_APART_S
    return started_s if is_of_this else side_by_side_s


def is_over_in_its_job(case: Case) -> bool:
    """Of a job that runs share: this one has ended in it by itself, and no later start takes it again."""
    start, array = case.known.start, case.known.array
    if array is None or array.how not in ("pack", "workers") or start.get("signal") is not None:
        return False
    job = start.get("job_id")
    is_of_this = isinstance(job, str) and job.partition("_")[0] == array.job_id
    return is_of_this and start.get("end") in (ENDED, GAVE_UP) and not still_beats(case)


def was_asked_of(case: Case) -> bool:
    """Whether the job's end is this run's: it had its turn, or has its job to itself."""
    array = case.known.array
    return array is None or array.how == "each" or case.known.state is not None


def was_ended_by_us(case: Case) -> bool:
    """Of a run that SIGTERM stopped: `slurm cancel` or its launcher passed it on; or its job was sent it too,
    of whose end Slurm tells nothing. Where there is a row that says CANCELLED, that has told before.
    """
    known = case.known
    if case.asked_to_stop:
        return True
    if known.cancelled_s is not None:
        apart_s = 1.0 if known.submission and known.submission.launcher == LOCAL else CLOCKS_APART_S
        return known.heartbeat_s is None or known.heartbeat_s > known.cancelled_s - apart_s
    is_of_job = known.start.get("attempt") == known.attempt and known.start.get("signal") == "SIGTERM"
    return is_of_job and case.stands is None


def own_rows(case: Case) -> list[Row]:
    """Of the job's last start; of a job that runs share, those of the run's own step, in the start that it
    was in: in another the same number is of another run.
    """
    known, array = case.known, case.known.array
    if array is None or array.how in ("each", "ensemble"):
        return list(case.start.rows) if case.start else []
    is_known = known.own_restarts is not None and known.own_job == known.job
    start = case.own_start if is_known else case.start
    return [row for row in start.steps if row.step == known.step] if start else []


def is_over_in_its_step(case: Case) -> bool:
    """Of a run that is a step of a job which goes on: Slurm says that the step has ended, and nothing has
    been heard of the run since.
    """
    array = case.known.array
    if array is None or array.how in ("each", "ensemble") or still_beats(case) or not case.spoke_now:
        return False
    return any(FROM_SLURM.get(row.state) not in ("queued", "running", None) for row in own_rows(case))


def failed_before(case: Case) -> bool:
    """It had ended by itself well before its job was ended for another reason: its job went on without it."""
    known = case.known
    if is_over_in_its_job(case):
        return True
    if known.state not in ("failed", "oom", "timeout", "cancelled") or not case.spoke_now:
        return False
    ended = moment(case.row.end) if case.row is not None else None
    beat = known.heartbeat_s
    return ended is not None and beat is not None and ended - beat > _BEFORE_THE_JOB_S


def lost_its_node(case: Case) -> bool:
    """Slurm took the start that it was in for lost: whatever ended it after that was no scancel of it."""
    row, state = case.own_row, case.known.state
    was_ended = state in ("cancelled", "running") and "Ctrl-C" not in (case.known.reason or "")
    return was_ended and row is not None and FROM_SLURM.get(row.state) == "node_failed"


def left_the_queue(case: Case) -> bool:
    """A task of an array that was cancelled while it waited: Slurm writes no row of its own for it. squeue
    does not list it, and sacct has it as waiting, in the row of the array, or soon not at all.
    """
    known, row = case.known, case.row
    is_of_array = known.array is not None and known.array.how == "each" and known.array.is_array
    if not is_of_array or known.state is not None or not case.in_queue or case.queue is not None:
        return False
    if row is None:
        return case.in_accounting and case.knows_array
    return row.job != known.job and FROM_SLURM.get(row.state) == "queued"


def was_preempted(case: Case) -> bool:
    """The start before: by the word of its job, or by Slurm's row of it."""
    known = case.known
    if known.start.get("attempt") == known.attempt and known.start.get("state") == PREEMPTED:
        return True
    ended = [
        start.row.state
        for start in case.starts
        if FROM_SLURM.get(start.row.state) not in ("queued", "running")
    ]
    return bool(ended) and ended[-1] == "PREEMPTED" and known.state in ("timeout", "cancelled", "running")


def reason_word(case: Case) -> str:
    return case.queue.reason if case.queue is not None else case.row.reason if case.row is not None else ""
