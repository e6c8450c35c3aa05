"""One state and its reason out of all that is known of a run: the rules of `slurm.states.PRECEDENCE`.

A rule looks at a `Case` and gives a `Verdict`, or None where it does not apply. None of them raises, whatever
the files and the answers hold; what is costly (logs, `memory explain`) is asked for by the few that need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from conf.quantities import format_duration
from experiment_utils import STALLED_AFTER_S
from memory import format_bytes
from memory.explain import Victim
from memory.explain.telling import place
from memory.sacct import Row
from slurm.in_job.starts import ENDED, PREEMPTED
from slurm.states import FROM_SLURM, FROM_VERDICT, PRECEDENCE
from slurm.truth.answers import WITHOUT_END_S, moment
from slurm.truth.case import CLOCKS_APART_S, Case
from slurm.truth.reasons import reason_of
from slurm.truth.unstarted import never_ran, unheard, unreadable
from slurm.truth.verdict import Verdict, error_of, host_of_launcher, one_line

_BEFORE_THE_JOB_S = 180.0
"""A run that had failed so long before its job was ended, longer than KillWait and any grace time, failed."""
_GIVEN_UP = ("failed", "timeout", "preempted", "cancelled", "node_failed")
_LATE_S = 20.0
"""A run's supervisor is heard of more often, also in a long step."""
_BEGINS_S = 15.0
"""A supervisor looks at a run that begins more often."""
_JUDGED_S = 60.0
"""After so long the job of a run that was stopped has asked for another start, or never will."""
_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|MemoryError|DataLoader worker|[Kk]illed|[Bb]us error|SIGKILL"
)


def judge(case: Case) -> Verdict:
    """The first rule that applies."""
    for step in PRECEDENCE:
        found: Verdict | None = RULES[step.rule](case)
        if found is not None:
            given_up = case.known.given_up if found.state in _GIVEN_UP else None
            return Verdict(found.state, given_up or found.reason, found.source, step.rule)
    raise AssertionError("the last rule always applies")


def said_done(case: Case) -> Verdict | None:
    if case.known.state != "done":
        return None
    killed = "a process of it was killed for memory on the way: python -m memory explain tells"
    return Verdict("done", killed if case.known.noted_oom else None, "status.json")


def depends(case: Case) -> Verdict | None:
    if not _waits(case) or "DependencyNeverSatisfied" not in _reason_word(case):
        return None
    return Verdict("blocked", reason_of("DependencyNeverSatisfied").words, "squeue")


def waits(case: Case) -> Verdict | None:
    if _waits_again_here(case) and not _begins_here(case):
        before = _before(case)
        told = f"it waits for its turn on {host_of_launcher(case)}"
        return Verdict("queued", f"{told}; {before}" if before else told, "jobs.json")
    if not _waits(case):
        return None
    words = reason_of(_reason_word(case)).words
    if _reason_word(case) == "BeginTime" and _ran_in_its_job(case):
        words += "; a requeued job waits about two minutes"
    start = case.queue.start_s if case.queue else None
    if start and 0 < start - case.now_s < WITHOUT_END_S:
        words += f"; Slurm expects it to start in {format_duration(start - case.now_s)}"
    before = _before(case)
    return Verdict(
        "queued", f"{words}; {before}" if before else words, "squeue" if case.queue else case.source
    )


def lives(case: Case) -> Verdict | None:
    known = case.known
    if known.is_here and known.state not in ("running", "done"):
        return Verdict("running", f"attempt {(known.attempt or 0) + 1} begins on this host", "run.lock")
    if _begins_here(case):
        where = host_of_launcher(case)
        return Verdict("running", f"attempt {(known.attempt or 0) + 1} begins on {where}", "memory.ring")
    if known.state != "running" or known.is_gone:
        return None
    if case.has_ended and not known.is_here and not _still_beats(case):
        return None
    if case.stands == "running" and not case.spoke_now and not _still_beats(case):
        return None
    if known.holder is None and case.stands != "running" and not known.sampled and not _still_beats(case):
        return None  # it takes its lock before its first word, and leaves it when it ends
    where = str(known.status.get("host") or (known.holder.host if known.holder else "")) or "its node"
    silent = known.silent_s
    if silent is not None and silent > STALLED_AFTER_S:
        stage = known.status.get("stage")
        told = f"no heartbeat for {format_duration(silent)} from {where}" + (
            f", in stage {stage}" if stage else ""
        )
        return Verdict("stalled", told + _unanswered(case), "status.json")
    unheard = known.unheard_s if known.unheard_s is not None else silent
    if case.has_ended and case.word:
        heard_s = f"{max(1.0, unheard or 0.0):.0f} s"
        return Verdict(
            "running", f"on {where}, heard of {heard_s} ago; its job ended as {case.word}", "status.json"
        )
    heard = f", last heard of {format_duration(unheard)} ago" if unheard and unheard > _LATE_S else ""
    return Verdict("running", f"on {where}{heard}", "status.json")


