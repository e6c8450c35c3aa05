"""One state and its reason out of all that is known of a run: the rules of `slurm.states.PRECEDENCE`.

A rule looks at a `Case` and gives a `Verdict`, or None where it does not apply. None of them raises, whatever
the files and the answers hold; what is costly (logs, `memory explain`) is asked for by the few that need it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from experiment_utils.quantities import format_duration
from slurm.records.start_records import ENDED, PREEMPTED
from slurm.states import FROM_VERDICT, PRECEDENCE
from slurm.status.case import Case
from slurm.status.last_words import last_line
from slurm.status.phrases import (
    and_refused,
    and_unanswered,
    ended_before,
    how_slurm_ended,
    its_nodes,
    killed_in_words,
    no_output,
    suspended,
    user_name,
    with_host,
)
from slurm.status.signs import (
    began_again,
    begins_here,
    failed_before,
    is_over_in_its_job,
    is_over_in_its_step,
    is_stopping,
    is_waiting,
    its_turn_s,
    left_the_queue,
    lost_its_node,
    own_rows,
    ran_in_its_job,
    reason_word,
    still_beats,
    waits_again_here,
    waits_for_room,
    was_asked_of,
    was_cancelled_before_its_start,
    was_ended_by_us,
)
from slurm.status.slurm_answers import WITHOUT_END_S
from slurm.status.unstarted import never_ran, unheard, unreadable
from slurm.status.verdict import Verdict, error_of, host_of_launcher, one_line
from slurm.status.waiting_reasons import reason_of
from training.attempt.run_files import STALLED_AFTER_S

_GIVEN_UP = ("failed", "timeout", "preempted", "cancelled", "node_failed")
_LATE_S = 20.0
"""A run's supervisor is heard of more often, also in a long step."""
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


def cannot_read(case: Case) -> Verdict | None:
    why = case.known.unreadable
    return None if why is None else Verdict("unreadable", why, "-")


def said_done(case: Case) -> Verdict | None:
    if case.known.state != "done":
        return None
    killed = "a process of it was killed for memory on the way: python -m memory explain tells"
    return Verdict("done", killed if case.known.noted_oom else None, "status.json")


def depends(case: Case) -> Verdict | None:
    if not is_waiting(case) or "DependencyNeverSatisfied" not in reason_word(case):
        return None
    return Verdict("blocked", reason_of("DependencyNeverSatisfied").words, "squeue")


def waits(case: Case) -> Verdict | None:
    if waits_again_here(case) and not begins_here(case):
        before = ended_before(case)
        told = f"it waits for its turn on {host_of_launcher(case)}"
        return Verdict("queued", f"{told}; {before}" if before else told, "jobs.json")
    if waits_for_room(case):
        before = ended_before(case)
        told = (
            "it waits for room in the queue (MaxSubmitJobs, MaxJobCount), as does the command that will "
            "submit it"
        )
        return Verdict("queued", f"{told}; {before}" if before else told, "submission.json")
    if not is_waiting(case):
        return None
    words = reason_of(reason_word(case)).words
    start = case.queue.start_s if case.queue else None
    is_expected = start is not None and 0 < start - case.now_s < WITHOUT_END_S
    if reason_word(case) == "BeginTime" and ran_in_its_job(case) and not is_expected:
        words += "; a requeued job waits about two minutes"
    if start is not None and is_expected:
        words += f"; Slurm expects it to start in {format_duration(start - case.now_s)}"
    before = ended_before(case)
    return Verdict(
        "queued", f"{words}; {before}" if before else words, "squeue" if case.queue else case.source
    )


def lives(case: Case) -> Verdict | None:
    known = case.known
    if known.is_here and known.state not in ("running", "done"):
        return Verdict("running", f"attempt {(known.attempt or 0) + 1} begins on this host", "run.lock")
    if begins_here(case):
        where = host_of_launcher(case)
        return Verdict("running", f"attempt {(known.attempt or 0) + 1} begins on {where}", "memory.ring")
    if known.state != "running" or known.is_gone:
        return None
    if case.has_ended and not known.is_here and not still_beats(case):
        return None
    if case.stands == "running" and not case.spoke_now and not still_beats(case):
        return None
    if is_over_in_its_step(case):
        return None
    if known.holder is None and case.stands != "running" and not known.sampled and not still_beats(case):
        return None  # it takes its lock before its first word, and leaves it when it ends
    if case.word == "SUSPENDED":
        return Verdict("running", suspended(case), "squeue" if case.queue else case.source)
    where = its_nodes(case)
    silent = known.silent_s
    if silent is not None and silent > STALLED_AFTER_S:
        stage = known.status.get("stage")
        told = f"no heartbeat for {format_duration(silent)} from {where}" + (
            f", in stage {stage}" if stage else ""
        )
        return Verdict("stalled", told + and_unanswered(case), "status.json")
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
    if case.stands == "running" and goes_back and not began_again(case):
        return Verdict("queued", "its job is being put back into the queue", source)
    if is_stopping(case):
        how = one_line(known.reason or "") or "it was asked to stop"
        return Verdict("running", f"{how}; its job is about to end, or to go back into the queue", source)
    if case.stands != "running" or (case.spoke_now and case.has_ended_badly and not goes_back):
        return None
    if is_over_in_its_job(case) or (is_over_in_its_step(case) and known.state == "running"):
        return None
    array = known.array
    if case.word == "SUSPENDED":
        return Verdict("running", suspended(case), source)
    began_s = case.start_s
    if array is not None and array.how != "each":
        began_s = its_turn_s(case)
        if began_s is None:
            how = "is ending" if case.word == "COMPLETING" else "runs"
            return Verdict("queued", f"it waits for its turn in its job, which {how}", source)
    where = (case.queue.nodes if case.queue else case.row.nodes if case.row else "") or "its node"
    since = case.now_s - began_s if began_s else 0.0
    if since > STALLED_AFTER_S:
        return Verdict(
            "stalled", f"its job runs on {where} since {format_duration(since)}, without a word of it", source
        )
    how = "is ending" if case.word == "COMPLETING" else "has begun"
    return Verdict("running", f"its job {how} on {where}; no word of it yet", source)


