"""Ends that Slurm reports: in its log lines, in its rows of the job and of each step."""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.json_values import text
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import FROM_OUTSIDE, WAITING, polled_bytes, slurm_rows
from memory.explain.rules.stops import _ask_kernel, longer, said_lines
from memory.explain.rules.table_row import (
    BEFORE_END,
    CERTAIN,
    COUNTED,
    LIKELY,
    NO,
    UNKNOWN,
    TableRow,
    at_most,
    if_so,
)
from memory.explain.signals import Signals
from memory.explain.verdict.advice import below_the_poll, cheapest_first, more_memory, raise_mem
from memory.explain.verdict.evidence_lines import counters_line, ended_line, peak_of_limit
from memory.explain.verdict.explanation import Advice
from memory.sacct import Row as SlurmRow
from memory.sacct import count_nodes

_ASKING = {1: "SIGHUP", 2: "SIGINT", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM"}
_STATES = {
    "PENDING": "it waits in the queue", "REQUEUED": "it waits in the queue again",
    "REQUEUE_HOLD": "it is held in the queue", "REQUEUE_FED": "it waits in the queue of its federation",
    "SPECIAL_EXIT": "it is held in the queue", "RESIZING": "it changes its size",
    "CONFIGURING": "its nodes are being made ready", "RUNNING": "it is running", "COMPLETING": "it is ending",
    "STAGE_OUT": "its files are being moved out", "SUSPENDED": "it is suspended and keeps its memory",
    "STOPPED": "it is stopped and keeps its memory", "SIGNALING": "it is being sent a signal",
}  # fmt: skip
"""States in which a job is not over (squeue(1), JOB STATE CODES)."""


def _rows(s: Signals, rows: Iterable[SlurmRow]) -> list[str]:
    return [f"{row} ({s.slurm.source})" for row in list(rows)[:4]]


# Out of memory


def _out_of_memory(s: Signals) -> str:
    if s.slurm.out_of_memory:
        return CERTAIN
    said = s.says("slurm_oom")
    if not said or s.kills == "none" or (s.end == "error" and s.exit_code and not s.slurm.source):
        return NO
    return at_most(CERTAIN if said.is_sure else LIKELY, LIKELY if "Exceeded" in said.line else CERTAIN)


def _says_out_of_memory(s: Signals) -> str:
    ids = ", ".join(row.id for row in s.slurm.out_of_memory[:4]) or "a step of this job"
    after = (
        ". The job counts as COMPLETED: its script continued after it" if s.slurm.state == "COMPLETED" else ""
    )
    return f"Slurm saw an OOM kill in {ids}{after}"


def _oom_lines(s: Signals) -> Iterable[str | None]:
    yield from _rows(s, s.slurm.out_of_memory)
    job = s.facts.slurm.job if s.facts and s.facts.slurm else None
    if job is not None and job.row not in s.slurm.out_of_memory and job.row.state:
        yield f"{job.row} ({s.slurm.source})"
    yield from said_lines("slurm_oom")(s)  # type: ignore[operator]
    asked, of_job = s.slurm.asked_bytes, s.slurm.job_asked_bytes
    yield f"the job had requested {format_bytes(of_job)}" if of_job else None
    yield f"the step had requested {format_bytes(asked)} of it" if 0 < asked < of_job else None


def _more_for_job(facts: RunFacts) -> Iterable[Advice]:
    rows = slurm_rows(facts)
    is_of_step = 0 < rows.asked_bytes < rows.job_asked_bytes
    more = raise_mem(rows.asked_bytes or None, is_of_step=is_of_step)
    if is_of_step and not facts.kills:
        return more
    return cheapest_first(facts) or more


# Slurm's poll of RSS


def _polled(s: Signals) -> str:
    if s.says("slurm_poll"):
        return NO if s.kills == "counted" or s.end == "ok" else CERTAIN
    rss, asked = s.slurm.rss_bytes, s.slurm.asked_bytes
    if not s.slurm.polls_rss or not asked or s.kills == "counted" or s.end in ("ok", "running", "waiting"):
        return NO
    has_limit = s.limit_at == "cgroup" and s.limit_bytes <= 1.05 * asked
    is_short = has_limit and s.parts.u >= 0.85 * asked
    return if_so(
        rss > 0.95 * asked
        and not is_short
        and bool(s.was_killed or s.slurm.killed or s.signal or s.slurm.step_was_polled)
    )


def _says_polled(s: Signals) -> str:
    innocent = ", while U was far from the limit" if 0 < s.peak_share < 0.9 and s.limit_at == "cgroup" else ""
    return (
        "Slurm's poll killed it (OverMemoryKill): RSS, in which mapped files count once for each process, "
        "was above what "
        f"it had requested{innocent}"
    )


def _poll_lines(s: Signals) -> Iterable[str | None]:
    yield from said_lines("slurm_poll")(s)  # type: ignore[operator]
    if s.facts is None:
        return
    if s.slurm.polls_rss and s.facts.slurm:
        yield f"JobAcctGatherParams={s.facts.slurm.gather_params} (scontrol show config)"
    if s.slurm.rss_bytes and s.slurm.asked_bytes:
        rss, asked = format_bytes(s.slurm.rss_bytes), format_bytes(s.slurm.asked_bytes)
        yield (
            f"RSS of all processes was up to {rss}, {asked} were requested "
            f"({s.slurm.source or 'memory.ring'})"
        )
    yield f"U was never more than {peak_of_limit(s.facts)} (memory.ring)" if s.facts.peak_bytes else None


def _below_poll(facts: RunFacts) -> Iterable[Advice]:
    rows = slurm_rows(facts)
    if 0 < rows.asked_bytes < rows.job_asked_bytes:
        return below_the_poll(facts, raise_mem(rows.rss_bytes, is_of_step=True))
    rss = max(rows.rss_bytes, polled_bytes(facts.log, facts.limit_bytes or 0), facts.peak_bytes or 0)
    return below_the_poll(facts, more_memory(facts, rss or None) or raise_mem(rows.asked_bytes or None))


# Ended by Slurm

_ENDS = {
    "slurm_timeout": (("TIMEOUT", "DEADLINE"), "timeout", "none", "Its time limit was reached"),
    "slurm_preempted": (
        ("PREEMPTED",),
        "killed_from_outside",
        "preemption",
        "A job of higher priority took its place",
    ),
    "slurm_node_failed": (
        ("NODE_FAIL", "BOOT_FAIL"),
        "killed_from_outside",
        "node_failure",
        "Its node failed",
    ),
    "slurm_requeued": ((), "killed_from_outside", "requeue", "It was put back into the queue"),
    "slurm_cancelled": (("CANCELLED", "REVOKED"), "killed_from_outside", "scancel", "It was cancelled"),
}
_BY_LOG_FIRST = tuple(_ENDS)


def _ended(s: Signals, kind: str) -> str:
    if s.end in ("ok", "running") or s.kills == "counted" or _polled(s):
        return NO
    said = next((name for name in _BY_LOG_FIRST if s.says(name)), "")
    own_end = s.end == "error" and not s.asked_by and not s.says_cancelled
    if said and not (own_end and s.slurm.ended_by is None and "STEP " not in s.says(said).line):
        return if_so(said == kind, CERTAIN if s.says(kind).is_sure or s.slurm.cancelled_by_user else LIKELY)
    row = s.slurm.ended_by
    return if_so(row is not None and row.state in _ENDS[kind][0], CERTAIN)


def _end_lines(kind: str) -> object:
    def lines(s: Signals) -> Iterable[str | None]:
        yield from said_lines(kind)(s)  # type: ignore[operator]
        row = s.slurm.ended_by
        if row is None or s.says(kind):
            return
        who = f" by user {row.cancelled_by}" if row.cancelled_by else ""
        why = f", {row.reason}" if row.reason else ""
        ran = (
            f"; it had run {row.elapsed_s:.0f} of {row.timelimit_s:.0f} s"
            if row.timelimit_s and row.elapsed_s
            else ""
        )
        yield f"{row}{who}{why} ({s.slurm.source}){ran}"

    return lines


def _end_advice(kind: str) -> object:
    def advice(facts: RunFacts) -> Iterable[Advice]:
        row = facts.slurm.job.row if facts.slurm and facts.slurm.job else None
        node = row.nodes if row else text(facts.environment.get("SLURMD_NODENAME"))
        if kind == "slurm_timeout":
            yield longer(facts)
        elif kind == "slurm_preempted":
            yield Advice(
                "type the same command again, or choose a partition that is not preempted", "--requeue"
            )
        elif kind == "slurm_node_failed":
            leave_out = f"--exclude={node}" if node and count_nodes(node) == 1 else None
            yield Advice("type the same command again; leave that node out", leave_out)
        elif kind == "slurm_requeued":
            yield Advice("wait: Slurm starts it again automatically")
        elif row is not None and row.cancelled_by is not None:
            yield Advice(
                f"ask user {row.cancelled_by}, who cancelled it", f"getent passwd {row.cancelled_by}"
            )
        else:
            job = facts.job_id
            yield Advice("ask who cancelled it", f"sacct -j {job} --format=JobID,State%40" if job else None)

    return advice


def _asked_by_row(s: Signals) -> str:
    """Signal by which a row ended, if it asks a program to stop: 0:15, or 143 by a shell."""
    row = s.slurm.ended_by
    if row is None or row.state in FROM_OUTSIDE or s.end not in ("unknown", "log only", "no evidence"):
        return ""
    return _ASKING.get(row.exit_signal or 0) or _ASKING.get((row.exit_code or 0) - 128) or ""


# Killed, by accounting alone


def _killed_rows(s: Signals) -> bool:
    is_alone = s.end in ("unknown", "log only", "no evidence", "lost")
    return bool(s.slurm.killed) and is_alone and not s.slurm.out_of_memory and not _polled(s)


def _at_asked(s: Signals) -> bool:
    return 0 < 0.9 * s.slurm.asked_bytes <= s.slurm.max_rss_bytes


def _amounts(s: Signals) -> str:
    return f"MaxRSS {format_bytes(s.slurm.max_rss_bytes)} of {format_bytes(s.slurm.asked_bytes)} requested"


def _killed_lines(s: Signals) -> Iterable[str | None]:
    yield from (f"{row}, which is SIGKILL ({s.slurm.source})" for row in s.slurm.killed[:2])
    yield f"{_amounts(s)} ({s.slurm.source})" if s.slurm.max_rss_bytes and s.slurm.asked_bytes else None


def _waiting(s: Signals) -> str:
    return if_so(s.slurm.state in _STATES and not s.has_run)


def _says_waiting(s: Signals) -> str:
    job = s.facts.slurm.job if s.facts and s.facts.slurm else None
    row = job.row if job else None
    if row is None:
        return "It is not over"
    limit = f" of {row.timelimit_s:.0f}" if row.timelimit_s else ""
    so_far = f", for {row.elapsed_s:.0f}{limit} s so far" if row.elapsed_s else ""
    where, reason = f" on {row.nodes}" if row.nodes else "", f" ({row.reason})" if row.reason else ""
    return f"Job {row.job} is {row.state}{reason}: {_STATES[row.state]}{so_far}{where}"


def _job_line(s: Signals) -> Iterable[str | None]:
    job = s.facts.slurm.job if s.facts and s.facts.slurm else None
    row = s.slurm.ended_by or (job.row if job else None)
    reason = f" ({row.reason})" if row and row.reason else ""
    yield f"{row}{reason} ({s.slurm.source})" if row else None


def is_waiting(s: Signals) -> bool:
    """Whether the job is in the queue, by accounting."""
    return s.slurm.state in WAITING


ROWS = (
    TableRow(
        "slurm_out_of_memory",
        "a row of the job or of one of its steps says OUT_OF_MEMORY; without a counter, a line of "
        "slurmstepd or srun",
        _out_of_memory, _says_out_of_memory,
        "oom_cgroup", None, BEFORE_END, _oom_lines, _more_for_job, "seen",
    ),
    TableRow(
        "rss_polled",
        "slurmd's line of its poll (OverMemoryKill); or that setting, RSS above the request, and U below it",
        _polled, _says_polled,
        "killed_from_outside", "rss_polling", (counters_line, ended_line), _poll_lines, _below_poll, "seen",
    ),
    *(
        TableRow(
            kind, f"Slurm's line, or its row of the job or step: {' or '.join(states) or 'requeued'}",
            lambda s, kind=kind: _ended(s, kind),  # type: ignore[misc]
            lambda s, says=says, kind=kind: says  # type: ignore[misc]
            if kind != "slurm_cancelled" or s.says(kind).is_sure or s.slurm.cancelled_by_user
            else f"{says}, or preempted and ended within its grace time",
            verdict, cause, (ended_line, counters_line), _end_lines(kind), _end_advice(kind),  # type: ignore[arg-type]
        )
        for kind, (states, verdict, cause, says) in _ENDS.items()
    ),
    TableRow(
        "slurm_asked_to_stop", "a row ended by a signal that asks a program to stop (0:15, 143), and the "
            "run left no word",
        lambda s: if_so(_asked_by_row(s),
        CERTAIN if s.slurm.ended_by and s.slurm.ended_by.exit_signal else LIKELY),
        lambda s: f"It was asked to stop by {_asked_by_row(s)}",
        "terminated", "none", (ended_line,), _job_line,
    ),
    TableRow(
        "slurm_killed_at_request", "a row says FAILED by SIGKILL, with MaxRSS at 90% of the request, and "
            "the run left no word",
        lambda s: if_so(_killed_rows(s) and _at_asked(s), UNKNOWN),
        lambda s: "A process of it was killed by SIGKILL with about as much memory in use as it had "
            "requested "
        f"({_amounts(s)}): perhaps by the kernel for it",
        "oom_cgroup", None, (), _killed_lines,
        lambda facts: (*_ask_kernel(facts), *raise_mem(slurm_rows(facts).asked_bytes or None)),
    ),
    TableRow(
        "slurm_killed", "a row says FAILED by SIGKILL, and the run left no word",
        lambda s: if_so(_killed_rows(s) and not _at_asked(s), UNKNOWN),
        "A process of it was killed by SIGKILL. The kernel, for memory, or a person or a service: nothing "
        "says which",
        "unknown", None, (), _killed_lines, _ask_kernel,
    ),
    TableRow(
        "slurm_completed", "the row of the run's step, else of the job, says COMPLETED",
        lambda s: if_so(s.slurm.own_state == "COMPLETED" and not s.slurm.out_of_memory),
        "Slurm counts it as COMPLETED",
        "healthy", "none", (), _job_line,
    ),
    TableRow(
        "not_over", "the job waits or runs, and the run left no files",
        _waiting, _says_waiting,
        "healthy", "none", (), _job_line,
    ),
    TableRow(
        "slurm_failed", "the row of the run's step, else of the job, says FAILED",
        lambda s: if_so(
            s.slurm.ended_by is not None and s.slurm.ended_by.state == "FAILED"
            and s.end in ("unknown", "log only", "no evidence", "lost") and not _asked_by_row(s)
        ),
        "Slurm counts it as failed",
        "failed", "none", COUNTED[1:], _job_line,
    ),
)  # fmt: skip
