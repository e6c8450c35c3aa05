"""Rows of the table of states for a run that has begun and ended, not as done."""

from __future__ import annotations

import re
from collections.abc import Callable

from experiment_utils.json_values import integer, mapping, text
from experiment_utils.quantities import format_duration
from memory import format_bytes
from memory.accounting.sacct import Row, moment
from memory.explain import Victim
from memory.explain.verdict.evidence_lines import place
from slurm.records.stamps import is_before
from slurm.records.start_records import ENDED, PREEMPTED
from slurm.records.submitter_liveness import NO_ROOM
from slurm.states import FROM_SLURM, FROM_VERDICT
from slurm.status.last_words import last_line
from slurm.status.run_history import RunHistory
from slurm.status.state_row import StateRow, and_earlier, node_failed, one_line, slurm_source, with_host

_SAID = ("failed", "timeout", "cancelled", "oom")
"""States in which a run itself says that it has ended, and why."""
_MEMORY_ERROR = re.compile(
    r"out of memory|OutOfMemory|MemoryError|DataLoader worker|[Kk]illed|[Bb]us error|SIGKILL"
)
_UNEXPLAINED = ("unknown", "healthy", "failed")
"""Verdicts of memory that say nothing of a process that was killed."""
_GRACE_S = 180.0
"""Longer than Slurm waits between the signal and the end of a job (KillWait, GraceTime)."""
_NO_OUTPUT_SIGNAL = 53
"""slurmd's exit signal for a job whose output it could not open."""


def _is_later_start_failed(run: RunHistory) -> bool:
    """A newer start ended before the run wrote anything: what an earlier one said is of the past."""
    known, last = run.evidence, run.last
    is_over = run.job_state in ("failed", "never_started") and (run.row is not None or bool(last.noted))
    is_alone = known.array is None or known.array.how == "each"
    is_silent = not last.heard and not (last.exited and known.noted_oom)
    return is_over and is_alone and is_silent and known.state is not None and known.stamp is not None


def _later_start_failed(run: RunHistory) -> str:
    known, noted = run.evidence, run.last.noted.get("reason")
    is_same = any(start.heard and start.job == run.last.job for start in run.starts)
    again = "started" if is_same else "submitted"
    said = no_output(run) or (noted if isinstance(noted, str) else last_line(known))
    ended = f"its job {known.job} was {again} again and ended as {run.job_word} before the run wrote anything"
    return f"{ended}: {one_line(said)}" if said else ended


def no_output(run: RunHistory) -> str | None:
    """For a job that ended before its first line, since its node does not see its folder; else None."""
    job, submission = run.last.accounted, run.evidence.submission
    if job is None or submission is None or all(row.exit_signal != _NO_OUTPUT_SIGNAL for row in job.rows):
        return None
    return (
        f"{job.row.nodes or 'its node'} could not write into {submission.folder}: does it see that folder, "
        "and is there room? runs_dir must lie where all nodes see it"
    )


def _killed_for_memory(run: RunHistory) -> str:
    """Which process the kernel killed, and how much was held of which limit, as the supervisor wrote it."""
    outcome = run.evidence.outcome
    victim = mapping(outcome.get("victim")) or {"is_main": True, "pid": outcome.get("pid")}
    process = Victim(victim.get("is_main") is True, integer(victim.get("pid")), text(victim.get("name")))
    held, limit = (integer(outcome.get(key)) for key in ("peak_unreclaimable_bytes", "limit_bytes"))
    killed, limit_at = f"the kernel killed {process} for memory", text(outcome.get("limit_at"))
    if held is not None and limit is not None:
        killed += f": {format_bytes(held)} of {format_bytes(limit)} when last seen"
    if limit_at not in ("", "host"):
        killed += f", the limit of {place(limit_at)}"
    return with_host(run, killed)


def _oom_rows(run: RunHistory) -> list[str]:
    queued = run.last.queued
    if not run.had_turn:
        return []
    if queued is not None and queued.state == "OUT_OF_MEMORY":
        return [f"{queued.job} OUT_OF_MEMORY"]
    return [str(row) for row in run.step_rows if row.was_out_of_memory]


