"""Python stacks of the run near its limit, from its black boxes, with the lines of source that they name.

A stack says where the run was at one moment, not what holds the memory: a sign, never a proof.
"""

from __future__ import annotations

import linecache
import re
import time
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.safe_read import read_end

_FRAME = re.compile(r'^\s*File "(?P<file>[^"\n]+)", line (?P<line>\d{1,7}) in (?P<function>\S+)', re.M)
_ROUND = re.compile(r"^== (?P<when>\d[\d-]{9} [\d:]{8})", re.M)
_STACK = re.compile(r"^(?=.*most recent call first)", re.M)
_NOT_THE_USERS = ("site-packages", "dist-packages", "/lib/python3", "<frozen", "<string>")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Frame:
    """A frame as faulthandler writes it."""

    file: str
    line: int
    function: str

    @property
    def source(self) -> str:
        """That line of the file; empty if it cannot be read."""
        try:
            return linecache.getline(self.file, self.line).strip()[:160] if Path(self.file).is_file() else ""
        except (OSError, ValueError):
            return ""

    @property
    def is_users(self) -> bool:
        """In a file of the program itself, not of a library."""
        return not any(part in self.file for part in _NOT_THE_USERS)

    def __str__(self) -> str:
        place = f"{Path(self.file).name}:{self.line} in {self.function}"
        return f"{place}: {self.source}" if self.source else place


def frames(boxes: list[Path], since_s: float) -> list[Frame]:
    """The newest stack from since_s on, the innermost frame first: of the thread that got the signal."""
    for box in reversed([box for box in boxes if box.suffix != ".json"]):
        try:
            content = read_end(box, _MOST_BYTES).decode(errors="replace")
        except OSError:
            continue
        rounds = _ROUND.split(content)  # text, when, text, when, text ...
        texts = [
            text
            for when, text in zip(["", *rounds[1::2]], rounds[::2], strict=True)
            if _is_new(when, since_s)
        ]
        stacks = [stack for text in texts for stack in _STACK.split(text) if _FRAME.search(stack)]
        current = [stack for stack in stacks if stack.startswith("Current thread")] or stacks
        if current:
            return [
                Frame(each["file"], int(each["line"]), each["function"])
                for each in _FRAME.finditer(current[-1])
            ]
    return []


def _is_new(when: str, since_s: float) -> bool:
    """Whether a round, whose time is in this machine's time zone to the second, came after since_s."""
    try:
        return not when or time.mktime(time.strptime(when, "%Y-%m-%d %H:%M:%S")) + 1 >= since_s
    except (ValueError, OverflowError):
        return True