def starts(case: Case) -> Verdict | None:
    known = case.known
    source = "squeue" if case.queue else case.source
    goes_back = known.start.get("end") == "requeued" and not known.noted_oom
    if case.stands == "running" and goes_back and not _began_again(case):
        return Verdict("queued", "its job is being put back into the queue", source)
    if _is_stopping(case):
        how = one_line(known.reason or "") or "it was asked to stop"
        return Verdict("running", f"{how}; its job is about to end, or to go back into the queue", source)
    if case.stands != "running" or (case.spoke_now and case.has_ended_badly and not goes_back):
        return None
    array = known.array
    if case.word == "SUSPENDED":
        return Verdict("running", "its job is suspended: it goes on when Slurm lets it", source)
    began_s = case.start_s
    if array is not None and array.how != "each":
        began_s = _its_turn_s(case)
        if began_s is None:
            return Verdict("queued", "it waits for its turn in its job, which runs", source)
    where = (case.queue.nodes if case.queue else case.row.nodes if case.row else "") or "its node"
    since = case.now_s - began_s if began_s else 0.0
    if since > STALLED_AFTER_S:
        return Verdict(
            "stalled", f"its job runs on {where} since {format_duration(since)}, without a word of it", source
        )
    return Verdict("running", f"its job has begun on {where}; no word of it yet", source)


def killed_for_memory(case: Case) -> Verdict | None:
    if not case.known.noted_oom:
        return None
    return Verdict("oom", _on(case, killed_in_words(case.known.outcome)), "outcome.json")


def row_out_of_memory(case: Case) -> Verdict | None:
    if case.queue is not None and case.queue.state == "OUT_OF_MEMORY":
        rows = [f"{case.queue.job} OUT_OF_MEMORY"]
    else:
        rows = [str(row) for row in _own_rows(case) if row.was_out_of_memory]
    if not rows or not _was_asked_of(case):
        return None
    told = case.explained
    sentence = told.sentence if told is not None and FROM_VERDICT.get(told.verdict) == "oom" else None
    return Verdict("oom", _on(case, sentence or f"Slurm saw an OOM kill: {rows[-1]}"), case.source)


def gpu_out_of_memory(case: Case) -> Verdict | None:
    known = case.known
    if not case.has_ended_badly or not (
        known.reason and re.search("out of memory|OutOfMemory", known.reason)
    ):
        return None
    told = case.explained
    if told is None or told.verdict != "oom_gpu":
        return None
    return Verdict("oom", _on(case, told.sentence), "memory explain")


def interrupted(case: Case) -> Verdict | None:
    known = case.known
    if known.state != "cancelled" or "Ctrl-C" not in (known.reason or ""):
        return None
    return Verdict("cancelled", known.reason, "status.json")


def ended_by_slurm(case: Case) -> Verdict | None:
    state = case.stands
    array = case.known.array
    if case.known.state is None and array is not None and getattr(array, "cancelled_s", None) is not None:
        return Verdict("cancelled", "it was cancelled before it had started", "submission.json")
    if state in (None, "done", "failed") and _lost_its_node(case):  # what came after it left it alone
        return Verdict("node_failed", _how_slurm_ended(case, "node_failed", case.own_row), case.source)
    if state not in ("timeout", "preempted", "cancelled", "node_failed") or not _was_asked_of(case):
        return None
    if _failed_before(case):
        return None
    return Verdict(state, _how_slurm_ended(case, state), "squeue" if case.queue else case.source)


def said_itself(case: Case) -> Verdict | None:
    known = case.known
    if known.state not in ("failed", "timeout", "cancelled", "oom"):
        return None
    if known.start.get("state") == PREEMPTED and known.start.get("attempt") == known.attempt:
        words = _how_slurm_ended(case, "preempted")
        return Verdict("preempted", f"{words}; it stopped in time{_refused(case)}", "starts.json")
    reason = known.reason or error_of(case)
    if known.state == "failed" and _OF_MEMORY.search(reason or ""):
        told = case.explained
        if told is not None and FROM_VERDICT.get(told.verdict) == "oom":
            return Verdict("oom", _on(case, told.sentence), "memory explain")
    reason = one_line(reason or "") or "it did not say why: see its log.txt"
    return Verdict(known.state, reason + _refused(case), "status.json")