def killed_for_memory(case: Case) -> Verdict | None:
    if not case.known.noted_oom:
        return None
    return Verdict("oom", with_host(case, killed_in_words(case.known.outcome)), "outcome.json")


def row_out_of_memory(case: Case) -> Verdict | None:
    if case.queue is not None and case.queue.state == "OUT_OF_MEMORY":
        rows = [f"{case.queue.job} OUT_OF_MEMORY"]
    else:
        rows = [str(row) for row in own_rows(case) if row.was_out_of_memory]
    if not rows or not was_asked_of(case):
        return None
    told = case.explained
    sentence = told.sentence if told is not None and FROM_VERDICT.get(told.verdict) == "oom" else None
    return Verdict("oom", with_host(case, sentence or f"Slurm saw an OOM kill: {rows[-1]}"), case.source)


def gpu_out_of_memory(case: Case) -> Verdict | None:
    known = case.known
    if not case.has_ended_badly or not (
        known.reason and re.search("out of memory|OutOfMemory", known.reason)
    ):
        return None
    told = case.explained
    if told is None or told.verdict != "oom_gpu":
        return None
    return Verdict("oom", with_host(case, told.sentence), "memory explain")


def interrupted(case: Case) -> Verdict | None:
    known = case.known
    if known.state != "cancelled" or "Ctrl-C" not in (known.reason or ""):
        return None
    return Verdict("cancelled", known.reason, "status.json")


def ended_by_slurm(case: Case) -> Verdict | None:
    state = case.stands
    if was_cancelled_before_its_start(case):
        told, before = "it was cancelled before it had started", ended_before(case)
        return Verdict("cancelled", f"{told} again; {before}" if before else told, "submission.json")
    if left_the_queue(case):
        told = (
            "it was cancelled before it had started: Slurm's queue has it no more, and nothing has started it"
        )
        return Verdict("cancelled", told, "squeue")
    if state in (None, "done", "failed") and lost_its_node(case):  # what came after it left it alone
        return Verdict("node_failed", how_slurm_ended(case, "node_failed", case.own_row), case.source)
    if state not in ("timeout", "preempted", "cancelled", "node_failed") or not was_asked_of(case):
        return None
    if failed_before(case):
        return None
    return Verdict(state, how_slurm_ended(case, state), "squeue" if case.queue else case.source)


def ended_before_it(case: Case) -> Verdict | None:
    """A later start of its job, in which the run came to no word: what an earlier one said is of the past."""
    known, array = case.known, case.known.array
    if case.stands not in ("failed", "never_started") or case.row is None or case.spoke_now:
        return None
    if known.state is None or known.job is None or (array is not None and array.how != "each"):
        return None
    if known.own_restarts is None:  # clocks alone would have to tell which start the run was in
        return None
    again = "was started again and" if known.own_job == known.job else "was submitted again and"
    told = f"its job {known.job} {again} ended as {case.word} before the run said a word"
    begun = known.start.get("attempt")
    reason = known.start.get("reason") if isinstance(begun, int) and begun > (known.attempt or 0) else None
    words = no_output(case) or (reason if isinstance(reason, str) else last_line(known))
    return Verdict("failed", f"{told}: {one_line(words)}" if words else told, case.source)


def said_itself(case: Case) -> Verdict | None:
    known = case.known
    if known.state not in ("failed", "timeout", "cancelled", "oom"):
        return None
    if known.start.get("state") == PREEMPTED and known.start.get("attempt") == known.attempt:
        words = how_slurm_ended(case, "preempted")
        return Verdict("preempted", f"{words}; it stopped in time{and_refused(case)}", "starts.json")
    reason = known.reason or error_of(case)
    if known.state == "failed" and _OF_MEMORY.search(reason or ""):
        told = case.explained
        if told is not None and FROM_VERDICT.get(told.verdict) == "oom":
            return Verdict("oom", with_host(case, told.sentence), "memory explain")
    reason = one_line(reason or "") or "it did not say why: see its log.txt"
    state = known.state
    if state == "cancelled" and "SIGTERM" in reason and not was_ended_by_us(case):
        step = _step_was_cancelled(case)
        if step is not None:
            return step
        state = FROM_VERDICT["terminated"]
    words = _as_judged(case, reason) + and_refused(case) + _and_its_job_runs(case, state)
    return Verdict(state, words, "status.json")


