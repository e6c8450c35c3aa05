"""Rows of the table of states for a run that is done, waits or runs."""

from __future__ import annotations

from experiment_utils.quantities import format_duration
from memory.accounting.sacct import count_nodes
from slurm.records.start_records import ENDED, REQUEUED
from slurm.records.submitter_liveness import NO_ROOM
from slurm.status.run_history import ALIVE_S, RunHistory
from slurm.status.slurm_answers import WITHOUT_END_S
from slurm.status.state_row import StateRow, and_earlier, one_line, slurm_source
from slurm.status.waiting_reasons import reason_of
from training.attempt.run_files import STALLED_AFTER_S

_NEVER = "DependencyNeverSatisfied"
_DECISION_S = 60.0
"""Within this time the job of a run that was stopped has asked for another start, or never will."""
_LATE_S = 20.0
"""A run that is alive is heard of more often, also in a long step."""


def _killed_on_the_way(h: RunHistory) -> str | None:
    killed = "a process of it was killed for memory on the way: see python -m memory explain"
    return killed if h.evidence.noted_oom else None


def _begins_here(h: RunHistory) -> bool:
    """A supervisor of this machine has just looked at the run, which has not written its status yet."""
    known = h.evidence
    if known.looked_s is None or known.submission is None or not h.launcher_lives:
        return False
    is_new = known.looked_s >= known.submission.created_s and h.now_s - known.looked_s < ALIVE_S
    return is_new and not h.last.has_spoken


def _waits_here(h: RunHistory) -> bool:
    known = h.evidence
    if not h.launcher_lives or known.is_here or known.damaged or h.last.has_spoken or _begins_here(h):
        return False
    return known.cancelled_s is None or h.spoken is not None


def waiting_here(h: RunHistory) -> str:
    """It waits for a process of this machine."""
    return and_earlier(h, f"it waits for its turn on {h.launcher_host}")


def _waits_for_room(h: RunHistory) -> bool:
    known = h.evidence
    is_without_room = known.array is not None and known.array.error == NO_ROOM and not known.is_here
    return is_without_room and h.waiter_lives is not False and known.cancelled_s is None


def _waiting_for_room(h: RunHistory) -> str:
    words = "it waits for room in the queue (MaxSubmitJobs, MaxJobCount), as does the command that "
    return and_earlier(h, f"{words}will submit it")


def _waiting(h: RunHistory) -> str:
    words = reason_of(h.queue_reason).words
    start_s = h.last.queued.start_s if h.last.queued else None
    is_expected = start_s is not None and 0 < start_s - h.now_s < WITHOUT_END_S
    is_again = any(start.job == h.last.job for start in h.starts[:-1]) or bool(h.row and h.row.restarts)
    if h.queue_reason == "BeginTime" and is_again and not is_expected:
        words += "; a requeued job waits about two minutes"
    if start_s is not None and is_expected:
        words += f"; Slurm expects it to start in {format_duration(start_s - h.now_s)}"
    return and_earlier(h, words)


def _is_beginning(h: RunHistory) -> bool:
    return _begins_here(h) or (h.evidence.is_here and h.evidence.state not in ("running", "done"))


def _beginning(h: RunHistory) -> str:
    where = "this host" if h.evidence.is_here else h.launcher_host
    return f"attempt {(h.evidence.attempt or 0) + 1} begins on {where}"


def _silent(h: RunHistory) -> str:
    stage = h.evidence.status.get("stage")
    words = f"no heartbeat for {format_duration(h.evidence.silent_s or 0.0)} from {_host(h)}"
    is_unanswered = h.evidence.job and not h.in_queue and not h.in_accounting
    return (
        f"{words}{f', in stage {stage}' if stage else ''}{'; Slurm does not answer' if is_unanswered else ''}"
    )


def _running(h: RunHistory) -> str:
    known = h.evidence
    unheard_s = (known.silent_s if known.unheard_s is None else known.unheard_s) or 0.0
    if h.is_job_over and h.job_word:
        return f"on {_host(h)}, heard of {max(1.0, unheard_s):.0f} s ago; its job ended as {h.job_word}"
    return f"on {_host(h)}" + (
        f", last heard of {format_duration(unheard_s)} ago" if unheard_s > _LATE_S else ""
    )


def _host(h: RunHistory) -> str:
    """The host, by the run's own word; for a job of several nodes those of Slurm."""
    known = h.evidence
    if h.job_state == "running" and count_nodes(h.nodes) > 1:
        return h.nodes
    return str(known.status.get("host") or (known.holder.host if known.holder else "")) or "its node"


def _is_suspended(h: RunHistory) -> bool:
    return h.job_word == "SUSPENDED" and (h.is_running or h.is_job_unheard)


