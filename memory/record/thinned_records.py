"""Stage records of a run, thinned: open stages and the highest U stay, and a part of the rest."""

from __future__ import annotations

from typing import Any

MOST = 4000
"""Records of one rank that are always kept; each takes some 8 KB."""
Record = dict[str, Any]


class ThinnedRecords:
    """Records by rank, in order. If they are very many, every second run of a stage is left out, begin and
    end, so that open stages stay open. The first, the last and the highest U stay.
    """

    def __init__(self) -> None:
        self.by_rank: dict[int, list[Record]] = {}

    def add(self, record: Record) -> None:
        """Add a record, which has a `rank`."""
        kept = self.by_rank.setdefault(record["rank"], [])
        if len(kept) >= 2 * MOST:
            kept[:] = _thinned(kept)
        kept.append(record)


def _thinned(records: list[Record]) -> list[Record]:
    highest = max(range(len(records)), key=lambda at: _u_of(records[at]))
    found: list[Record] = []
    at, runs = 0, 0
    while at < len(records):
        begin, end = records[at], records[at + 1] if at + 1 < len(records) else {}
        if not _are_one_run(begin, end):
            found.append(begin)
            at += 1
            continue
        runs += 1
        if runs % 2 or highest in (at, at + 1) or begin.get("elapsed_s") == 0:  # a process begins
            found += [begin, end]
        at += 2
    # if no stage ends, as in a damaged file, the latest are kept
    return found if len(found) < 1.9 * MOST else found[-MOST:]


def _are_one_run(begin: Record, end: Record) -> bool:
    """Whether these are a stage's begin and its end, with no other stage between them."""
    same = all(begin.get(key) == end.get(key) for key in ("stage", "thread", "depth"))
    return same and begin.get("event") == "begin" and end.get("event") == "end"


def _u_of(record: Record) -> float:
    snapshot = record.get("snapshot")
    u = snapshot.get("unreclaimable_bytes") if isinstance(snapshot, dict) else None
    return u if isinstance(u, int) and not isinstance(u, bool) else -1
