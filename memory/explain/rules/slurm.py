"""What Slurm says: in its log lines, in its rows of the job and of each step."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from experiment_utils.json_values import text
from experiment_utils.quantities import format_bytes
from memory.explain.advice import below_the_poll, cheapest_first, more_memory, raise_mem
from memory.explain.facts import Facts
from memory.explain.finding import CONFIDENCES, Advice, Finding
from memory.explain.own_step import (
    ended_before,
    is_another_step,
    own_row,
    own_step,
    rows_out_of_memory,
    rows_that_ended_it,
    started_what_was_killed,
)
from memory.explain.rules.sigkill import was_killed
from memory.explain.rules.time_limits import longer
from memory.explain.telling import all_of, before_the_end, counters_line, ended_line, peak_of_limit
from memory.explain.testimony import by_slurm
from memory.explain.victims import victim_of
from memory.explain.wordings import POLLED, SLURM_ENDS, SLURM_OOM
from memory.sacct import Job, Row, count_nodes
from memory.slurm_meaning import max_rss_meaning
from memory.slurm_words import requested_memory

_STATES = {
    "TIMEOUT": ("timeout", "none", "Its time limit was reached"),
    "DEADLINE": ("timeout", "none", "Its deadline was reached"),
    "PREEMPTED": ("killed_from_outside", "preemption", "A job of higher priority took its place"),
    "NODE_FAIL": ("killed_from_outside", "node_failure", "Its node failed"),
    "BOOT_FAIL": ("killed_from_outside", "node_failure", "Its node did not start"),
    "CANCELLED": ("killed_from_outside", "scancel", "It was cancelled"),
    "REVOKED": ("killed_from_outside", "scancel", "It was revoked"),
}
_STEP_IN_LOG = re.compile(r"oom[-_]kill event(?:\(s\)|s)? in (?:StepId=|step )\d+(?:_\d+)?\.(\w+)")
_ASKING = {1: "SIGHUP", 2: "SIGINT", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM"}
"""Signals that ask a program to stop, as `sbatch --signal=B:TERM@60` sends one, by their numbers."""
_ENDS = {
    "timeout": ("timeout", "none", "Its time limit was reached"),
    "preemption": ("killed_from_outside", "preemption", "A job of higher priority took its place"),
    "node_failure": ("killed_from_outside", "node_failure", "Its node failed"),
    "requeue": ("killed_from_outside", "requeue", "It was put back into the queue"),
    "scancel": ("killed_from_outside", "scancel", "It was cancelled"),
    "cancelled": (
        "killed_from_outside", "scancel", "It was cancelled, or preempted and ended within its grace time",
    ),
}  # fmt: skip


def out_of_memory(facts: Facts) -> Iterator[Finding]:
    """OUT_OF_MEMORY in the row of the job, or of a step of a job that went on."""
    job = facts.slurm.job if facts.slurm else None
    rows = rows_out_of_memory(facts, job) if job else []
    is_told = job is not None and any(row.was_out_of_memory for row in job.rows)
    said = next((found for pattern in SLURM_OOM if (found := by_slurm(facts, pattern))), None)
    hint_only = said is not None and "hit memory limit" in said.line and not rows
    if not rows and (said is None or hint_only):
        return
    if not rows and (is_told or _names_other_steps(facts)):
        return  # of steps beside the one that this run was
    swallowed = job is not None and job.row.state == "COMPLETED"
    asked = _asked(job)
    of_step = min((row.requested_bytes for row in rows if row.step and row.requested_bytes), default=None)
    is_of_step = of_step is not None and asked is not None and of_step < asked
    more = raise_mem(of_step if is_of_step else asked, is_of_step=is_of_step)
    if not (is_of_step and started_what_was_killed(facts)):  # whose limit is not the one that this run saw
        more = cheapest_first(facts) or more
    source = facts.slurm.source if facts.slurm else ""
    yield Finding(
        rule="slurm_out_of_memory",
        says="Slurm saw an OOM kill in "
        + (f"{', '.join(row.id for row in rows[:4])}" if rows else "a step of this job")
        + (", though the job counts as COMPLETED: the script went on after it" if swallowed else ""),
        confidence="certain" if rows or said is None else said.worth,
        verdict="oom_cgroup",
        victim=victim_of(facts),
        evidence=all_of(
            *(f"{row} ({source})" for row in rows[:4]),
            f"{job.row} ({source})" if job and job.row not in rows and job.row.state else None,
            f"{said.line} ({facts.log_name})" if said else None,
            f"the job had asked for {format_bytes(asked)}" if asked else None,
            f"the step had asked for {format_bytes(of_step)} of it" if of_step and is_of_step else None,
            *before_the_end(facts),
        ),
        advice=more,
    )


def _names_other_steps(facts: Facts) -> bool:
    """Whether all steps whose kills the log tells of are others than this run."""
    rows = {row.step: row for row in facts.slurm.job.steps} if facts.slurm and facts.slurm.job else {}
    steps = [match[1] for match in _STEP_IN_LOG.finditer(facts.log)]
    return bool(steps) and all(is_another_step(facts, step, rows.get(step)) for step in steps)


def polled_kill(facts: Facts) -> Iterator[Finding]:
    """JobAcctGatherParams=OverMemoryKill: slurmd adds up RSS, mapped files and all, and kills."""
    said = by_slurm(facts, POLLED)
    if said is None:
        return
    line, polled = said.match[0], _polled_bytes(said.match["used"], facts)
    u = facts.peak_bytes
    innocent = facts.peak_share is not None and facts.peak_share < 0.9 and _is_limited(facts)
    yield Finding(
        rule="polled_kill",
        says="Slurm's poll killed it (OverMemoryKill): it adds up RSS, in which mapped files count, "
        "several times over"
        + (", while U was far from the limit: nothing was really short" if innocent else ""),
        confidence=said.worth,
        verdict="killed_from_outside",
        cause="rss_polling",
        evidence=all_of(
            f"{line} ({facts.log_name})",
            f"U was never more than {peak_of_limit(facts)} (memory.ring)" if u is not None else None,
            counters_line(facts), ended_line(facts),
        ),
        advice=below_the_poll(facts, _more_than_polled(facts, max(polled, u or 0) or None)),
    )  # fmt: skip


def polled_kill_without_log(facts: Facts) -> Iterator[Finding]:
    """The same where its message is not at hand: the setting, RSS above what was asked for, U far below."""
    rss, asked = _polled_rss(facts), asked_for(facts)
    if not _was_polled(facts) or facts.slurm is None or rss is None or asked is None:
        return
    step = _polled_step(facts)
    yield Finding(
        rule="polled_kill_without_log",
        says=f"Slurm's poll killed {f'its step {step.id}' if step else 'it'}, by all signs (OverMemoryKill): "
        "RSS, in which mapped files count, was above what it had asked for, and no cgroup was at its limit",
        confidence="likely",
        verdict="killed_from_outside",
        cause="rss_polling",
        victim=victim_of(facts),
        evidence=all_of(
            f"JobAcctGatherParams={facts.slurm.gather_params} (scontrol show config)",
            f"RSS of all processes was up to {format_bytes(rss)}, {format_bytes(asked)} were asked for"
            + (
                f"; U never more than {format_bytes(facts.peak_bytes)} (memory.ring, {facts.slurm.source})"
                if facts.peak_bytes
                else f" ({facts.slurm.source})"
            ),
            ended_line(facts),
            counters_line(facts),
        ),
        advice=below_the_poll(facts, _more_than_polled(facts, rss)),
    )


def _was_polled(facts: Facts) -> bool:
    rss, asked = _polled_rss(facts), asked_for(facts)
    polls = facts.slurm is not None and "OverMemoryKill" in facts.slurm.gather_params.split(",")
    if not polls or rss is None or asked is None or facts.kills or facts.has_ended_well or facts.is_running:
        return False
    # where nothing but the poll limits, U may be as high as it likes
    is_short = _is_limited(facts) and (facts.peak_bytes or 0) >= 0.85 * asked
    return rss > 0.95 * asked and not is_short and facts.exit_code != 0


def _is_limited(facts: Facts) -> bool:
    """Whether a cgroup has the limit too; what the machine has says nothing of it."""
    asked = asked_for(facts)
    return asked is None or (facts.limit_bytes is not None and facts.limit_bytes <= 1.05 * asked)


def _polled_rss(facts: Facts) -> int | None:
    """As the samples have it, or the poll itself where it found too much: its last look may be after theirs,
    and counts all that the step runs.
    """
    job, asked = facts.slurm.job if facts.slurm else None, asked_for(facts)
    own = _polled_step(facts) or own_row(facts)
    rows = [own] if own else job.rows if job else []
    polled = [row.max_rss_bytes for row in rows if asked and (row.max_rss_bytes or 0) > asked]
    return max(
        (rss for rss in [*(v for _, v in facts.series("tree_rss_bytes")), *polled] if rss), default=None
    )


def _polled_step(facts: Facts) -> Row | None:
    """Of a script, or of a whole job: a step that it started, which had more than its own srun asked for."""
    job = facts.slurm.job if facts.slurm else None
    if job is None or own_step(facts).isdigit():
        return None
    for row in job.steps:
        step, asked = row.step or "", row.requested_bytes
        had_more = asked and (row.max_rss_bytes or 0) > asked and row.exit_signal == signal.SIGKILL
        if step.isdigit() and had_more and not is_another_step(facts, step, row):
            return row
    return None


def _more_than_polled(facts: Facts, rss: int | None) -> tuple[Advice, ...]:
    step, of_job = _polled_step(facts), _asked(facts.slurm.job) if facts.slurm else None
    if step and step.requested_bytes and of_job and step.requested_bytes < of_job:
        return raise_mem(step.max_rss_bytes, is_of_step=True)
    return more_memory(facts, rss)


def asked_for(facts: Facts) -> int | None:
    """--mem, --mem-per-cpu or --mem-per-gpu, of its step's row, the job's or its environment."""
    own = _polled_step(facts) or own_row(facts)
    from_row = (own and own.requested_bytes) or (_asked(facts.slurm.job) if facts.slurm else None)
    told = {name: text(value) for name, value in facts.environment.items()}
    return from_row or requested_memory(told)[0]


def ended_by_slurm(facts: Facts) -> Iterator[Finding]:
    """Slurm's own word in the log or the job's state: time limit, preemption, scancel, node failure."""
    job = facts.slurm.job if facts.slurm else None
    if _was_polled(facts) or ended_before(facts, job):
        return
    for name, pattern in SLURM_ENDS:
        said = by_slurm(facts, pattern)
        if said is not None:
            by_somebody = "JOB " in said.line or (job is not None and job.row.cancelled_by is not None)
            end = _ENDS["cancelled" if name == "scancel" and not by_somebody else name]
            yield from _end(facts, end, f"{said.line} ({facts.log_name})", said.worth)
            return
    if job is None:
        return
    row = _row_that_ended_it(facts, job)
    if row is None:
        return
    if row.state in _STATES:
        yield from _end(facts, _STATES[row.state], _told(row, facts))
    elif (asked := None if facts.outcome else _asked_to_stop(row)) is not None:
        name, worth = asked
        yield from _end(
            facts, ("terminated", "none", f"It was asked to stop by {name}"), _told(row, facts), worth
        )


def counted_as_failed(facts: Facts) -> Iterator[Finding]:
    """A job that Slurm counts as failed: the least that can be said, since of its own end a run says more."""
    job = facts.slurm.job if facts.slurm else None
    row = None if job is None or ended_before(facts, job) else _row_that_ended_it(facts, job)
    if row is not None and row.state == "FAILED":
        yield from _end(facts, ("failed", "none", "Slurm counts it as failed"), _told(row, facts))


def _row_that_ended_it(facts: Facts, job: Job) -> Row | None:
    """The first that tells of an end from outside, or of a failure that is not told better elsewhere."""
    rows = rows_that_ended_it(facts, job)
    row = next((row for row in rows if row.state in _STATES or row.state == "FAILED"), None)
    is_own = row is own_row(facts)
    if row is None or (not is_own and row is not job.row and job.row.state == "COMPLETED"):
        return None
    if row.state != "FAILED":
        return row
    of_another = facts.exit_code == 0  # another task, or what the script did after
    was_killed_too = was_killed([row] if is_own else job.rows)
    of_memory = not is_own and any(step.was_out_of_memory for step in job.steps)
    return None if of_another or was_killed_too or of_memory else row


def _told(row: Row, facts: Facts) -> str:
    """The row and what it says of why and when."""
    told = str(row)
    told += f" by user {row.cancelled_by}" if row.cancelled_by else ""
    told += f", {row.reason}" if row.reason else ""
    told += f" ({facts.slurm.source if facts.slurm else ''})"
    if row.timelimit_s and row.elapsed_s is not None:
        told += f"; it had run {row.elapsed_s:.0f} of {row.timelimit_s:.0f} s"
    return told


def _asked_to_stop(row: Row) -> tuple[str, str] | None:
    """The signal that ended it, and how sure that is: `0:15` is wait(2)'s word, 143 a habit of shells."""
    for number, worth in ((row.exit_signal, "certain"), ((row.exit_code or 0) - 128, "likely")):
        if number in _ASKING:
            return _ASKING[number], worth
    return None


