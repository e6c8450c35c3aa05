"""The process of a run that runs now, on this host: told by its ring, its lock or its status."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_utils.run_folder import RunFolder
from memory.files.procfs import exists
from memory.measure.process import started_at
from memory.record.ring import read_head


@dataclass(frozen=True)
class Live:
    """pid: of the run's main process. host: where. attempt: of the run. is_here: it lives on this host.
    began: clock ticks after boot, where that was noted.
    """

    pid: int
    host: str
    attempt: int
    is_here: bool
    began: int | None = None


def find_live(folder: Path) -> Live | None:
    """The newest process that is known of the run, alive or not; None where none is."""
    head = read_head(folder / "memory.ring")
    if head is not None:
        facts = head[0]
        found = _live(facts.get("pid"), facts.get("host"), facts.get("attempt"), facts.get("started_at"))
        if found is not None and found.is_here:
            return found
    else:
        found = None
    run = RunFolder(folder)
    holder, status = run.holder, run.status
    if holder is not None:
        own = _live(holder.pid, holder.host, status.get("attempt"), holder.started_at)
        return None if holder.is_copied else own or found
    return found or _live(status.get("pid"), status.get("host"), status.get("attempt"), None)


def rank_folder(folder: Path, rank: int) -> Path:
    """What the supervisor of a rank writes into: the run's folder, or `rank3` in it."""
    return folder / f"rank{rank}" if rank else folder


def process_lives(folder: Path) -> bool | None:
    """Whether the run's main process is on this host now; None: that cannot be seen from here."""
    found = find_live(folder)
    if found is None or found.host != os.uname().nodename or not exists("/proc/self"):
        return None
    if found.is_here:
        return True
    # without the time of its start, one of that number may be another
    return False if found.began or started_at(found.pid) is None else None


def _live(pid: Any, host: Any, attempt: Any, began: Any) -> Live | None:
    if not isinstance(pid, int) or not isinstance(host, str):
        return None
    # without the time of its start, another process may have its number by now
    here = host == os.uname().nodename
    lives = here and began is not None and started_at(min(pid, 2**31)) == began
    noted = began if isinstance(began, int) else None
    return Live(pid, host, attempt if isinstance(attempt, int) else 1, lives, noted)
