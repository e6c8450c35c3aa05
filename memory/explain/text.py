"""An explanation on one screen: the verdict, what says so, what to type."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from experiment_utils.typed_here import wrap
from memory.explain.finding import Advice, Explanation
from memory.explain.measured import NEAR

_MOST_LINES = 9


def as_text(found: Explanation, *, columns: int = 100, colour: bool = False) -> str:
    """For a terminal of so many columns; colour: ANSI codes around the verdict."""
    return "\n".join(_lines(found, max(40, columns), colour))


def _lines(found: Explanation, columns: int, colour: bool) -> Iterator[str]:
    head = _head(found)
    yield f"{_paint(found)}{head}\033[0m" if colour else head
    yield from _wrapped(found.sentence, columns, "")
    quiet = found.verdict == "healthy" and found.cause in ("none", "unknown")
    not_yet = found.peak_bytes is None and (found.is_running or found.is_waiting)
    if found.verdict == "healthy" and not not_yet:
        yield from _wrapped(_how_close(found), columns, "")
    if not quiet:
        yield from _list("Evidence", found.evidence, columns)
        yield from _list("Also seen", _also(found), columns)
        if found.advice:
            yield ""
            yield "What to change, the cheapest first"
            for place, advice in enumerate(found.advice, 1):
                yield from _wrapped(_told(advice), columns, f"  {place}. ")
    yield from _list("What speaks against it", found.doubts, columns)
    if not not_yet and (not quiet or not found.peak_bytes or not found.limit_bytes):
        yield from _list("What is missing", found.missing, columns)


def _head(found: Explanation) -> str:
    if found.verdict == "healthy" and (found.is_running or found.is_waiting):
        return "running" if found.is_running else "waiting"
    cause = f", cause {found.cause} ({found.cause_confidence})" if found.cause_confidence else ""
    return f"{found.verdict} ({found.confidence}){cause}"


def _how_close(found: Explanation) -> str:
    if found.peak_bytes is None:
        return "How close it was is not known."
    if not found.limit_bytes:
        return (
            f"U, the memory that cannot be given back, peaked at {format_bytes(found.peak_bytes)} (sampled). "
            "Its limit is not known."
        )
    share = 100 * found.peak_bytes / found.limit_bytes
    close = "That is near: a little more would be killed." if found.near_limit else "It was not near."
    if found.near_limit and share < 100 * NEAR:
        close = "The limit was met all the same, faster than it was sampled."
    return (
        f"U, the memory that cannot be given back, peaked at {format_bytes(found.peak_bytes)} of "
        f"{format_bytes(found.limit_bytes)} ({share:.0f}%, sampled). {close}"
    )


def _also(found: Explanation) -> tuple[str, ...]:
    """Other causes that have signs of their own."""
    told = {finding.cause: finding for finding in reversed(found.findings) if finding.verdict is None}
    return tuple(
        f"{cause} ({finding.confidence}): {finding.says}"
        for cause, finding in reversed(told.items())
        if cause not in (None, "none", "growth", found.cause)
    )


def _told(advice: Advice) -> str:
    return f"{advice.override}   {advice.text}" if advice.override else advice.text


def _list(title: str, lines: tuple[str, ...], columns: int) -> Iterator[str]:
    if not lines:
        return
    yield ""
    yield title
    for line in lines[:_MOST_LINES]:
        yield from _wrapped(line, columns, "  - ")
    if len(lines) > _MOST_LINES:
        more = len(lines) - _MOST_LINES
        yield f"  - and {more} more line{'s' * (more != 1)}: --json"


def _wrapped(line: str, columns: int, begin: str) -> list[str]:
    clean = "".join(letter if letter.isprintable() else " " for letter in line)
    return wrap(clean, columns, initial_indent=begin, subsequent_indent=" " * len(begin)) or [begin]


def _paint(found: Explanation) -> str:
    if found.verdict == "healthy":
        return "\033[1;33m" if found.near_limit else "\033[1;32m"
    return "\033[1;31m"
