"""The table of states: the first row whose condition holds gives the state of a run and the reason."""

from __future__ import annotations

from dataclasses import dataclass

from slurm.status.ended_rows import ENDED_ROWS
from slurm.status.live_rows import LIVE_ROWS
from slurm.status.run_history import RunHistory
from slurm.status.unstarted_rows import UNSTARTED_ROWS

TABLE = (*LIVE_ROWS, *ENDED_ROWS, *UNSTARTED_ROWS)
_GIVEN_UP = ("failed", "timeout", "preempted", "cancelled", "node_failed")
"""States of a run that its job does not start again, if its last starts brought no step forward."""


@dataclass(frozen=True)
class Decision:
    """The state of a run."""

    state: str
    reason: str | None
    """One line; None only for a run that is done."""
    source: str = ""
    """The record that the state is known from."""
    rule: str = ""
    """Name of the row."""


def decide(history: RunHistory) -> Decision:
    """The state of a run, by the first row that holds. Never raises."""
    row = next(row for row in TABLE if row.holds(history))
    given_up = history.evidence.given_up if row.state in _GIVEN_UP else None
    source = row.source if isinstance(row.source, str) else row.source(history)
    return Decision(row.state, given_up or row.reason(history), source, row.name)


def as_markdown() -> str:
    """The table as docs/slurm.md shows it."""
    rows = (f"| {place} | `{row.state}` | {row.name} | {row.when} |" for place, row in enumerate(TABLE, 1))
    return "\n".join(["| | state | rule | when |", "|---|---|---|---|", *rows]) + "\n"
