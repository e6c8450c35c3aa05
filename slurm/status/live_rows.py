"""Rows of the table of states for a run that is done, waits or runs."""

from __future__ import annotations

from experiment_utils.quantities import format_duration
from memory.accounting.sacct import count_nodes
from slurm.records.start_records import ENDED, REQUEUED
from slurm.status.run_history import RunHistory
from slurm.status.slurm_answers import WITHOUT_END_S
from slurm.status.state_row import StateRow, and_earlier, one_line, slurm_source
from slurm.status.waiting_reasons import reason_of
from training.attempt.run_files import STALLED_AFTER_S

_NEVER = "DependencyNeverSatisfied"
_DECISION_S = 60.0
"""Within this time the job of a run that was stopped has asked for another start, or never will."""
_LATE_S = 20.0
"""A run that is alive is heard of more often, also in a long step."""


def _killed_on_the_way(run: RunHistory) -> str | None:
    killed = "a process of it was killed for memory on the way: see python -m memory explain"
    return killed if run.evidence.noted_oom else None


def _waits_here(run: RunHistory) -> bool:
    known = run.evidence
    if not run.launcher_lives or known.is_here or known.damaged or run.last.has_spoken:
        return False
    return known.cancelled_s is None or run.spoken is not None


def waiting_here(run: RunHistory) -> str:
    """Reason of a run that waits for a process of this machine."""
    return and_earlier(run, f"it waits for its turn on {run.launcher_host}")


def _waiting(run: RunHistory) -> str:
    reason, start_s = reason_of(run.queue_reason).words, run.last.queued.start_s if run.last.queued else None
    if start_s is not None and 0 < start_s - run.now_s < WITHOUT_END_S:
        reason += f"; Slurm expects it to start in {format_duration(start_s - run.now_s)}"
    elif run.queue_reason == "BeginTime" and run.is_restarted:
        reason += "; a requeued job waits about two minutes"
    return and_earlier(run, reason)


def _silent(run: RunHistory) -> str:
    stage = run.evidence.status.get("stage")
    silent = f"no heartbeat for {format_duration(run.evidence.silent_s or 0.0)} from {_host(run)}"
    is_unanswered = run.evidence.job and not run.in_queue and not run.in_accounting
    return silent + (f", in stage {stage}" if stage else "") + "; Slurm does not answer" * bool(is_unanswered)


def _running(run: RunHistory) -> str:
    known = run.evidence
    unheard_s = (known.silent_s if known.unheard_s is None else known.unheard_s) or 0.0
    if run.is_job_over and run.job_word:
        return f"on {_host(run)}, heard of {max(1.0, unheard_s):.0f} s ago; its job ended as {run.job_word}"
    late = f", last heard of {format_duration(unheard_s)} ago" if unheard_s > _LATE_S else ""
    requeued = "; Slurm has put its job back into the queue" if run.job_state == "queued" else ""
    return f"on {_host(run)}{late}{requeued}"


def _host(run: RunHistory) -> str:
    """The host by the run's own word, or Slurm's nodes for a job of several."""
    known = run.evidence
    if run.job_state == "running" and count_nodes(run.nodes) > 1:
        return run.nodes
    return str(known.status.get("host") or (known.holder.host if known.holder else "")) or "its node"


def _is_requeueing(run: RunHistory) -> bool:
    is_requeued = run.last.noted.get("end") == REQUEUED and not run.evidence.noted_oom
    is_unanswered = run.job_state is None and not run.in_queue
    return is_requeued and (run.job_state == "running" or is_unanswered)


def _is_stopping(run: RunHistory) -> bool:
    """It stopped a moment ago, as it was asked to, and its job has not decided yet what follows."""
    known = run.evidence
    is_decided = not known.note or known.note.get("end") not in (None, ENDED)
    if run.job_state != "running" or not run.last.has_spoken or known.noted_oom or is_decided:
        return False
    is_recent = known.silent_s is not None and known.silent_s < _DECISION_S
    return known.state in ("timeout", "cancelled") and is_recent


