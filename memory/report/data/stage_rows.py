"""Stage records, two each time a stage runs, as one row a stage and one span each time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiment_utils.json_values import at_path, finite, integer, mapping

SPANS = 4096
"""Most spans of an attempt that are kept; the shortest are left out."""

_SLACK_BYTES = 1 << 20
"""The kernel's high-water mark is that exact."""


@dataclass
class StageRow:
    """One stage of an attempt, over all times it ran. Amounts in bytes; None if unknown."""

    name: str
    depth: int
    times: int = 0
    seconds: float = 0.0
    unreclaimable_bytes: int | None = None
    """U after the last time that ended."""
    anon_change_bytes: int | None = None
    """Sum of the changes in anonymous memory."""
    peak_bytes: int | None = None
    """High-water mark of resident memory (VmHWM) up to its end."""
    gpu_peak_bytes: int | None = None
    ended: bool = True
    """False if the last record is its begin: the run was lost there."""
    error: str | None = None
    before_bytes: int | None = None
    """U when it first began."""
    highest_bytes: int | None = None
    """Highest known U while it ran: own records, records of stages within it, samples."""
    change_bytes: int | None = None
    """Sum of the changes in U."""
    rss_inside_bytes: int | None = None
    """Most resident memory while it ran, if it was recorded."""
    thread: str | None = None
    """Name of the thread, if it is not the main one."""
    path: tuple[str, ...] = ()
    """Names from the outermost stage to this one."""
    _begun_bytes: int | None = field(default=None, repr=False)

    def saw(self, u: int | None) -> None:
        """Count U of a moment within it."""
        if u is not None:
            self.highest_bytes = u if self.highest_bytes is None else max(self.highest_bytes, u)

    @property
    def peak_rss_bytes(self) -> int | None:
        """Most resident memory while it ran, else the high-water mark; None if it did not end."""
        if not self.ended:
            return None
        return self.peak_bytes if self.rss_inside_bytes is None else self.rss_inside_bytes


@dataclass
class Span:
    """One time that a stage ran, in seconds since the attempt began."""

    name: str
    depth: int
    thread: str | None
    begin_s: float
    end_s: float | None = None
    """None if the run was lost in it."""
    step: int | None = None
    path: tuple[str, ...] = ()
    before_bytes: int | None = None
    after_bytes: int | None = None
    error: str | None = None

    @property
    def seconds(self) -> float:
        return float("inf") if self.end_s is None else self.end_s - self.begin_s


_Stack = list[tuple[StageRow, Span]]


def stage_rows(records: Iterable[dict[str, Any]]) -> list[StageRow]:
    """Rows in the order in which the stages first began; stages within a stage follow it."""
    book = StageBook()
    for record in records:
        book.add(record)
    return book.rows


