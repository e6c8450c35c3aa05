"""memory.jsonl, which has two records a stage each time it runs, as one row a stage and one span a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from experiment_utils.json_values import at_path, finite, integer

SPANS = 4096
"""Of an attempt, so many are kept apart; of more, the shortest are left out."""


@dataclass
class StageRow:
    """One stage of an attempt, all times it ran. Amounts in bytes, None where the system does not tell.

    before_bytes: U as it first began. unreclaimable_bytes: U after the last time that ended. highest_bytes:
    the highest U that is known of its times: of its own records, those within it, and samples. change_bytes,
    anon_change_bytes: sums of the changes in U and in anonymous memory. peak_bytes: the high-water mark
    of resident memory (VmHWM) up to its end; gpu_peak_bytes the same of the GPU. rss_inside_bytes: the most
    within its times, where it was recorded. ended: False when the last record is its begin: there the run
    was lost. thread: of a stage in another thread than the main one. path: from the outermost stage to it.
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
    before_bytes: int | None = None
    highest_bytes: int | None = None
    change_bytes: int | None = None
    rss_inside_bytes: int | None = None
    thread: str | None = None
    path: tuple[str, ...] = ()
    _begun_bytes: int | None = field(default=None, repr=False)

    def saw(self, u: int | None) -> None:
        """U at a moment within it."""
        if u is not None:
            self.highest_bytes = u if self.highest_bytes is None else max(self.highest_bytes, u)


def stage_rows(records: Iterable[dict[str, Any]]) -> list[StageRow]:
    """Rows in the order in which the stages first began, those within a stage behind it."""
    book = StageBook()
    for record in records:
        book.add(record)
    return book.rows


class StageBook:
    """Takes records one after the other, of one rank and attempt, and keeps only what a report tells."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str | None, tuple[str, ...]], StageRow] = {}
        self._open: dict[str | None, list[tuple[StageRow, Span]]] = {}
        self.spans: list[Span] = []
        self.last_at_s = 0.0

    @property
    def rows(self) -> list[StageRow]:
        """In the order in which they first began; a stage's own directly behind it."""
        order = {key: number for number, key in enumerate(self._rows)}

        def place(key: tuple[str | None, tuple[str, ...]]) -> list[int]:
            thread, path = key
            return [order.get((thread, path[:length]), order[key]) for length in range(1, len(path) + 1)]

        return [self._rows[key] for key in sorted(self._rows, key=place)]

    def add(self, record: dict[str, Any]) -> None:
        """A record with a `stage` and an `event`; whatever else it holds may be damaged."""
        # half a letter, of a file's name that is no UTF-8, cannot be drawn
        name = record["stage"].encode("utf-8", "backslashreplace").decode()
        thread = record.get("thread")
        thread = thread if isinstance(thread, str) else None
        depth = max(0, integer(record.get("depth")) or 0)
        at_s = finite(record.get("elapsed_s")) or 0.0
        self.last_at_s = max(self.last_at_s, at_s)
        stack = self._open.setdefault(thread, [])
        if record.get("event") == "end":
            self._end(record, name, depth, thread, at_s, stack)
        else:
            self._begin(record, name, depth, thread, at_s, stack)

    def _begin(
        self,
        record: dict[str, Any],
        name: str,
        depth: int,
        thread: str | None,
        at_s: float,
        stack: list[tuple[StageRow, Span]],
    ) -> None:
        del stack[depth:]
        path = (*(row.name for row, _ in stack), name)
        row = self._row(thread, path, depth)
        u = amount(record, "unreclaimable_bytes")
        if row.times == 0:
            row.before_bytes = u
        row.times += 1
        row.ended, row._begun_bytes = False, u
        after = row.unreclaimable_bytes
        self._note(row, record, u, stack)
        row.unreclaimable_bytes = after  # until it ends
        step = integer(at_path(record, "facts.step"))
        span = Span(name, depth, thread, at_s, None, step, path, before_bytes=u)
        stack.append((row, span))
        self._keep(span)

    def _end(
        self,
        record: dict[str, Any],
        name: str,
        depth: int,
        thread: str | None,
        at_s: float,
        stack: list[tuple[StageRow, Span]],
    ) -> None:
        at = next((i for i in reversed(range(len(stack))) if stack[i][0].name == name), None)
        if at is None:  # its begin was lost
            row = self._row(thread, (*(row.name for row, _ in stack[:depth]), name), depth)
        else:
            row, span = stack[at]
            span.end_s = max(at_s, span.begin_s)
            span.after_bytes = amount(record, "unreclaimable_bytes")
            error = record.get("error")
            span.error = error if isinstance(error, str) else None
            del stack[at:]
        u = amount(record, "unreclaimable_bytes")
        row.ended = True
        row.seconds += finite(record.get("seconds")) or 0.0
        error = record.get("error")
        row.error = error if isinstance(error, str) else None
        change = record.get("change")
        row.anon_change_bytes = _sum(
            row.anon_change_bytes, integer(change.get("anon_bytes")) if isinstance(change, dict) else None
        )
        if u is not None and row._begun_bytes is not None:
            row.change_bytes = _sum(row.change_bytes, u - row._begun_bytes)
        row._begun_bytes = None
        peak = record.get("peak")
        if isinstance(peak, dict):
            rss = integer(peak.get("rss_bytes"))
            row.rss_inside_bytes = max(
                (n for n in (row.rss_inside_bytes, rss) if n is not None), default=None
            )
            row.saw(integer(peak.get("sampled_unreclaimable_bytes")))
        self._note(row, record, u, stack)

    def _note(
        self, row: StageRow, record: dict[str, Any], u: int | None, stack: list[tuple[StageRow, Span]]
    ) -> None:
        row.unreclaimable_bytes = u
        row.peak_bytes = amount(record, "main", "peak_rss_bytes")
        row.gpu_peak_bytes = amount(record, "gpu", "peak_bytes")
        for seen in (row, *(outer for outer, _ in stack)):
            seen.saw(u)

    def _row(self, thread: str | None, path: tuple[str, ...], depth: int) -> StageRow:
        key = thread, path
        if key not in self._rows:
            self._rows[key] = StageRow(path[-1], depth, thread=thread, path=path)
        return self._rows[key]

    def _keep(self, span: Span) -> None:
        self.spans.append(span)
        if len(self.spans) >= 4 * SPANS:
            self.spans = longest(self.spans, 2 * SPANS)


@dataclass
class Span:
    """One time that a stage ran, in seconds since the attempt began; end_s: None where the run was lost."""

    name: str
    depth: int
    thread: str | None
    begin_s: float
    end_s: float | None = None
    step: int | None = None
    path: tuple[str, ...] = ()
    before_bytes: int | None = None
    after_bytes: int | None = None
    error: str | None = None

    @property
    def seconds(self) -> float:
        return float("inf") if self.end_s is None else self.end_s - self.begin_s


def longest(spans: Sequence[Span], most: int) -> list[Span]:
    """So many at most: the longest, in the order in which they began; what never ended is the longest."""
    if len(spans) <= most:
        return list(spans)
    chosen = sorted(range(len(spans)), key=lambda i: (-spans[i].seconds, i))[:most]
    return [spans[i] for i in sorted(chosen)]


def amount(record: dict[str, Any], *path: str) -> int | None:
    """A number of bytes from the record's snapshot: `amount(record, "job", "anon_bytes")`."""
    return integer(at_path(record, ".".join(("snapshot", *path))))


def _sum(one: int | None, more: int | None) -> int | None:
    return one if more is None else (one or 0) + more