def _row_out_of_memory(run: RunHistory) -> str:
    return with_host(run, _explained_oom(run) or f"Slurm saw an OOM kill: {_oom_rows(run)[-1]}")


def _explained_oom(run: RunHistory) -> str | None:
    """Memory's sentence, if its verdict is that memory ran out."""
    found = run.explained
    return found.sentence if found is not None and FROM_VERDICT.get(found.verdict) == "oom" else None


def _is_out_of_memory(run: RunHistory) -> bool:
    known = run.evidence
    is_error = known.state == "failed" and _MEMORY_ERROR.search(known.reason or run.last_error or "")
    return known.state == "oom" or (bool(is_error) and _explained_oom(run) is not None)


def _out_of_memory(run: RunHistory) -> str:
    return _said(run) if run.evidence.state == "oom" else with_host(run, _explained_oom(run) or "")


def _is_cancelled_waiting(run: RunHistory) -> bool:
    is_unheard = run.spoken is not None and not run.last.has_spoken and run.job_state in (None, "cancelled")
    is_cancelled = run.evidence.cancelled_s is not None and (run.evidence.state is None or is_unheard)
    is_waiting_in_job = run.spoken is None and not run.evidence.note and not run.had_turn
    return is_cancelled or _has_left_queue(run) or (is_waiting_in_job and run.job_state == "cancelled")


def _has_left_queue(run: RunHistory) -> bool:
    """Slurm writes no row for a task of an array that is cancelled while it waits."""
    known, row = run.evidence, run.row
    is_task = known.array is not None and known.array.how == "each" and known.array.is_array
    if not is_task or known.state is not None or not run.in_queue or run.last.queued is not None:
        return False
    if row is None:
        return run.in_accounting and run.knows_array
    return row.job != known.job and FROM_SLURM.get(row.state) == "queued"


def _cancelled_waiting(run: RunHistory) -> str:
    cancelled = "it was cancelled before it had started"
    return cancelled if run.evidence.state is None else and_earlier(run, f"{cancelled} again")


def _cancelled_source(run: RunHistory) -> str:
    if run.evidence.cancelled_s is not None:
        return "submission.json"
    return "squeue" if run.had_turn else slurm_source(run)


def _has_lost_node(run: RunHistory) -> bool:
    """A later start that finds a copy of the run alive leaves it alone, and notes nothing."""
    is_left_alone = run.last is run.spoken or not run.last.noted
    return run.job_state in (None, "done", "failed") and run.lost_node is not None and is_left_alone


def _ended_as(state: str) -> Callable[[RunHistory], bool]:
    """The job ended so, and the run with it: it had not ended before, and had had its turn."""

    def holds(run: RunHistory) -> bool:
        if run.job_state != state or not run.had_turn or run.has_left_job:
            return False
        ended_s = moment(run.row.end) if run.row is not None else None
        was_asked = run.evidence.attempt_note.get("signal") is not None
        has_ended = run.evidence.state in _SAID and run.last.has_spoken and not was_asked
        return not (has_ended and is_before(run.evidence.heartbeat_s, ended_s, _GRACE_S))

    return holds


def _timed_out(run: RunHistory) -> str:
    known = [one.timelimit_s for one in (run.row, run.last.queued) if one is not None and one.timelimit_s]
    return _at_step(run, f"its time limit{f' of {format_duration(known[0])}' if known else ''} was reached")


def _preempted(run: RunHistory) -> str:
    return _at_step(run, "a job of higher priority took its place")


def _cancelled(run: RunHistory) -> str:
    by = run.row.cancelled_by if run.row else None
    return _at_step(run, f"its job was cancelled{f' by {_user_name(by)}' if by else ''}")


def _node_failed(run: RunHistory) -> str:
    return _at_step(run, node_failed(run.lost_node or run.row))


def _at_step(run: RunHistory, sentence: str) -> str:
    known = run.evidence
    step = known.status.get("step")
    if known.state is None and not known.damaged:
        return f"{sentence} before it had started"
    return f"{sentence}, at step {step:,}" if isinstance(step, int) else sentence


