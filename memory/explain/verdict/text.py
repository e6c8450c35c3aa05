"""An explanation on one screen: the verdict, its evidence, what to type."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from experiment_utils.typed_here import wrap
from memory.explain.read_signals import NEAR
from memory.explain.verdict.explanation import Explanation

_MOST_LINES = 9


def as_text(found: Explanation, *, columns: int = 100, colour: bool = False) -> str:
    """Format for a terminal; colour: ANSI codes around the verdict."""
    lines = list(_lines(found, max(40, columns)))
    if colour:
        code = "31" if found.verdict != "healthy" else "33" if found.near_limit else "32"
        lines[0] = f"\033[1;{code}m{lines[0]}\033[0m"
    return "\n".join(lines)


def _lines(found: Explanation, columns: int) -> Iterator[str]:
    yield _head(found)
    yield from _wrapped(found.sentence, columns, "")
    is_quiet = found.verdict == "healthy" and found.cause in ("none", "unknown")
    is_not_yet = found.peak_bytes is None and (found.is_running or found.is_waiting)
    if found.verdict == "healthy" and not is_not_yet:
        yield from _wrapped(_how_close(found), columns, "")
    if not is_quiet:
        yield from _list("Evidence", found.evidence, columns)
        yield from _list("Also seen", _also(found), columns)
        if found.advice:
            yield from ("", "What to change, the cheapest first")
            for place, advice in enumerate(found.advice, 1):
                line = f"{advice.override}   {advice.text}" if advice.override else advice.text
                yield from _wrapped(line, columns, f"  {place}. ")
    yield from _list("What speaks against it", found.doubts, columns)
    if not is_not_yet and (not is_quiet or not found.peak_bytes or not found.limit_bytes):
        yield from _list("What is missing", found.missing, columns)


def _head(found: Explanation) -> str:
    if found.verdict == "healthy" and (found.is_running or found.is_waiting):
        return "running" if found.is_running else "waiting"
    names = " or ".join((found.cause, *found.other_causes))
    cause = f", cause {_sure(names, found.cause_confidence)}" if found.cause_confidence else ""
    return f"{_sure(found.verdict, found.confidence)}{cause}"


def _sure(code: str, confidence: str) -> str:
    if confidence == "unknown":
        return code if code == "unknown" else f"perhaps {code}"
    return f"{code} ({confidence})"


def _how_close(found: Explanation) -> str:
    if found.peak_bytes is None:
        return "How close it was is not known."
    held = f"U (what cannot be given back) peaked at {format_bytes(found.peak_bytes)}"
    if not found.limit_bytes:
        return f"{held}, sampled. Its limit is not known."
    share = found.peak_bytes / found.limit_bytes
    close = {
        (True, True): "That is near: a little more would be killed.",
        (True, False): "The limit was met all the same, faster than it was sampled.",
        (False, True): "Much of it was the kernel's own caches, which it gave back: it was not near.",
        (False, False): "It was not near.",
    }[bool(found.near_limit), share >= NEAR]
    return f"{held} of {format_bytes(found.limit_bytes)} ({100 * share:.0f}%), sampled. {close}"


def _also(found: Explanation) -> tuple[str, ...]:
    """Other likely causes, those on which a user can act."""
    shown = ("none", "growth", found.cause, *found.other_causes)
    others = {
        finding.cause: finding
        for finding in reversed(found.findings)
        if finding.verdict is None and finding.cause and finding.rank >= 2 and finding.advice
    }
    return tuple(
        f"{cause} ({finding.confidence}): {finding.says}"
        for cause, finding in reversed(others.items())
        if cause not in shown
    )


def _list(title: str, lines: tuple[str, ...], columns: int) -> Iterator[str]:
    if not lines:
        return
    yield from ("", title)
    for line in lines[:_MOST_LINES]:
        yield from _wrapped(line, columns, "  - ")
    if len(lines) > _MOST_LINES:
        more = len(lines) - _MOST_LINES
        yield f"  - and {more} more line{'s' * (more != 1)}: --json"


def _wrapped(line: str, columns: int, begin: str) -> list[str]:
    clean = "".join(letter if letter.isprintable() else " " for letter in line)
    return wrap(clean, columns, initial_indent=begin, subsequent_indent=" " * len(begin)) or [begin]