def _suspended(h: RunHistory) -> str:
    return f"Slurm has suspended its job. To resume it: scontrol resume {h.evidence.job}"


def _is_requeueing(h: RunHistory) -> bool:
    is_requeued = h.last.noted.get("end") == REQUEUED and not h.evidence.noted_oom
    return h.job_state == "running" and is_requeued


def _requeueing(h: RunHistory) -> str:
    return "its job is being put back into the queue"


def _is_stopping(h: RunHistory) -> bool:
    """It stopped a moment ago, as it was asked to, and its job has not decided yet what follows."""
    known = h.evidence
    is_decided = not known.note or known.note.get("end") not in (None, ENDED)
    if h.job_state != "running" or not h.last.has_spoken or known.noted_oom or is_decided:
        return False
    is_recent = known.silent_s is not None and known.silent_s < _DECISION_S
    return known.state in ("timeout", "cancelled") and is_recent


def _stopping(h: RunHistory) -> str:
    words = one_line(h.evidence.reason or "") or "it was asked to stop"
    return f"{words}; its job is about to end, or to go back into the queue"


def _waits_in_job(h: RunHistory) -> bool:
    array = h.evidence.array
    return h.is_job_unheard and array is not None and array.how != "each" and h.turn_s is None


def _since_s(h: RunHistory) -> float:
    return h.now_s - h.turn_s if h.turn_s else 0.0


def _is_ending(h: RunHistory, else_words: str) -> str:
    return "is ending" if h.job_word == "COMPLETING" else else_words


def _job_unheard(h: RunHistory) -> str:
    where = h.nodes or "its node"
    if _since_s(h) > STALLED_AFTER_S:
        return (
            f"its job has run on {where} for {format_duration(_since_s(h))}, and the run has written nothing"
        )
    return f"its job {_is_ending(h, 'has begun')} on {where}; the run has written nothing yet"


LIVE_ROWS = (
    StateRow("unreadable", "unreadable", lambda h: h.evidence.unreadable is not None,
             lambda h: h.evidence.unreadable, "-",
             "its folder or a file in it cannot be read (a permission, a broken disk)"),
    StateRow("said_done", "done", lambda h: h.evidence.state == "done", _killed_on_the_way, "status.json",
             "it says that it is done"),
    StateRow("never_satisfied", "blocked", lambda h: h.is_waiting and _NEVER in h.queue_reason,
             lambda h: reason_of(_NEVER).words, "squeue",
             "its job waits for another that can no longer end as was asked"),
    StateRow("waits_here", "queued", _waits_here, waiting_here, "jobs.json",
             "the process of this machine that starts it has not come to it"),
    StateRow("waits_for_room", "queued", _waits_for_room, _waiting_for_room, "submission.json",
             "the queue had no room for it, and the command that submits it waits"),
    StateRow("waits", "queued", lambda h: h.is_waiting, _waiting, slurm_source,
             "its job waits, also again after a requeue, and no process of the run is alive"),
    StateRow("begins", "running", _is_beginning,
             _beginning, lambda h: "run.lock" if h.evidence.is_here else "memory.ring",
             "its process is alive, and has not written its status yet"),
    StateRow("suspended", "running", _is_suspended, _suspended, slurm_source,
             "Slurm has suspended its job"),
    StateRow("silent", "stalled", lambda h: h.is_running and (h.evidence.silent_s or 0.0) > STALLED_AFTER_S,
             _silent, "status.json",
             "it says that it runs, no record says that it ended, no heartbeat for 5 minutes"),
    StateRow("runs", "running", lambda h: h.is_running, _running, "status.json",
             "it says that it runs, and no record says that it ended"),
    StateRow("requeues", "queued", _is_requeueing, _requeueing, slurm_source,
             "it stopped, and its job is being put back into the queue"),
    StateRow("stops", "running", _is_stopping, _stopping, slurm_source,
             "it stopped a moment ago, as asked, and its job has not decided what follows"),
    StateRow("waits_in_job", "queued", _waits_in_job,
             lambda h: f"it waits for its turn in its job, which {_is_ending(h, 'runs')}", slurm_source,
             "it shares a job that runs, and has not had its turn"),
    StateRow("job_silent", "stalled", lambda h: h.is_job_unheard and _since_s(h) > STALLED_AFTER_S,
             _job_unheard, slurm_source,
             "its job has run for 5 minutes, and it has written nothing in this start"),
    StateRow("job_begins", "running", lambda h: h.is_job_unheard, _job_unheard, slurm_source,
             "its job runs, and it has written nothing yet in this start"),
)  # fmt: skip