def _said(run: RunHistory) -> str:
    """Why it ended, by the run itself, with what its job and a later submission added."""
    known, note = run.evidence, run.evidence.attempt_note
    reason = one_line(known.reason or run.last_error or "") or "it did not say why: see its log.txt"
    noted = one_line(str(note.get("reason") or ""))
    if note.get("end") == ENDED and noted.startswith(reason):
        reason = noted  # with why its job did not go back into the queue
    return reason + _and_refused(run)


def _and_refused(run: RunHistory) -> str:
    error = run.evidence.array.error if run.evidence.array is not None else None
    if not error:
        return ""
    refused = one_line(error, 3) if error == NO_ROOM else f"sbatch refused it: {one_line(error, 3)}"
    return f"; when it was submitted again, {refused}"


def _is_terminated(run: RunHistory) -> bool:
    reason = run.evidence.reason or run.last_error or ""
    return run.evidence.state == "cancelled" and "SIGTERM" in reason and not run.is_cancelled_by_us


def _is_killed(run: RunHistory) -> bool:
    """Its process ended, and the run could not say why."""
    known = run.evidence
    return known.state not in _SAID and (known.state == "running" or bool(known.outcome.get("signal")))


def _is_killed_as(state: str) -> Callable[[RunHistory], bool]:
    """It was killed, and memory's verdict is a cause of this state."""

    def holds(run: RunHistory) -> bool:
        found = run.explained if _is_killed(run) else None
        if found is None or found.verdict in _UNEXPLAINED:
            return False
        if found.cause == "scancel" and _noted_by_job(run):  # its job was cancelled later
            return False
        by_cause = "node_failed" if found.cause == "node_failure" else None
        return (by_cause or FROM_VERDICT.get(found.verdict)) == state

    return holds


def _cancelled_step(run: RunHistory) -> Row | None:
    """The run's step, if a user cancelled it (scancel JOB.STEP): the job's row says FAILED or COMPLETED.

    A cancelled step without a user was ended by srun, since a process of it had died (--kill-on-bad-exit).
    """
    steps = (row for row in run.step_rows if row.step is not None and row.cancelled_by)
    step = next((row for row in steps if row.state == "CANCELLED"), None)
    if step is None or _is_terminated(run):
        return step
    found = run.explained if _is_killed(run) else None
    return step if found is not None and (found.cause == "scancel" or found.verdict in _UNEXPLAINED) else None


def _step_cancelled(run: RunHistory) -> str:
    step = _cancelled_step(run)
    return _at_step(
        run, f"its step {step.id} was cancelled by {_user_name(step.cancelled_by or '')}" if step else ""
    )


def _explained(run: RunHistory) -> str:
    return with_host(run, run.explained.sentence if run.explained is not None else "")


def _noted_by_job(run: RunHistory) -> str:
    """The end of the attempt as its job noted it, if the supervisor was killed too; else empty."""
    known, note = run.evidence, run.evidence.attempt_note
    is_noted = not known.outcome and note.get("end") == ENDED
    return one_line(text(note.get("reason"))) if is_noted else ""


def _killed(run: RunHistory) -> str:
    known = run.evidence
    if noted := _noted_by_job(run):
        return noted
    if known.outcome.get("signal"):
        return with_host(run, f"killed by {known.outcome['signal']}")
    if any(row.step not in (None, "batch", "extern") and row.exit_signal == 9 for row in run.step_rows):
        return with_host(run, "its process was killed by SIGKILL")
    if run.last_error:
        return with_host(run, run.last_error)
    stage, code = known.status.get("stage"), known.outcome.get("exit_code")
    silent_s = known.silent_s if known.unheard_s is None else known.unheard_s
    ago = f", last heard of {format_duration(silent_s)} ago" if silent_s is not None else ""
    how = ": killed, or the machine went down" if code is None else f" and with exit code {code}"
    return with_host(
        run, f"its process ended without writing why{f', in stage {stage}' if stage else ''}{ago}{how}"
    )


def _killed_source(run: RunHistory) -> str:
    return "outcome.json" if run.evidence.outcome else "starts.json" if _noted_by_job(run) else "status.json"


def _user_name(number: str) -> str:
    """Name of a user by its number, as sacct prints it; the number if it has no name here."""
    import pwd

    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError, OverflowError):
        return number


