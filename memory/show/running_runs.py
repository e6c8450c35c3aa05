"""Which runs run now, on this host, of this user: for a command that was given no RUN."""

from __future__ import annotations

import os
import time
from pathlib import Path

from experiment_utils.arguments import run_folders
from experiment_utils.safe_read import changed_s
from memory.show.find_live import process_lives

_FRESH_S = 10.0
"""Of a run on another host its ring is written once a second."""


def running(runs_dir: str | None = None) -> list[Path]:
    """Folders of this user's runs under `runs_dir` that run now, the one that began last first."""
    found = []
    for folder in run_folders(runs_dir):
        try:
            if (folder / "outcome.json").exists() or folder.stat().st_uid != os.getuid():
                continue
            lives = process_lives(folder)
            ring_s = changed_s(folder / "memory.ring")
            if lives or (lives is None and time.time() - ring_s < _FRESH_S):
                found.append((changed_s(folder / "run.lock") or ring_s, folder))
        except OSError:
            continue
    return [folder for _, folder in sorted(found, reverse=True)]
