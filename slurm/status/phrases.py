"""How an end is told: the sentences and the parts of sentences that rules put together."""

from __future__ import annotations

from typing import Any

from experiment_utils.quantities import format_duration
from memory import format_bytes
from memory.accounting.sacct import Row, count_nodes
from memory.explain import Victim
from memory.explain.verdict.evidence_lines import place
from slurm.records.submitter_liveness import NO_ROOM
from slurm.status.case import Case
from slurm.status.signs import lost_its_node, was_ended_by_us, was_preempted
from slurm.status.verdict import one_line


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
        told += f": {format_bytes(held)} of {format_bytes(limit)} when last seen"
    return f"{told}, the limit of {place(at)}" if isinstance(at, str) and at and at != "host" else told


def how_slurm_ended(case: Case, state: str, row: Row | None = None) -> str:
    known, row = case.known, row or case.row
    limit = (row.timelimit_s if row else None) or (case.queue.timelimit_s if case.queue else None)
    by = row.cancelled_by if row else None
    words = {
        "timeout": f"its time limit{f' of {format_duration(limit)}' if limit else ''} was reached",
        "preempted": "a job of higher priority took its place",
        "cancelled": f"its job was cancelled{f' by {user_name(by)}' if by else ''}",
        "node_failed": _node_failed(row),
    }[state]
    step = known.status.get("step")
    if known.state is None and not known.damaged:
        return f"{words} before it had started"
    return f"{words}, at step {step:,}" if isinstance(step, int) else words


def _node_failed(row: Row | None) -> str:
    if row is None or not row.nodes:
        return "its node failed"
    return f"{'one of its nodes' if count_nodes(row.nodes) > 1 else 'its node'} {row.nodes} failed"


def its_nodes(case: Case) -> str:
    """Where it runs, by its own word; of a job of several nodes, of which that tells one, by Slurm's."""
    known = case.known
    nodes = (case.queue.nodes if case.queue else case.row.nodes if case.row else "") or ""
    if case.stands == "running" and count_nodes(nodes) > 1:
        return nodes
    return str(known.status.get("host") or (known.holder.host if known.holder else "")) or "its node"


def suspended(case: Case) -> str:
    """Of a job that stands still because Slurm lets another run, or an administrator has said so."""
    return f"Slurm has suspended its job: it goes on when Slurm lets it (scontrol resume {case.known.job})"


def ended_before(case: Case) -> str | None:
    """How the attempt before it ended."""
    known = case.known
    if known.noted_oom:
        return f"attempt {known.attempt or 1} was killed for memory"
    if was_preempted(case):
        return f"attempt {known.attempt or 1} made room for another job"
    if lost_its_node(case) and case.own_row is not None:
        return f"attempt {known.attempt or 1} was cut off: {_node_failed(case.own_row)}"
    if known.state == "cancelled" and "SIGTERM" in (known.reason or "") and not was_ended_by_us(case):
        return f"attempt {known.attempt or 1} was stopped by SIGTERM"
    if known.state in ("failed", "timeout", "cancelled", "oom"):
        return f"attempt {known.attempt or 1} ended as {known.state}"
    return f"attempt {known.attempt or 1} was cut off" if known.state == "running" else None


def with_host(case: Case, sentence: str) -> str:
    """The sentence, without what is only perhaps so; with the host where that is known."""
    known = case.known
    host = known.outcome.get("host") or known.status.get("host") or (case.row.nodes if case.row else "")
    first = one_line(sentence).partition(". Perhaps:")[0].rstrip(".") or "it was killed"
    return f"{first} (on {host})" if isinstance(host, str) and host and host not in first else first


_NO_OUTPUT = 53
"""slurmd's exit signal for a job whose output it could not open."""


def no_output(case: Case) -> str | None:
    """Of a job that ended before its first line, since its node has no folder to write into; else None."""
    start, submission = case.start, case.known.submission
    if start is None or submission is None or all(row.exit_signal != _NO_OUTPUT for row in start.rows):
        return None
    node = start.row.nodes or "its node"
    return (
        f"{node} could not write into {submission.folder}: does it see that folder, and is there room? "
        "runs_dir must lie where all nodes see it"
    )


def and_refused(case: Case) -> str:
    array = case.known.array
    if array is None or not array.error:
        return ""
    if array.error == NO_ROOM:
        return f"; when it was submitted again, {NO_ROOM}"
    return f"; when it was submitted again, sbatch refused it: {one_line(array.error, 3)}"


def and_unanswered(case: Case) -> str:
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