def _and_its_job_runs(case: Case, state: str) -> str:
    """Of a run on several nodes: half a minute after its first rank has missed the others."""
    array = case.known.array
    is_wide = array is not None and array.how == "each" and str(array.options.get("nodes", 1)) != "1"
    if state != "failed" or case.stands != "running" or not is_wide:
        return ""
    return "; its job has not ended: where a node of it is lost, Slurm puts it back into the queue"


def was_killed(case: Case) -> Verdict | None:
    known = case.known
    if known.state != "running" and not known.outcome.get("signal"):
        return None
    told = case.explained
    state = FROM_VERDICT.get(told.verdict, "failed") if told is not None else "failed"
    if state == "done" or told is None:
        state = "failed"
    if told is not None and told.cause == "node_failure":  # its row: FAILED, where it came back at once
        return Verdict("node_failed", how_slurm_ended(case, "node_failed", case.row), "memory explain")
    last = None if known.outcome.get("signal") else error_of(case)
    # memory's word for it is that it was killed from outside, which it was: by whom, the step's row says
    step = _step_was_cancelled(case) if told is not None and told.cause == "scancel" else None
    if step is not None:
        return step
    if told is not None and told.verdict not in ("unknown", "healthy", "failed"):
        return Verdict(state, with_host(case, told.sentence), "memory explain")
    found = None if known.outcome else _step_was_cancelled(case) or _noted_by_job(case) or _with_its_job(case)
    if found is not None:
        return found
    stage = known.status.get("stage")
    silent = known.silent_s if known.unheard_s is None else known.unheard_s
    ago = f", last heard of {format_duration(silent)} ago" if silent is not None else ""
    how = f"killed by {known.outcome['signal']}" if known.outcome.get("signal") else last
    told_by = "outcome.json" if known.outcome else "status.json"
    code = known.outcome.get("exit_code")
    perhaps = ": killed, or the machine went down" if code is None else f" and with exit code {code}"
    without = f"its process ended without a word{f', in stage {stage}' if stage else ''}{ago}"
    return Verdict(state, with_host(case, how or without + perhaps), told_by)


RULES: dict[str, Callable[[Case], Verdict | None]] = {
    rule.__name__: rule
    for rule in (
        cannot_read, said_done, depends, waits, lives, starts, killed_for_memory, row_out_of_memory,
        gpu_out_of_memory, interrupted, ended_by_slurm, ended_before_it, said_itself, was_killed, unreadable,
        never_ran, unheard,
    )
}  # fmt: skip


def _as_judged(case: Case, reason: str) -> str:
    """The run's own reason, with what its job has added: why it did not go back into the queue."""
    start = case.known.start
    told = start.get("reason")
    if start.get("end") != ENDED or start.get("attempt") != case.known.attempt or not isinstance(told, str):
        return reason
    told = one_line(told)
    return told if told.startswith(reason) else reason


def _noted_by_job(case: Case) -> Verdict | None:
    """What the job wrote of the end of this attempt, where the supervisor could not: it was killed too."""
    start = case.known.start
    reason = start.get("reason")
    if start.get("end") != ENDED or start.get("attempt") != case.known.attempt or not isinstance(reason, str):
        return None
    return Verdict("failed", one_line(reason), "starts.json")


def _step_was_cancelled(case: Case) -> Verdict | None:
    """By scancel JOB.STEP: the job's own row says FAILED, or COMPLETED where its script went on. Without a
    name it was srun that ended the step, since a process of it had died (--kill-on-bad-exit).
    """
    cancelled = (row for row in own_rows(case) if row.step is not None and row.state == "CANCELLED")
    step = next((row for row in cancelled if row.cancelled_by), None)
    is_over = is_over_in_its_step(case) or is_over_in_its_job(case)
    goes_on = case.stands in ("queued", "running") and not is_over
    if step is None or step.cancelled_by is None or case.row is None or goes_on:
        return None
    if case.explained is not None and case.explained.cause == "rss_polling":
        return None  # slurmd's poll ends a step in the name of root
    at = case.known.status.get("step")
    told = f"its step {step.id} was cancelled by {user_name(step.cancelled_by)}"
    return Verdict("cancelled", told + (f", at step {at:,}" if isinstance(at, int) else ""), case.source)


def _with_its_job(case: Case) -> Verdict | None:
    """Its process ended with the small one beside it, which nobody but Slurm saw end."""
    known = case.known
    if case.row is None or case.stands in ("queued", "running") or known.own_job not in (None, known.job):
        return None
    is_shared = known.array is not None and known.array.how == "workers"
    rows = case.start.steps if is_shared and case.start else own_rows(case)
    if not any(row.step not in (None, "batch", "extern") and row.exit_signal == 9 for row in rows):
        return None
    return Verdict("failed", with_host(case, "its process was killed by SIGKILL"), case.source)
