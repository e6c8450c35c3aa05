"""memory.jsonl, which has two records a stage each time it runs, as one row a stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class StageRow:
    """One stage of an attempt, all times it ran. Amounts in bytes, None where the system does not tell.

    unreclaimable_bytes: U after its last time. anon_change_bytes: sum of the changes in anonymous
    memory. peak_bytes: the high-water mark of resident memory (VmHWM) up to its end; gpu_peak_bytes
    the same of the GPU. ended: False when the last record is its begin: there the run was lost.
    """

    name: str
    depth: int
    times: int = 0
    seconds: float = 0.0
    unreclaimable_bytes: int | None = None
    anon_change_bytes: int | None = None
    peak_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    ended: bool = True
    error: str | None = None


def stage_rows(records: Iterable[dict[str, Any]]) -> list[StageRow]:
    """Rows in the order in which the stages first began, those within a stage behind it."""
    rows: dict[tuple[str, int], StageRow] = {}
    for record in records:
        key = record["stage"], record.get("depth", 0)
        row = rows.setdefault(key, StageRow(*key))
        row.ended = record["event"] == "end"
        row.unreclaimable_bytes = amount(record, "unreclaimable_bytes")
        row.peak_bytes = amount(record, "main", "peak_rss_bytes")
        row.gpu_peak_bytes = amount(record, "gpu", "peak_bytes")
        if not row.ended:
            row.times += 1
            continue
        row.seconds += record.get("seconds", 0.0)
        row.error = record.get("error")
        change = record.get("change", {}).get("anon_bytes")
        if isinstance(change, int):
            row.anon_change_bytes = (row.anon_change_bytes or 0) + change
    return list(rows.values())


def amount(record: dict[str, Any], *path: str) -> int | None:
    """A number of bytes from the record's snapshot: `amount(record, "job", "anon_bytes")`."""
    node: Any = record["snapshot"]
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node if isinstance(node, int) else None


@dataclass(frozen=True)
class StageSpan:
    """One time that a stage ran: the indices of its two records; without an end, of the newest record."""

    name: str
    begin: int
    end: int


def stage_spans(records: Sequence[dict[str, Any]]) -> list[StageSpan]:
    """The stages of the main thread that are in no other one, in the order in which they ran."""
    spans: list[StageSpan] = []
    begun: int | None = None
    for index, record in enumerate(records):
        if record.get("depth", 0) > 0 or "thread" in record:
            continue
        if begun is not None:
            spans.append(StageSpan(records[begun]["stage"], begun, index))
        begun = index if record["event"] == "begin" else None
    if begun is not None:
        spans.append(StageSpan(records[begun]["stage"], begun, len(records) - 1))
    return spans
