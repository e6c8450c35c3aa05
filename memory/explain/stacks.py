"""What the run was doing near its limit: the Python stacks of its black boxes, and the lines of source they
name.

A stack says where it stood at one moment, not who holds the memory: a sign, never a proof.
"""

from __future__ import annotations

import linecache
import os
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
    """file, line, function: as faulthandler writes them. source: that line, blank where it cannot be read."""

    file: str
    line: int
    function: str
    source: str = ""

    @property
    def is_users(self) -> bool:
        return not any(part in self.file for part in _NOT_THE_USERS)

    def __str__(self) -> str:
        told = f"{Path(self.file).name}:{self.line} in {self.function}"
        return f"{told}: {self.source}" if self.source else told


@dataclass(frozen=True)
class _Stack:
    when: str
    anon_mb: int
    heading: int
    is_current: bool
    frames: list[Frame]


def frames(boxes: list[Path], since_s: float | None = None) -> list[Frame]:
    """Of the newest black box with a stack, the innermost frame first; of one from since_s on, where given.

    Of the last round of questions in it the process with the most anon memory, of that the thread that got
    the signal; where that was none of Python's, the main one, which is told last.
    """
    for box in reversed(boxes):
        if box.suffix != ".json" and (found := _parsed(box, since_s)):
            return found
    return []


def ends_within_a_line(boxes: list[Path]) -> bool:
    """Of the newest black box: whether who wrote it stopped there, as faulthandler does not."""
    texts = [box for box in boxes if box.suffix != ".json"]
    try:
        with open(texts[-1], "rb", opener=plain_only) as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except (OSError, IndexError):
        return False


def _time_s(when: str) -> float | None:
    """As the supervisor wrote it, in this machine's time zone, to the second."""
    try:
        return time.mktime(time.strptime(when.strip(), "%Y-%m-%d %H:%M:%S")) + 1
    except (ValueError, OverflowError):
        return None


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
    told = [stack for stack in stacks if stack.frames]
    if since_s is not None:
        told = [stack for stack in told if (_time_s(stack.when) or since_s) >= since_s]
    if not told:
        return []
    of = max(told, key=lambda stack: (stack.when, stack.anon_mb, -stack.heading)).heading
    threads = [stack for stack in told if stack.heading == of]
    return next((stack for stack in threads if stack.is_current), threads[-1]).frames


def _frame(file: str, line: int, function: str) -> Frame:
    try:
        source = linecache.getline(file, line).strip()[:160] if Path(file).is_file() else ""
    except (OSError, ValueError):
        source = ""
    return Frame(file, line, function, source)
