"""RUN/attempts/N/: files of attempt N. Those of the newest attempt are in the run folder itself.

Each file names its attempt and is moved by one rename(2): a kill between two moves loses nothing, and the
next start moves the rest. Older run folders have all attempts in one memory.jsonl.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from experiment_utils.safe_read import read_end, read_plain
from memory.record.ring import read_head

LOGS = ("log.txt", "stderr.txt", "stdout.txt")
"""Files of a run folder that take the output of its processes."""

FOLDER = "attempts"
_OF_SUPERVISOR = ("outcome.json", "memory.ring")
_LAST_LINE_BYTES = 64 << 10


def attempt_after(folder: str | os.PathLike[str]) -> int:
    """Number of the next attempt of a command in this folder; 1 if no supervisor has left files in it."""
    try:
        kept = [int(name) for name in os.listdir(os.path.join(folder, FOLDER)) if name.isdecimal()]
    except OSError:
        kept = []
    last = max(kept, default=0)
    paths = [path for name in _OF_SUPERVISOR if os.path.lexists(path := os.path.join(folder, name))]
    return 1 + max([last, *(_attempt_of(path) or last + 1 for path in paths)])


def keep_earlier(folder: str | os.PathLike[str], attempt: int, names: Iterable[str]) -> None:
    """Move files of an earlier attempt to its folder as `attempt` begins. Never raises.

    A file that does not name its attempt belongs to the one before. A file that cannot be moved stays.
    """
    for name in names:
        path = os.path.join(folder, name)
        if not os.path.lexists(path):
            continue
        number = _attempt_of(path) or attempt - 1
        if number in (0, attempt):
            continue
        place = os.path.join(folder, FOLDER, str(number))
        try:
            os.makedirs(place, exist_ok=True)
            if not os.path.lexists(os.path.join(place, name)):
                os.rename(path, os.path.join(place, name))
        except OSError:
            continue


def _attempt_of(path: str) -> int | None:
    try:
        if path.endswith(".ring"):
            head = read_head(path)
            found = head[0] if head else {}
        else:
            lines = read_end(path, _LAST_LINE_BYTES).split(b"\n")[:-1]
            whole = (line for line in reversed(lines) if line.startswith(b"{") and line.endswith(b"}"))
            found = json.loads(next(whole, b"") if path.endswith(".jsonl") else read_plain(path, 1 << 20))
        attempt = found.get("attempt")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return attempt if isinstance(attempt, int) and attempt > 0 else None