def _stopping(run: RunHistory) -> str:
    stopped = one_line(run.evidence.reason or "") or "it was asked to stop"
    return f"{stopped}; its job is about to end, or to go back into the queue"


def _waits_in_job(run: RunHistory) -> bool:
    array = run.evidence.array
    return run.is_job_unheard and array is not None and array.how != "each" and run.turn_s is None


def _since_s(run: RunHistory) -> float:
    return run.now_s - run.turn_s if run.turn_s else 0.0


def _job_unheard(run: RunHistory) -> str:
    where = run.nodes or "its node"
    if _since_s(run) > STALLED_AFTER_S:
        since = format_duration(_since_s(run))
        return f"its job has run on {where} for {since}, and the run has written nothing"
    begun = "is ending" if run.job_word == "COMPLETING" else "has begun"
    return f"its job {begun} on {where}; the run has written nothing yet"


LIVE_ROWS = (
    StateRow("unreadable", "unreadable", lambda run: run.evidence.unreadable is not None,
             lambda run: run.evidence.unreadable, "-",
             "its folder or a file in it cannot be read (a permission, a broken disk)"),
    StateRow("said_done", "done", lambda run: run.evidence.is_done, _killed_on_the_way,
             lambda run: "status.json" if run.evidence.state else "starts.json",
             "it says that it is done, or without status.json its job does"),
    StateRow("never_satisfied", "blocked", lambda run: run.is_waiting and _NEVER in run.queue_reason,
             lambda run: reason_of(_NEVER).words, "squeue",
             "its job waits for another that can no longer end as was asked"),
    StateRow("waits_here", "queued", _waits_here, waiting_here, "jobs.json",
             "the process of this machine that starts it has not come to it"),
    StateRow("waits", "queued", lambda run: run.is_waiting, _waiting, slurm_source,
             "its job waits, also again after a requeue, and no process of the run is alive"),
    StateRow("begins", "running",
             lambda run: run.evidence.is_here and run.evidence.state not in ("running", "done"),
             lambda run: f"attempt {(run.evidence.attempt or 0) + 1} begins on this host", "run.lock",
             "its process is alive, and has not written its status yet"),
    StateRow("suspended", "running",
             lambda run: run.job_word == "SUSPENDED" and (run.is_running or run.is_job_unheard),
             lambda run: f"Slurm has suspended its job. To resume it: scontrol resume {run.evidence.job}",
             slurm_source, "Slurm has suspended its job"),
    StateRow("silent", "stalled",
             lambda run: run.is_running and (run.evidence.silent_s or 0.0) > STALLED_AFTER_S,
             _silent, "status.json",
             "it says that it runs, no record says that it ended, no heartbeat for 5 minutes"),
    StateRow("runs", "running", lambda run: run.is_running, _running, "status.json",
             "it says that it runs, and no record says that it ended"),
    StateRow("requeues", "queued", _is_requeueing,
             lambda run: "its job is being put back into the queue", slurm_source,
             "it stopped, and its job is being put back into the queue"),
    StateRow("stops", "running", _is_stopping, _stopping, slurm_source,
             "it stopped a moment ago, as asked, and its job has not decided what follows"),
    StateRow("waits_in_job", "queued", _waits_in_job,
             lambda run: "it waits for its turn in its job, which runs", slurm_source,
             "it shares a job that runs, and has not had its turn"),
    StateRow("job_silent", "stalled", lambda run: run.is_job_unheard and _since_s(run) > STALLED_AFTER_S,
             _job_unheard, slurm_source,
             "its job has run for 5 minutes, and it has written nothing in this start"),
    StateRow("job_begins", "running", lambda run: run.is_job_unheard, _job_unheard, slurm_source,
             "its job runs, and it has written nothing yet in this start"),
)  # fmt: skip