ENDED_ROWS = (
    StateRow("later_start_failed", "failed", _is_later_start_failed, _later_start_failed, slurm_source,
             "it was started or submitted again, and that job failed before the run wrote anything"),
    StateRow("killed_for_memory", "oom", lambda run: run.evidence.noted_oom,
             _killed_for_memory, "outcome.json",
             "the supervisor saw the kernel kill it, or a process of it, for memory"),
    StateRow("row_out_of_memory", "oom", lambda run: bool(_oom_rows(run)), _row_out_of_memory, "sacct",
             "a row of its job or of its step says OUT_OF_MEMORY, or signal 125"),
    StateRow("said_oom", "oom", _is_out_of_memory,
             _out_of_memory, lambda run: "status.json" if run.evidence.state == "oom" else "memory explain",
             "it says that it failed, and it or memory explain says that memory ran out"),
    StateRow("interrupted", "cancelled",
             lambda run: run.evidence.state == "cancelled" and "Ctrl-C" in (run.evidence.reason or ""),
             lambda run: one_line(run.evidence.reason or ""), "status.json",
             "Ctrl-C reached it"),
    StateRow("cancelled_waiting", "cancelled", _is_cancelled_waiting, _cancelled_waiting,
             _cancelled_source,
             "`slurm cancel` or scancel ended its newest submission before it had started"),
    StateRow("lost_node", "node_failed", _has_lost_node, _node_failed, "sacct",
             "the start that it was in lost its node, and no later start ended it"),
    StateRow("row_timeout", "timeout", _ended_as("timeout"), _timed_out, slurm_source,
             "its job ended as TIMEOUT or DEADLINE, and the run with it"),
    StateRow("row_preempted", "preempted", _ended_as("preempted"), _preempted, slurm_source,
             "its job ended as PREEMPTED, and the run with it"),
    StateRow("row_cancelled", "cancelled", _ended_as("cancelled"), _cancelled, slurm_source,
             "its job ended as CANCELLED or REVOKED, and the run with it"),
    StateRow("row_node_failed", "node_failed", _ended_as("node_failed"), _node_failed, slurm_source,
             "its job ended as NODE_FAIL or BOOT_FAIL, and the run with it"),
    StateRow("stopped_for_another", "preempted",
             lambda run: run.evidence.state in _SAID and run.evidence.attempt_note.get("state") == PREEMPTED,
             lambda run: f"{_preempted(run)}; it stopped in time{_and_refused(run)}", "starts.json",
             "it stopped in time for another job, and is not started again"),
    StateRow("step_cancelled", "cancelled", lambda run: _cancelled_step(run) is not None,
             _step_cancelled, "sacct",
             "it was killed or got SIGTERM, and a user had cancelled its step"),
    StateRow("terminated", "failed", _is_terminated, _said, "status.json",
             "it got SIGTERM, from neither Slurm nor `slurm cancel` nor its launcher"),
    StateRow("said_failed", "failed", lambda run: run.evidence.state == "failed", _said, "status.json",
             "it says that it failed"),
    StateRow("said_timeout", "timeout", lambda run: run.evidence.state == "timeout", _said, "status.json",
             "it says that it stopped ahead of its time limit"),
    StateRow("said_cancelled", "cancelled", lambda run: run.evidence.state == "cancelled",
             _said, "status.json",
             "it says that it was asked to stop"),
    StateRow("killed_oom", "oom", _is_killed_as("oom"), _explained, "memory explain",
             "it was killed, and memory explain says that memory ran out"),
    StateRow("killed_with_node", "node_failed", _is_killed_as("node_failed"), _node_failed, "memory explain",
             "it was killed, and srun wrote that a node of its step went away"),
    StateRow("killed_timeout", "timeout", _is_killed_as("timeout"), _explained, "memory explain",
             "it was killed, and memory explain says that its time was up"),
    StateRow("killed_explained", "failed", _is_killed_as("failed"), _explained, "memory explain",
             "it was killed, and memory explain says by what"),
    StateRow("killed", "failed", _is_killed, _killed, _killed_source,
             "its process ended, and nothing but perhaps a note of its job says why"),
)  # fmt: skip