def _end(facts: Facts, end: tuple[str, str, str], line: str, worth: str = "certain") -> Iterator[Finding]:
    verdict, cause, says = end
    job = facts.slurm.job if facts.slurm else None
    node = job.row.nodes if job else text(facts.environment.get("SLURMD_NODENAME"))
    more = {
        "timeout": longer(facts),
        "preemption": Advice(
            "type the same command again, or choose a partition that is not preempted", "--requeue"
        ),
        "node_failure": Advice(
            "type the same command again; leave that node out",
            f"--exclude={node}" if node and count_nodes(node) == 1 else None,  # of several it is one
        ),
        "scancel": _who_cancelled(facts),
        "requeue": Advice("wait: it starts again by itself"),
    }
    key = verdict if verdict == "timeout" else cause
    yield Finding(
        rule="ended_by_slurm",
        says=says,
        # the word of a failure is what the run's own exit code says already; of a cancelled step Slurm says
        # the same when its job was preempted
        confidence=min(
            worth,
            "likely" if verdict == "failed" or end == _ENDS["cancelled"] else "certain",
            key=CONFIDENCES.index,
        ),
        verdict=verdict,
        cause=cause,
        evidence=all_of(line, ended_line(facts), counters_line(facts)),
        advice=(more[key],) if key in more else (),
    )


