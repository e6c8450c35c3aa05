"""Anonymous memory by process, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.report.data.moments import Moment


@dataclass
class ProcessRow:
    """Anonymous memory of one process, in bytes: at its first and last sight, and at most."""

    pid: int
    name: str
    """The name that it had when it held most."""
    is_main: bool
    """It was the main process of the run at some time."""
    first_bytes: int
    last_bytes: int
    highest_bytes: int
    first_s: float
    last_s: float

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes

    @property
    def label(self) -> str:
        return f"{self.name or 'process'} {self.pid}" + " (main)" * self.is_main


def process_rows(moments: Sequence[Moment]) -> list[ProcessRow]:
    """A row for each process: the main one first, then by what they held at most.

    Pages shared since a fork count in each process.
    """
    rows: dict[int, ProcessRow] = {}
    for moment in moments:
        for place, (pid, name, anon) in enumerate(moment.holders):
            row = rows.get(pid)
            if row is None:
                rows[pid] = ProcessRow(pid, name, place == 0, anon, anon, anon, moment.at_s, moment.at_s)
                continue
            row.is_main = row.is_main or place == 0
            if name and (anon > row.highest_bytes or not row.name):
                row.name = name  # a shell that became the program holds what that holds
            row.last_bytes, row.last_s = anon, moment.at_s
            row.highest_bytes = max(row.highest_bytes, anon)
    return sorted(rows.values(), key=lambda row: (not row.is_main, -row.highest_bytes, row.pid))
