"""Processes of runs: the main process of a run, and which runs of this user run now."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_utils.arguments import run_folders
from experiment_utils.run_folder import RunFolder
from experiment_utils.safe_read import changed_s
from memory.files.procfs import exists
from memory.measure.process import started_at
from memory.record.ring import read_head

_FRESH_S = 10.0
"""The ring of a run is written once a second."""


@dataclass(frozen=True)
class Live:
    """The main process of a run."""

    pid: int
    host: str
    attempt: int
    is_here: bool
    """It is alive on this host."""
    began: int | None = None
    """Start in clock ticks after boot; without it, another process can have that number by now."""
    is_elsewhere: bool = False
    """It is on another host, and no supervisor has recorded its end."""


def find_live(folder: Path) -> Live | None:
    """Newest process that is known of a run, alive or not, from its ring, its lock or its status."""
    head = read_head(folder / "memory.ring")
    facts = {} if head is None else head[0]
    sampled = _live(
        folder, facts.get("pid"), facts.get("host"), facts.get("attempt"), facts.get("started_at")
    )
    if sampled is not None and sampled.is_here:
        return sampled
    run = RunFolder(folder)
    holder, status = run.holder, run.status
    if holder is not None:
        if holder.is_copied:
            return None
        return _live(folder, holder.pid, holder.host, status.get("attempt"), holder.started_at) or sampled
    return sampled or _live(folder, status.get("pid"), status.get("host"), status.get("attempt"), None)


def rank_folder(folder: Path, rank: int) -> Path:
    """Folder into which the supervisor of a rank writes: the run's, or `rank3` in it."""
    return folder / f"rank{rank}" if rank else folder


def process_lives(folder: Path) -> bool | None:
    """Whether the run's main process is on this host now; None if that cannot be seen from here."""
    found = find_live(folder)
    if found is None or found.host != os.uname().nodename or not exists("/proc/self"):
        return None
    if found.is_here:
        return True
    return False if found.began or started_at(found.pid) is None else None


def lives(pid: Any, began: Any) -> bool:
    """Whether the process that had this number at this start is alive on this host."""
    return isinstance(pid, int) and began is not None and started_at(min(pid, 2**31)) == began


def running(runs_dir: str | None = None) -> list[Path]:
    """Folders of this user's runs under `runs_dir` that run now: of this host first, the newest first."""
    found = []
    for folder in run_folders(runs_dir):
        try:
            if (folder / "outcome.json").exists() or folder.stat().st_uid != os.getuid():
                continue
            is_alive = process_lives(folder)
            ring_s = changed_s(folder / "memory.ring")
            if is_alive or (is_alive is None and time.time() - ring_s < _FRESH_S):
                live = find_live(folder)
                began = live.began or 0 if live is not None and live.is_here else 0
                found.append((began, ring_s, folder))
        except OSError:
            continue
    return [folder for _, _, folder in sorted(found, reverse=True)]


def _live(folder: Path, pid: Any, host: Any, attempt: Any, began: Any) -> Live | None:
    if not isinstance(pid, int) or not isinstance(host, str):
        return None
    is_local = host == os.uname().nodename
    return Live(
        pid,
        host,
        attempt if isinstance(attempt, int) else 1,
        is_local and lives(pid, began),
        began if isinstance(began, int) else None,
        not is_local and not (folder / "outcome.json").exists(),
    )
