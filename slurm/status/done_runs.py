"""An index of the runs that are done, so that `status` of a large study does not read their files again.

STUDY/.submissions/done.json has the row of each such run, with the time and size of the files that it was
read from. A run whose files differ is read again. Without the file, or if it is damaged, all are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.run_folder import read_file
from slurm.records.submissions import SUBMISSIONS
from slurm.status.run_state import Progress, RunState
from training.attempt.made_by import Code

INDEX = "done.json"
VERSION = 2
_FILES = ("status.json", "outcome.json", "jobs.json")
_LEAST_RUNS = 100
"""A smaller study is read as quickly without an index, and gets none."""


class DoneRuns:
    """The indexes of the studies of some runs."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.rows: dict[Path, RunState] = {}
        """Runs that are known to be done."""
        self._indexes: dict[Path, dict[str, Any]] = {}
        self._files: dict[Path, list[list[int] | None]] = {}
        by_study: dict[Path, list[Path]] = {}
        for folder in folders:
            by_study.setdefault(folder.parent, []).append(folder)
        for study, runs in by_study.items():
            if len(runs) >= _LEAST_RUNS:
                self._read(study, runs)

    def _read(self, study: Path, runs: Sequence[Path]) -> None:
        plain = read_file(f"{study}/{SUBMISSIONS}/{INDEX}").value
        index = plain.get("runs") if plain.get("version") == VERSION else None
        self._indexes[study] = index = index if isinstance(index, dict) else {}
        for run in runs:
            # before the run is read: if it is written meanwhile, it differs at the next look
            self._files[run] = files = [_seen(f"{run}/{name}") for name in _FILES]
            with suppress(TypeError, KeyError, AttributeError):
                if index[run.name]["files"] == files:
                    self.rows[run] = _run_state(run, index[run.name]["row"])

    def write(self, found: Sequence[RunState]) -> None:
        """Add the runs that are done. A study that cannot be written goes without an index."""
        new: dict[Path, dict[str, Any]] = {}
        for one in found:
            if one.state == "done" and one.folder in self._files and one.folder not in self.rows:
                row = {"files": self._files[one.folder], "row": _plain(one)}
                new.setdefault(one.folder.parent, {})[one.name] = row
        for study, rows in new.items():
            index = {"version": VERSION, "runs": self._indexes[study] | rows}
            with suppress(OSError):
                atomic_files.write_text(study / SUBMISSIONS / INDEX, json.dumps(index))


def _seen(path: str) -> list[int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return [found.st_mtime_ns, found.st_size]


def _plain(run: RunState) -> dict[str, Any]:
    """Fields of the row as JSON values, without the notes of one look at Slurm."""
    codes = [None if code is None else [code.hash, code.commit, code.started_s] for code in run.codes]
    return {**vars(run), "folder": None, "notes": (), "progress": vars(run.progress), "codes": codes}


def _run_state(folder: Path, plain: dict[str, Any]) -> RunState:
    """The row again.

    Raises:
        TypeError, KeyError: it is of another version.
    """
    codes = tuple(None if code is None else Code(*code) for code in plain["codes"])
    more = {"folder": folder, "notes": (), "progress": Progress(**plain["progress"]), "codes": codes}
    return RunState(**{**plain, **more})