def was_killed(case: Case) -> Verdict | None:
    known = case.known
    if known.state != "running" and not known.outcome.get("signal"):
        return None
    told = case.explained
    state = FROM_VERDICT.get(told.verdict, "failed") if told is not None else "failed"
    if state == "done" or told is None:
        state = "failed"
    last = None if known.outcome.get("signal") else error_of(case)
    if told is not None and told.verdict not in ("unknown", "healthy", "failed"):
        return Verdict(state, _on(case, told.sentence), "memory explain")
    found = None if known.outcome else _noted_by_job(case) or _step_was_cancelled(case)
    if found is not None:
        return found
    stage = known.status.get("stage")
    silent = known.silent_s if known.unheard_s is None else known.unheard_s
    ago = f", last heard of {format_duration(silent)} ago" if silent is not None else ""
    how = f"killed by {known.outcome['signal']}" if known.outcome.get("signal") else last
    told_by = "outcome.json" if known.outcome else "status.json"
    without = f"its process ended without a word{f', in stage {stage}' if stage else ''}{ago}"
    return Verdict(state, _on(case, how or f"{without}: killed, or the machine went down"), told_by)


RULES: dict[str, Callable[[Case], Verdict | None]] = {
    rule.__name__: rule
    for rule in (
        said_done, depends, waits, lives, starts, killed_for_memory, row_out_of_memory, gpu_out_of_memory,
        interrupted, ended_by_slurm, said_itself, was_killed, unreadable, never_ran, unheard,
    )
}  # fmt: skip


def _waits(case: Case) -> bool:
    return case.stands == "queued" and not case.known.is_here and not _still_beats(case)


def _waits_again_here(case: Case) -> bool:
    """In the background of a machine: what it has said is of before its newest submission."""
    known = case.known
    if not case.launcher_lives or known.is_here or known.submission is None:
        return False
    beat = known.heartbeat_s
    return beat is not None and beat < known.submission.created_s


def _begins_here(case: Case) -> bool:
    """Of a run of a machine: its supervisor looks at it, and it has not come to its first word."""
    known = case.known
    if known.looked_s is None or known.submission is None or case.launcher_lives in (None, False):
        return False
    is_new = known.looked_s >= known.submission.created_s and case.now_s - known.looked_s < _BEGINS_S
    return is_new and ((known.state is None and not known.outcome) or _waits_again_here(case))


def _is_stopping(case: Case) -> bool:
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


def _ran_in_its_job(case: Case) -> bool:
    """In a start of it before this one."""
    known = case.known
    own = known.own_job is not None and known.own_job == known.job and known.own_restarts is not None
    return own or len(case.starts) > 1 or bool(case.row and case.row.restarts)


def _reason_word(case: Case) -> str:
    return case.queue.reason if case.queue is not None else case.row.reason if case.row is not None else ""


def _still_beats(case: Case) -> bool:
    """The run was heard of just now, whatever its job's row says: a job can run twice (a lost slurmd)."""
    known = case.known
    if known.state != "running" or known.is_gone or known.silent_s is None:
        return False
    return max(known.silent_s, known.unheard_s or 0.0) < 15.0  # what a dead node left stands still


def _was_asked_of(case: Case) -> bool:
    """Whether the job's end is this run's: it had its turn, or has its job to itself."""
    array = case.known.array
    return array is None or array.how == "each" or case.known.state is not None


def _its_turn_s(case: Case) -> float | None:
    """Of a job that runs share: when it began to start this one, if it has, and this has not ended since.

    Side by side all begin with their job, workers take one run after the other.
    """
    begun, array = case.known.start, case.known.array
    side_by_side_s = case.start_s if array is not None and array.how in ("pack", "ensemble") else None
    started_s = begun.get("started_s")
    if begun.get("end") is not None or not isinstance(started_s, int | float):
        return side_by_side_s
    is_of_this = case.start_s is None or started_s >= case.start_s - CLOCKS_APART_S
    return float(started_s) if is_of_this else side_by_side_s


def _began_again(case: Case) -> bool:
    """Of a job that was put back into the queue: whether it has been started since."""
    restarts = (case.row.restarts if case.row else None) or len(case.starts) - 1
    if case.known.own_restarts is not None and restarts > case.known.own_restarts:
        return True
    ended_s = case.known.start.get("ended_s")
    return isinstance(ended_s, int | float) and case.start_s is not None and case.start_s > ended_s


def _own_rows(case: Case) -> list[Row]:
    """Of the job's last start; of a job that runs share, those of the run's own step."""
    if case.start is None:
        return []
    array = case.known.array
    if array is None or array.how in ("each", "ensemble"):
        return list(case.start.rows)
    told = case.known.outcome.get("environment")
    step = str(told.get("SLURM_STEP_ID", "")) if isinstance(told, dict) else ""
    return [row for row in case.start.steps if row.step == step]


def _failed_before(case: Case) -> bool:
    """It had ended by itself well before its job was ended for another reason: its job went on without it."""
    known = case.known
    if known.state not in ("failed", "timeout", "cancelled") or not case.spoke_now:
        return False
    ended = moment(case.row.end) if case.row is not None else None
    beat = known.heartbeat_s
    return ended is not None and beat is not None and ended - beat > _BEFORE_THE_JOB_S


