"""Python stacks of the run near its limit, from its black boxes, with the lines of source that they name.

A stack says where the run was at one moment, not who holds the memory: a sign, never a proof.
"""

from __future__ import annotations

import linecache
import re
import time
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.safe_read import plain_only

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
_HEADING = re.compile(r"^== (?P<when>[\d: -]{10,25})[^\n]*?(?:anon (?P<anon>\d{1,12}) MB)? ?==$")
_NOT_THE_USERS = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "<string>")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Frame:
    """A frame as faulthandler writes it."""

    file: str
    line: int
    function: str
    source: str = ""
    """That line; empty if it cannot be read."""

    @property
    def is_users(self) -> bool:
        return not any(part in self.file for part in _NOT_THE_USERS)

    def __str__(self) -> str:
        place = f"{Path(self.file).name}:{self.line} in {self.function}"
        return f"{place}: {self.source}" if self.source else place


@dataclass(frozen=True)
class _Stack:
    when: str
    anon_mb: int
    heading: int
    is_current: bool
    frames: list[Frame]


def frames(boxes: list[Path], since_s: float | None = None) -> list[Frame]:
    """The newest stack from since_s on, the innermost frame first.

    Of the last round of questions the process with the most anon memory, and of that the thread that got the
    signal;
    the main thread, which is written last, if that was none of Python's.
    """
    for box in reversed(boxes):
        if box.suffix != ".json" and (found := _parsed(box, since_s)):
            return found
    return []


def _parsed(box: Path, since_s: float | None) -> list[Frame]:
    try:
        with open(box, encoding="utf-8", errors="replace", opener=plain_only) as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return []
    stacks: list[_Stack] = []
    when, anon, headings = "", 0, 0
    for line in lines:
        if heading := _HEADING.match(line):
            when, anon, headings = heading["when"], int(heading["anon"] or 0), headings + 1
        elif "most recent call first" in line:
            stacks.append(_Stack(when, anon, headings, line.startswith("Current thread"), []))
        elif (match := _FRAME.match(line)) and stacks and len(match["line"]) < 8:
            stacks[-1].frames.append(_frame(match["file"], int(match["line"]), match["function"]))
    known = [stack for stack in stacks if stack.frames]
    if since_s is not None:
        known = [stack for stack in known if (_time_s(stack.when) or since_s) >= since_s]
    if not known:
        return []
    last = max(known, key=lambda stack: (stack.when, stack.anon_mb, -stack.heading)).heading
    threads = [stack for stack in known if stack.heading == last]
    return next((stack for stack in threads if stack.is_current), threads[-1]).frames


def _time_s(when: str) -> float | None:
    """Unix time of a heading, which is in this machine's time zone, to the second."""
    try:
        return time.mktime(time.strptime(when.strip(), "%Y-%m-%d %H:%M:%S")) + 1
    except (ValueError, OverflowError):
        return None


def _frame(file: str, line: int, function: str) -> Frame:
    try:
        source = linecache.getline(file, line).strip()[:160] if Path(file).is_file() else ""
    except (OSError, ValueError):
        source = ""
    return Frame(file, line, function, source)
