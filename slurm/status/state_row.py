"""A row of the table of states, and the parts of sentences that several rows share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memory.accounting.sacct import Row, count_nodes
from slurm.records.submissions import typed_study
from slurm.status.run_history import RunHistory


@dataclass(frozen=True)
class StateRow:
    """One row: the state of a run for which no earlier row holds."""

    name: str
    state: str
    holds: Callable[[RunHistory], bool]
    reason: Callable[[RunHistory], str | None]
    """One line; None only for a run that is done."""
    source: str | Callable[[RunHistory], str]
    """The record that the state is known from."""
    when: str
    """The condition as a sentence of docs/slurm.md."""


def slurm_source(run: RunHistory) -> str:
    """The client of Slurm whose word for the job counts."""
    return "squeue" if run.last.queued else "sacct"


def one_line(text: str, most: int = 1) -> str:
    """The first lines that are not blank, joined."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[:most])


def with_host(run: RunHistory, sentence: str) -> str:
    """The sentence without what is only perhaps so, and with the host if that is known."""
    known = run.evidence
    host = known.outcome.get("host") or known.status.get("host") or (run.row.nodes if run.row else "")
    first = one_line(sentence).partition(". Perhaps:")[0].rstrip(".") or "it was killed"
    return f"{first} (on {host})" if isinstance(host, str) and host and host not in first else first


def and_earlier(run: RunHistory, sentence: str) -> str:
    """The sentence, with how the attempt before ended."""
    known = run.evidence
    is_sigterm = (
        known.state == "cancelled" and "SIGTERM" in (known.reason or "") and not run.is_cancelled_by_us
    )
    endings = (
        (known.noted_oom, "was killed for memory"),
        (run.was_preempted, "made room for another job"),
        (run.lost_node is not None, f"was cut off: {node_failed(run.lost_node)}"),
        (is_sigterm, "was stopped by SIGTERM"),
        (known.state in ("failed", "timeout", "cancelled", "oom"), f"ended as {known.state}"),
        (known.state == "running", "was cut off"),
    )
    ended = next((ended for is_so, ended in endings if is_so), None)
    return f"{sentence}; attempt {known.attempt or 1} {ended}" if ended else sentence


def node_failed(row: Row | None) -> str:
    """`its node n1 failed`, or `one of its nodes n[1-2] failed`."""
    if row is None or not row.nodes:
        return "its node failed"
    return f"{'one of its nodes' if count_nodes(row.nodes) > 1 else 'its node'} {row.nodes} failed"


def and_resubmit(run: RunHistory, sentence: str) -> str:
    """The sentence, with the command that submits the run again."""
    return f"{sentence}. It is started by: python -m slurm resubmit {typed_study(run.evidence.folder.parent)}"