def _who_cancelled(facts: Facts) -> Advice:
    job = facts.slurm.job if facts.slurm else None
    if job is not None and job.row.cancelled_by is not None:
        return Advice(
            f"ask user {job.row.cancelled_by}, who cancelled it", f"getent passwd {job.row.cancelled_by}"
        )
    known = facts.job_id
    return Advice("ask who cancelled it", f"sacct -j {known} --format=JobID,State%40" if known else None)


def completed(facts: Facts) -> Iterator[Finding]:
    """Slurm counts it as done, and no step says otherwise; of one step by its own row."""
    job = facts.slurm.job if facts.slurm else None
    row = own_row(facts) or (job.row if job else None)
    if job is None or row is None or row.state != "COMPLETED" or rows_out_of_memory(facts, job):
        return
    yield Finding(
        rule="slurm_completed",
        says="Slurm counts it as COMPLETED",
        confidence="likely",
        verdict="healthy",
        cause="none",
        evidence=(f"{row} ({facts.slurm.source if facts.slurm else ''})",),
    )


def max_rss(facts: Facts) -> Iterator[Finding]:
    """What the number that sacct and seff show is worth."""
    job = facts.slurm.job if facts.slurm else None
    rows = [row for row in job.rows if row.max_rss_bytes] if job else []
    if not rows or facts.slurm is None:
        return
    own = own_step(facts)  # of another one it says nothing
    row: Row = max(rows, key=lambda row: (row.step == own, row.max_rss_bytes or 0))
    asked = row.requested_bytes or _asked(job)
    yield Finding(
        rule="max_rss",
        says=f"sacct's MaxRSS of {format_bytes(row.max_rss_bytes or 0)} is not what the kernel goes by",
        confidence="certain",
        evidence=all_of(
            f"{row.id}: MaxRSS {format_bytes(row.max_rss_bytes or 0)}"
            + (f" of {format_bytes(asked)} asked for" if asked else "") + f" ({facts.slurm.source})",
            max_rss_meaning(facts.slurm),
            f"U was seen at {peak_of_limit(facts)} (memory.ring)" if facts.peak_bytes else None,
        ),
    )  # fmt: skip


def requeued(facts: Facts) -> Iterator[Finding]:
    """Earlier starts of the same job."""
    earlier = facts.slurm.earlier if facts.slurm else ()
    if not earlier:
        return
    out_of_memory = [job for job in earlier if any(row.was_out_of_memory for row in job.rows)]
    yield Finding(
        rule="requeued",
        says=f"It is start {len(earlier) + 1} of this job; before, it ended as "
        + ", ".join(job.row.state for job in earlier[-4:]),
        confidence="certain",
        evidence=tuple(f"{row} (sacct --duplicates)" for job in earlier[-4:] for row in job.rows[:1]),
        advice=more_memory(facts) if out_of_memory else (),
    )


def _asked(job: Job | None) -> int | None:
    return next((row.requested_bytes for row in job.rows if row.requested_bytes), None) if job else None


def _polled_bytes(used: str | None, facts: Facts) -> int:
    """Bytes from Slurm 17.11 on, KB before; what is far too small for bytes is KB."""
    amount = int(used[:18]) if used else 0
    return amount * 1024 if amount and facts.limit_bytes and amount < facts.limit_bytes / 512 else amount