class StageBook:
    """Takes the records of one rank and attempt, one after the other, and keeps only rows and spans."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str | None, tuple[str, ...]], StageRow] = {}
        self._open: dict[str | None, _Stack] = {}
        self.spans: list[Span] = []
        self.last_at_s = 0.0
        self.hidden_peak_bytes: int | None = None
        """U of the last record's stage by its peak rss, if that is above what records and samples know."""

    @property
    def rows(self) -> list[StageRow]:
        """Rows in the order in which they first began; stages within a stage follow it."""
        order = {key: number for number, key in enumerate(self._rows)}

        def place(key: tuple[str | None, tuple[str, ...]]) -> list[int]:
            thread, path = key
            return [order.get((thread, path[:length]), order[key]) for length in range(1, len(path) + 1)]

        return [self._rows[key] for key in sorted(self._rows, key=place)]

    def add(self, record: dict[str, Any]) -> None:
        """Add a record with a `stage` and an `event`; all else in it may be damaged."""
        # a name that is no UTF-8 cannot be drawn
        name = record["stage"].encode("utf-8", "backslashreplace").decode()
        thread = record.get("thread") if isinstance(record.get("thread"), str) else None
        depth, at_s = max(0, integer(record.get("depth")) or 0), finite(record.get("elapsed_s")) or 0.0
        self.last_at_s = max(self.last_at_s, at_s)
        stack = self._open.setdefault(thread, [])
        u = amount(record, "unreclaimable_bytes")
        if record.get("event") == "end":
            row = self._end(record, self._ended(name, depth, thread, stack), at_s, u)
        else:
            row = self._begin(record, Span(name, depth, thread, at_s, before_bytes=u), stack)
        row.peak_bytes = amount(record, "main", "peak_rss_bytes")
        row.gpu_peak_bytes = amount(record, "gpu", "peak_bytes")
        around = (row, *(outer for outer, _ in stack))
        for seen in around:
            seen.saw(u)
        peak = unreclaimable_at_peak(record)
        self.hidden_peak_bytes = peak if peak and peak > (row.highest_bytes or 0) + _SLACK_BYTES else None
        for seen in around:
            seen.saw(self.hidden_peak_bytes)

    def _begin(self, record: dict[str, Any], span: Span, stack: _Stack) -> StageRow:
        del stack[span.depth :]
        span.path = (*(row.name for row, _ in stack), span.name)
        span.step = integer(at_path(record, "facts.step"))
        row = self._row(span.thread, span.path, span.depth)
        if row.times == 0:
            row.before_bytes = span.before_bytes
        row.times += 1
        row.ended, row._begun_bytes = False, span.before_bytes
        stack.append((row, span))
        self.spans.append(span)
        if len(self.spans) >= 4 * SPANS:
            self.spans = longest(self.spans, 2 * SPANS)
        return row

    def _ended(
        self, name: str, depth: int, thread: str | None, stack: _Stack
    ) -> tuple[StageRow, Span | None]:
        """The stage that ends, with all that was open within it removed from the stack."""
        at = next((i for i in reversed(range(len(stack))) if stack[i][0].name == name), None)
        if at is None:  # its begin was lost
            return self._row(thread, (*(row.name for row, _ in stack[:depth]), name), depth), None
        found = stack[at]
        del stack[at:]
        return found

    def _end(
        self, record: dict[str, Any], ended: tuple[StageRow, Span | None], at_s: float, u: int | None
    ) -> StageRow:
        row, span = ended
        row.ended, row.unreclaimable_bytes = True, u
        row.seconds += finite(record.get("seconds")) or 0.0
        row.error = record["error"] if isinstance(record.get("error"), str) else None
        if span is not None:
            span.end_s, span.after_bytes, span.error = max(at_s, span.begin_s), u, row.error
        anon = integer(mapping(record.get("change")).get("anon_bytes"))
        row.anon_change_bytes = _sum(row.anon_change_bytes, anon)
        if u is not None and row._begun_bytes is not None:
            row.change_bytes = _sum(row.change_bytes, u - row._begun_bytes)
        row._begun_bytes = None
        peak = mapping(record.get("peak"))
        rss = [row.rss_inside_bytes, integer(peak.get("rss_bytes"))]
        row.rss_inside_bytes = max((n for n in rss if n is not None), default=None)
        row.saw(integer(peak.get("sampled_unreclaimable_bytes")))
        return row

    def _row(self, thread: str | None, path: tuple[str, ...], depth: int) -> StageRow:
        key = thread, path
        if key not in self._rows:
            self._rows[key] = StageRow(path[-1], depth, thread=thread, path=path)
        return self._rows[key]


def unreclaimable_at_peak(record: dict[str, Any]) -> int | None:
    """The least that U was at the stage's peak of resident memory: less the files mapped at its ends.

    None if the supervisor's samples within the stage know U. A file that is mapped only within the stage
    counts as U.
    """
    peak, limit = mapping(record.get("peak")), amount(record, "limit_bytes")
    rss, mapped = integer(peak.get("rss_bytes")), amount(record, "main", "file_bytes")
    if rss is None or mapped is None or peak.get("samples"):
        return None
    unmapped = -(integer(mapping(record.get("change")).get("file_bytes")) or 0)
    least = rss - mapped - max(0, unmapped)
    return least if limit is None else min(least, limit)


def longest(spans: Sequence[Span], most: int) -> list[Span]:
    """The `most` longest spans in the order in which they began; one without an end is the longest."""
    if len(spans) <= most:
        return list(spans)
    chosen = sorted(range(len(spans)), key=lambda i: (-spans[i].seconds, i))[:most]
    return [spans[i] for i in sorted(chosen)]


def amount(record: dict[str, Any], *path: str) -> int | None:
    """A number of bytes from the record's snapshot: `amount(record, "job", "anon_bytes")`."""
    return integer(at_path(record, ".".join(("snapshot", *path))))


def _sum(one: int | None, more: int | None) -> int | None:
    return one if more is None else (one or 0) + more
