"""Stage records of a run, as few as explaining it needs: the open ones, the highest, some of the others."""

from __future__ import annotations

from typing import Any

MOST = 4000
"""Of one rank; a record takes some 8 KB."""
Record = dict[str, Any]


class KeptRecords:
    """by_rank: records in their order. Of very many, every second time that a stage ran is left out with both
    of its records, so that what stands open still does. The first, the last and the highest U stay.
    """

    def __init__(self) -> None:
        self.by_rank: dict[int, list[Record]] = {}

    def add(self, record: Record) -> None:
        """One more; its rank is known to be a whole number."""
        kept = self.by_rank.setdefault(record["rank"], [])
        if len(kept) >= 2 * MOST:
            kept[:] = _thinned(kept)
        kept.append(record)


def _thinned(records: list[Record]) -> list[Record]:
    highest = max(range(len(records)), key=lambda at: _u_of(records[at]))
    found: list[Record] = []
    at, times = 0, 0
    while at < len(records):
        both = records[at : at + 2]
        if len(both) == 2 and _are_one_time(*both):
            times += 1
            if times % 2 or highest in (at, at + 1) or both[0].get("elapsed_s") == 0:  # a process begins
                found += both
            at += 2
        else:
            found.append(records[at])
            at += 1
    # where nothing ends, as in a damaged file, the latest are kept
    return found if len(found) < 1.9 * MOST else found[-MOST:]


def _are_one_time(begin: Record, end: Record) -> bool:
    """Is this a stage's begin, and its end directly behind it?"""
    same = all(begin.get(key) == end.get(key) for key in ("stage", "thread", "depth"))
    return same and begin.get("event") == "begin" and end.get("event") == "end"


def _u_of(record: Record) -> float:
    snapshot = record.get("snapshot")
    u = snapshot.get("unreclaimable_bytes") if isinstance(snapshot, dict) else None
    return u if isinstance(u, int) and not isinstance(u, bool) else -1
