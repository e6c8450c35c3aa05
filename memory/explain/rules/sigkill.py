"""SIGKILL that only a shell, srun or Slurm's accounting tells of: it came, and nobody says from whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiment_utils.quantities import format_bytes
from memory.explain.advice import below_the_poll, raise_mem
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.telling import all_of
from memory.explain.wordings import SIGKILL_TOLD, last_line_with
from memory.sacct import Row

_AT_LIMIT = 0.9
_CODES = (9, 137)
"""Of a step that ended by the signal, and as a shell tells of it: 128 + 9."""


def sigkill_in_accounting(facts: Facts) -> Iterator[Finding]:
    """FAILED 137:0 or 0:9. Where MaxRSS came to what was asked for, an OOM kill that Slurm did not see."""
    job = facts.slurm.job if facts.slurm else None
    if job is None or facts.slurm is None or job.row.state == "COMPLETED" or facts.outcome:
        return
    rows = [row for row in job.rows if _was_killed(row) and row.state == "FAILED"]
    if not rows or any(row.was_out_of_memory for row in job.rows):
        return
    rss = max((row.max_rss_bytes for row in job.rows if row.max_rss_bytes), default=None)
    asked = next((row.requested_bytes for row in job.rows if row.requested_bytes), None)
    at_limit = rss is not None and asked is not None and rss >= _AT_LIMIT * asked
    amounts = f"MaxRSS {format_bytes(rss)} of {format_bytes(asked)} asked for" if rss and asked else None
    polls = "OverMemoryKill" in facts.slurm.gather_params.split(",")
    if polls and rss is not None and asked is not None and rss >= asked:
        yield _polled(facts, rows, amounts, asked)
        return
    says = "A process of it was killed by SIGKILL"
    says += (
        f" with as much memory in use as it had asked for ({amounts}), so perhaps by the kernel for it"
        if at_limit
        else ", and by whom is not told: the kernel for memory, or somebody"
    )
    yield Finding(
        rule="sigkill_in_accounting",
        says=says,
        confidence="possible",
        verdict="oom_cgroup" if at_limit else "unknown",
        evidence=all_of(
            *(f"{row}, which is SIGKILL ({facts.slurm.source})" for row in rows[:2]),
            f"{amounts} ({facts.slurm.source})" if amounts else None,
        ),
        advice=(*_what_to_ask(facts, rows[0].nodes), *(raise_mem(asked) if at_limit else ())),
    )


def _polled(facts: Facts, rows: list[Row], amounts: str | None, asked: int) -> Finding:
    """Where a poll of RSS kills, RSS above what was asked for needs no kernel to end a job."""
    source = facts.slurm.source if facts.slurm else ""
    return Finding(
        rule="sigkill_in_accounting",
        says=f"Slurm's poll killed it, by all signs (OverMemoryKill): RSS, in which mapped files count, came "
        f"to more than it had asked for ({amounts})",
        confidence="likely",
        verdict="killed_from_outside",
        cause="rss_polling",
        evidence=(
            *(f"{row}, which is SIGKILL ({source})" for row in rows[:2]),
            f"{amounts} ({source})",
            "JobAcctGatherParams has OverMemoryKill (scontrol show config)",
        ),
        advice=below_the_poll(facts, raise_mem(asked)),
    )


def sigkill_in_log(facts: Facts) -> Iterator[Finding]:
    """`Killed` as bash, srun or a launcher writes it, where nothing else tells how it ended."""
    ended = facts.outcome or facts.has_ended_well or facts.is_running or facts.state == "failed"
    line = None if ended else last_line_with(SIGKILL_TOLD, facts.log)
    if line is None:
        return
    job = facts.slurm.job if facts.slurm else None
    if job is not None and job.row.state == "COMPLETED":
        return
    yield Finding(
        rule="sigkill_in_log",
        says="A process of it was killed by SIGKILL, and by whom is not told: the kernel for memory, or "
        "somebody",
        confidence="possible",
        verdict="unknown",
        evidence=(f"{line} ({facts.log_name})",),
        advice=_what_to_ask(facts, job.row.nodes if job is not None else ""),
    )


def was_killed(rows: Iterable[Row]) -> bool:
    """Whether accounting tells of SIGKILL."""
    return any(_was_killed(row) for row in rows)


def _was_killed(row: Row) -> bool:
    return row.exit_code == _CODES[1] or row.exit_signal == _CODES[0]


def _what_to_ask(facts: Facts, nodes: str) -> tuple[Advice, ...]:
    """What may tell whether it was for memory."""
    where = f" on {nodes}" if nodes else ""
    job = facts.job_id
    ask = "JobID,State%40,ExitCode,MaxRSS,ReqMem"
    found = [Advice("ask Slurm of each step", f"sacct -j {job} --format={ask}")] if job else []
    return (
        *found,
        Advice(f"the kernel's log{where} tells, where it may be read", "dmesg -T | grep -i 'killed process'"),
    )
