"""Which process holds the anonymous memory, over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.report.moments import Moment

TOLD = 8


@dataclass
class ProcessRow:
    """name: as it held most. anon in bytes at its first and last sight and at most; seen: how often. is_main:
    of the run.
    """

    pid: int
    name: str
    is_main: bool
    first_bytes: int
    last_bytes: int
    highest_bytes: int
    first_s: float
    last_s: float
    seen: int = 1

    @property
    def grown_bytes(self) -> int:
        return self.last_bytes - self.first_bytes

    @property
    def label(self) -> str:
        return f"{self.name or 'process'} {self.pid}" + (" (main)" if self.is_main else "")


def process_rows(moments: Sequence[Moment]) -> list[ProcessRow]:
    """The main process first, then those that held most. Pages shared since a fork count in each."""
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
            row.seen += 1
    return sorted(rows.values(), key=lambda row: (not row.is_main, -row.highest_bytes, row.pid))


def anon_over_time(moments: Sequence[Moment], pid: int) -> tuple[list[float], list[int | None]]:
    """(seconds, anon in bytes) at the moments at which processes were looked at; None: it was not there."""
    times, values = [], []
    for moment in moments:
        if moment.holders:
            times.append(moment.at_s)
            values.append(next((holder.anon_bytes for holder in moment.holders if holder.pid == pid), None))
    return times, values


def others_over_time(moments: Sequence[Moment], told: set[int]) -> tuple[list[float], list[int | None]]:
    """The sum over all other processes."""
    times, values = [], list[int | None]()
    for moment in moments:
        if moment.holders:
            times.append(moment.at_s)
            values.append(sum(holder.anon_bytes for holder in moment.holders if holder.pid not in told))
    return times, values
