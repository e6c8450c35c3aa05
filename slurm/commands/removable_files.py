"""Files of a study that are not needed any more, and their removal.

checkpoints   of runs that are done: all but the best; of others that have ended: all but the newest and the
              best, from which they resume; half-written ones. Not those that another run is to begin from
snapshots     copies of the code to which no submission with open runs refers
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from experiment_utils import lock_file
from experiment_utils.errors import UserError
from experiment_utils.lease import remove_lapsed
from slurm.launch.code_snapshot import while_removing
from slurm.records.checkpoint_dependencies import wanted_checkpoints
from slurm.records.submissions import run_folders, submissions
from slurm.status.study_status import RunState, study_states
from training.attempt.run_files import LOCK, read_status, run_lock
from training.checkpoint.checkpoints import checkpoint_steps

KEEP = ("best", "last", "none")
_MANIFEST = ".snapshot.json"


@dataclass(frozen=True)
class Item:
    """A file or folder that can be removed."""

    path: Path
    kind: str
    bytes: int
    run: Path | None = None
    """The run that it belongs to; None: the study."""


@dataclass(frozen=True)
class Disk:
    """Disk usage of a study."""

    study: Path
    held_bytes: dict[str, int]
    """Bytes by kind."""
    items: tuple[Item, ...]
    kept_runs: int
    """Number of runs that run, wait, are blocked or cannot be read: all of their files stay."""

    @property
    def freed_bytes(self) -> int:
        return sum(item.bytes for item in self.items)


def look(study: Path, keep: str, entries: Sequence[RunState] | None = None) -> Disk:
    """Find what can be removed. keep: checkpoint of a run that is done: `best`, `last` or `none`."""
    entries = study_states(study) if entries is None else entries
    over = [entry for entry in entries if not entry.is_live and entry.state not in ("blocked", "unreadable")]
    items = [item for entry in over for item in _of_run(entry, keep)]
    ours, needed = _snapshots_below(study.parent, {entry.folder: entry for entry in entries})
    copies = [path for path in sorted(ours - needed) if (path / _MANIFEST).is_file()]
    items += [Item(path, "snapshots", size_of(path)) for path in copies]
    wanted = wanted_checkpoints(study.parent)
    items = [item for item in items if item.path.resolve() not in wanted]
    return Disk(study, _held(study), tuple(items), len(entries) - len(over))


def remove(items: Iterable[Item]) -> tuple[int, list[str]]:
    """Remove them; returns the bytes that were freed, and what could not be removed and why.

    A run that was started since the look is left alone, and so is what was submitted since then needs.
    """
    freed, refused = 0, list[str]()
    by_run = sorted(items, key=lambda item: str(item.run))
    runs = list(dict.fromkeys(item.run for item in by_run if item.run is not None))
    wanted = {path for place in {run.parent.parent for run in runs} for path in wanted_checkpoints(place)}
    remove_lapsed(run / LOCK for run in runs)
    for run, group in groupby(by_run, key=lambda item: item.run):
        its_items = list(group)
        try:
            if run is not None:
                with run_lock(run):
                    freed += _remove(
                        [item for item in its_items if item.path.resolve() not in wanted], refused
                    )
                continue
            for runs_dir in {item.path.parent.parent for item in its_items}:
                with while_removing(runs_dir):
                    ours, needed = _snapshots_below(runs_dir, {})
                    freed += _remove([item for item in its_items if item.path in ours - needed], refused)
        except lock_file.LockHeld as held:
            refused.append(f"{run} was left alone: {held}")
        except BlockingIOError:
            refused.append(f"{its_items[0].path.parent} was left alone: runs are being submitted")
        except OSError as error:
            refused.append(f"{run}: {error.strerror}")
    return freed, refused


def size_of(path: Path) -> int:
    """Bytes on disk of a file, or of all below a folder; links are not followed."""
    total = 0
    with suppress(OSError):
        found = path.lstat()
        total = found.st_blocks * 512
        if stat.S_ISDIR(found.st_mode):
            with os.scandir(path) as entries:
                total += sum(size_of(Path(entry.path)) for entry in entries)
    return total


def _of_run(entry: RunState, keep: str) -> Iterator[Item]:
    folder = entry.folder / "checkpoints"
    names = [f"step-{step:08d}" for step in checkpoint_steps(folder)]
    newest = best = names[-1:]
    with suppress(OSError):
        best = [name for name in [(folder / "best").readlink().name] if name in names] or newest
    stays = {"best": best, "last": newest, "none": []}[keep] if entry.state == "done" else [*newest, *best]
    unfinished = [path.name for pattern in (".step-*.tmp", ".*.removed") for path in folder.glob(pattern)]
    for path in (folder / name for name in (*names, *unfinished) if name not in stays):
        yield Item(path, "checkpoints", size_of(path), entry.folder)


def _snapshots_below(runs_dir: Path, entries: dict[Path, RunState]) -> tuple[set[Path], set[Path]]:
    """Copies of the code that submissions of any study name; those of them that an unfinished run needs.

    Raises:
        atomic_files.Unreadable: a submission cannot be read.
    """
    needed, ours = set[Path](), set[Path]()
    for study in sorted(path for path in runs_dir.glob("*") if path.is_dir()):
        for submission in submissions(study, all_of_them=True):
            if submission.snapshot is not None:
                runs = {name for array in submission.arrays for task in array.tasks for name in task}
                is_open = any(not _is_done(study / name, entries) for name in runs)
                (needed if is_open else ours).add(Path(submission.snapshot).resolve())
    return ours, needed


def _is_done(run: Path, entries: dict[Path, RunState]) -> bool:
    """Whether a run needs no code: it is done, or its folder is gone."""
    if run in entries:
        return entries[run].state == "done"
    with suppress(OSError, UserError):
        return not run.is_dir() or read_status(run).get("state") == "done"
    return False


def _held(study: Path) -> dict[str, int]:
    runs = run_folders(study)
    checkpoints = sum(size_of(run / "checkpoints") for run in runs)
    copies = {Path(one.snapshot).resolve() for one in submissions(study) if one.snapshot}
    return {
        "checkpoints": checkpoints,
        "submissions": size_of(study / ".submissions"),
        "snapshots": sum(map(size_of, copies)),
        "other": sum(map(size_of, runs)) - checkpoints,
    }


def _remove(items: Iterable[Item], refused: list[str]) -> int:
    freed = 0
    for item in items:
        try:
            _remove_path(item.path)
            freed += item.bytes
        except OSError as error:
            refused.append(f"{item.path}: {error.strerror}")
    return freed


def _remove_path(path: Path) -> None:
    """Rename it first: a kill on the way leaves no half checkpoint under a checkpoint's name."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    if not path.name.endswith(".removed"):
        path = path.rename(path.with_name(f".{path.name}.removed"))
    for place, _, _ in os.walk(path):  # a snapshot is read-only
        Path(place).chmod(0o700)
    shutil.rmtree(path)