def _lost_its_node(case: Case) -> bool:
    """Slurm took the start that it was in for lost: whatever ended it after that was no scancel of it."""
    row, state = case.own_row, case.known.state
    was_ended = state in ("cancelled", "running") and "Ctrl-C" not in (case.known.reason or "")
    return was_ended and row is not None and FROM_SLURM.get(row.state) == "node_failed"


def _how_slurm_ended(case: Case, state: str, row: Row | None = None) -> str:
    known, row = case.known, row or case.row
    limit = (row.timelimit_s if row else None) or (case.queue.timelimit_s if case.queue else None)
    by = row.cancelled_by if row else None
    words = {
        "timeout": f"its time limit{f' of {format_duration(limit)}' if limit else ''} was reached",
        "preempted": "a job of higher priority took its place",
        "cancelled": f"its job was cancelled{f' by {user_name(by)}' if by else ''}",
        "node_failed": f"its node {row.nodes} failed" if row and row.nodes else "its node failed",
    }[state]
    step = known.status.get("step")
    if known.state is None and not known.damaged:
        return f"{words} before it had started"
    return f"{words}, at step {step:,}" if isinstance(step, int) else words


def killed_in_words(outcome: dict[str, Any]) -> str:
    """Who was killed, and what was held of which limit where, as the supervisor wrote it."""
    victim = outcome.get("victim")
    victim = victim if isinstance(victim, dict) else {"is_main": True, "pid": outcome.get("pid")}
    pid, name = victim.get("pid"), victim.get("name")
    who = Victim(
        victim.get("is_main") is True,
        pid if isinstance(pid, int) else None,
        name if isinstance(name, str) else "",
    )
    held, limit, at = (outcome.get(key) for key in ("peak_unreclaimable_bytes", "limit_bytes", "limit_at"))
    told = f"the kernel killed {who} for memory"
    if isinstance(held, int) and isinstance(limit, int):
        told += f": {format_bytes(held)} of {format_bytes(limit)} held"
    return f"{told}, the limit of {place(at)}" if isinstance(at, str) and at and at != "host" else told


def _on(case: Case, sentence: str) -> str:
    """The sentence, without what is only perhaps so; with the host where that is known."""
    known = case.known
    host = known.outcome.get("host") or known.status.get("host") or (case.row.nodes if case.row else "")
    first = one_line(sentence).partition(". Perhaps:")[0].rstrip(".") or "it was killed"
    return f"{first} (on {host})" if isinstance(host, str) and host and host not in first else first


def _before(case: Case) -> str | None:
    """How the attempt before it ended."""
    known = case.known
    if known.noted_oom:
        return f"attempt {known.attempt or 1} was killed for memory"
    if _was_preempted(case):
        return f"attempt {known.attempt or 1} made room for another job"
    if _lost_its_node(case) and case.own_row is not None:
        return f"attempt {known.attempt or 1} was cut off: its node {case.own_row.nodes} failed"
    if known.state in ("failed", "timeout", "cancelled", "oom"):
        return f"attempt {known.attempt or 1} ended as {known.state}"
    return f"attempt {known.attempt or 1} was cut off" if known.state == "running" else None


def _was_preempted(case: Case) -> bool:
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


def _noted_by_job(case: Case) -> Verdict | None:
    """What the job wrote of the end of this attempt, where the supervisor could not: it was killed too."""
    start = case.known.start
    reason = start.get("reason")
    if start.get("end") != ENDED or start.get("attempt") != case.known.attempt or not isinstance(reason, str):
        return None
    return Verdict("failed", one_line(reason), "starts.json")


def _step_was_cancelled(case: Case) -> Verdict | None:
    """By scancel JOB.STEP: the job's own row says FAILED, or COMPLETED where its script went on."""
    step = next((row for row in _own_rows(case) if row.step is not None and row.state == "CANCELLED"), None)
    if step is None or case.row is None or case.stands in ("queued", "running"):
        return None
    at = case.known.status.get("step")
    by = f" by {user_name(step.cancelled_by)}" if step.cancelled_by else ""
    told = f"its step {step.id} was cancelled{by}"
    return Verdict("cancelled", told + (f", at step {at:,}" if isinstance(at, int) else ""), case.source)


def _refused(case: Case) -> str:
    array = case.known.array
    return (
        f"; when it was submitted again, sbatch refused it: {one_line(array.error, 3)}"
        if array and array.error
        else ""
    )


def _unanswered(case: Case) -> str:
    return (
        "; Slurm does not answer" if case.known.job and not case.in_queue and not case.in_accounting else ""
    )


def user_name(number: str) -> str:
    """Of a user's number, as sacct tells it; itself where it has none here."""
    import pwd

    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, ValueError, OverflowError):
        return number
