"""What of a study's files is no longer needed, and taking it away: never of a run that runs or waits.

checkpoints   of runs that are done: all but the best; of those that ended otherwise: all but the newest and
              the best, from which they would go on; none that another run is to begin from
left over     half-written checkpoints of runs that were killed
reports       pictures and pages that are drawn anew when they are asked for
submissions   submitit's folders of submissions whose runs are all done
snapshots     copies of the code that no submission with open runs refers to
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from experiment_utils import lock_file
from experiment_utils.errors import UserError
from slurm.launch.code_snapshot import while_removing
from slurm.launch.run_lock import remove_lock_of_the_dead
from slurm.queue.two_phase import side_by_side
from slurm.records.checkpoint_dependencies import wanted_checkpoints
from slurm.records.submissions import run_folders, submissions
from slurm.status.study_status import RunState, study_states
from training.attempt.run_files import read_status, run_lock
from training.checkpoint.checkpoints import checkpoint_steps

KINDS = ("checkpoints", "left over", "reports", "submissions", "snapshots", "other")
KEEP = ("best", "last", "none")
_REPORTS = ("memory.html", "memory-processes.png", "memory-ranks.png", "memory.png", "loss.png")
_MANIFEST = ".snapshot.json"


@dataclass(frozen=True)
class Item:
    """What may go. kind: of KINDS. run: whose it is, None of what belongs to the study."""

    path: Path
    kind: str
    bytes: int
    run: Path | None = None


@dataclass(frozen=True)
class Disk:
    """study: its folder. held_bytes: by kind, now. items: what is not needed. kept_runs: that run, wait or
    cannot be read. kept_for: checkpoints that stay since a run is to begin from them, and which.
    """

    study: Path
    held_bytes: dict[str, int]
    items: tuple[Item, ...]
    kept_runs: int
    kept_for: dict[Path, Path] = field(default_factory=dict)

    @property
    def freed_bytes(self) -> int:
        return sum(item.bytes for item in self.items)


def look(study: Path, keep: str, entries: Sequence[RunState] | None = None) -> Disk:
    """keep: of the checkpoints of a run that is done: `best`, `last` or `none`."""
    entries = study_states(study) if entries is None else entries
    items: list[Item] = []
    for entry in entries:
        if not _is_kept(entry):
            items += _of_run(entry, keep)
    done = {entry.name for entry in entries if entry.state == "done"}
    items += _of_submissions(study, done)
    items += _of_snapshots(study, {entry.folder: entry for entry in entries})
    wanted = wanted_checkpoints(study.parent)
    kept_for = {item.path: wanted[item.path.resolve()] for item in items if item.path.resolve() in wanted}
    items = [item for item in items if item.path not in kept_for]
    return Disk(study, _held(study), tuple(items), sum(map(_is_kept, entries)), kept_for)


def remove(items: Iterable[Item]) -> tuple[int, list[str]]:
    """Take them away; returns the bytes that were freed, and what could not be taken away and why.

    A run is held by its lock meanwhile, so that it cannot be started; one that has just been started is left.
    """
    freed = 0
    refused: list[str] = []
    by_run: dict[Path | None, list[Item]] = {}
    for item in items:
        by_run.setdefault(item.run, []).append(item)
    studies = {run.parent.parent for run in by_run if run is not None}
    wanted = {path for runs_dir in studies for path in wanted_checkpoints(runs_dir)}  # perhaps new since
    side_by_side(remove_lock_of_the_dead, [run for run in by_run if run is not None])
    for run, its_items in by_run.items():
        try:
            if run is None:
                copies = [item for item in its_items if item.kind == "snapshots"]
                freed += _remove_all([item for item in its_items if item not in copies], refused)
                freed += _remove_copies(copies, refused)
            else:
                with run_lock(run):
                    free = [item for item in its_items if item.path.resolve() not in wanted]
                    freed += _remove_all(free, refused)
        except lock_file.LockHeld as held:
            refused.append(f"{run} was left alone: {held}")
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


def _is_kept(entry: RunState) -> bool:
    return entry.is_live or entry.state in ("blocked", "unreadable")


def _of_run(entry: RunState, keep: str) -> Iterator[Item]:
    folder = entry.folder / "checkpoints"
    steps = checkpoint_steps(folder)
    wanted = set(steps[-1:])
    best = _best_step(folder, steps)
    if entry.state != "done":
        wanted |= {best} if best is not None else set()
    elif keep == "none":
        wanted = set()
    elif keep == "best" and best is not None:
        wanted = {best}
    for step in steps:
        if step not in wanted:
            path = folder / f"step-{step:08d}"
            yield Item(path, "checkpoints", size_of(path), entry.folder)
    for pattern in (".step-*.tmp", ".step-*.removed", ".*.removed"):
        for path in folder.glob(pattern):
            yield Item(path, "left over", size_of(path), entry.folder)
    for name in _REPORTS:
        path = entry.folder / name
        if path.is_file():
            yield Item(path, "reports", size_of(path), entry.folder)


def _best_step(folder: Path, steps: Sequence[int]) -> int | None:
    try:
        step = int((folder / "best").readlink().name.rpartition("-")[2])
    except (OSError, ValueError):
        return None
    return step if step in steps else None


def _of_submissions(study: Path, done: set[str]) -> Iterator[Item]:
    for submission in submissions(study):
        names = {name for array in submission.arrays for task in array.tasks for name in task}
        folder = submission.folder / "submitit"
        if names <= done and folder.is_dir():
            yield Item(folder, "submissions", size_of(folder))


def _of_snapshots(study: Path, entries: dict[Path, RunState]) -> Iterator[Item]:
    """Studies under the same runs_dir share them. What is not known as a copy of ours is left."""
    ours, needed = _snapshots_below(study.parent, entries)
    for path in sorted(ours - needed):
        if (path / _MANIFEST).is_file():
            yield Item(path, "snapshots", size_of(path))


def _snapshots_below(runs_dir: Path, entries: dict[Path, RunState]) -> tuple[set[Path], set[Path]]:
    """Copies that submissions name; those of them that a run needs which is not done.

    Raises:
        atomic_files.Unreadable: what a submission of a study needs cannot be read.
    """
    needed: set[Path] = set()
    ours: set[Path] = set()
    for other in sorted(path for path in runs_dir.glob("*") if path.is_dir()):
        for submission in submissions(other, all_of_them=True):
            if submission.snapshot is None:
                continue
            path = Path(submission.snapshot).resolve()
            runs = {name for array in submission.arrays for task in array.tasks for name in task}
            is_open = any(not _is_done(other / name, entries) for name in runs)
            (needed if is_open else ours).add(path)
    return ours, needed


def _is_done(run: Path, entries: dict[Path, RunState]) -> bool:
    """A run whose folder is gone needs no code; a task of a token set, which has no config.yaml, may."""
    if run in entries:
        return entries[run].state == "done"
    with suppress(OSError, UserError):
        return not run.is_dir() or read_status(run).get("state") == "done"
    return False


def _held(study: Path) -> dict[str, int]:
    held = dict.fromkeys(KINDS, 0)
    for run in run_folders(study):
        checkpoints = size_of(run / "checkpoints")
        reports = sum(size_of(run / name) for name in _REPORTS)
        held["checkpoints"] += checkpoints
        held["reports"] += reports
        held["other"] += size_of(run) - checkpoints - reports
    held["submissions"] = size_of(study / ".submissions")
    used = {Path(one.snapshot).resolve() for one in submissions(study) if one.snapshot}
    held["snapshots"] = sum(size_of(path) for path in used)
    return held


def _remove_copies(items: Sequence[Item], refused: list[str]) -> int:
    """Of the code; those that nobody wants who has submitted since they were looked at."""
    if not items:
        return 0
    runs_dir = items[0].path.parent.parent
    try:
        with while_removing(runs_dir):
            ours, needed = _snapshots_below(runs_dir, {})
            return _remove_all([item for item in items if item.path in ours - needed], refused)
    except BlockingIOError:
        refused.append(f"{items[0].path.parent} was left alone: runs are being submitted")
        return 0


def _remove_all(items: Iterable[Item], refused: list[str]) -> int:
    freed = 0
    for item in items:
        try:
            _remove(item.path)
            freed += item.bytes
        except OSError as error:
            refused.append(f"{item.path}: {error.strerror}")
    return freed


def _remove(path: Path) -> None:
    """Renamed first, so that a kill on the way leaves no half checkpoint under a checkpoint's name."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    doomed = (
        path
        if path.name.startswith(".") and path.name.endswith(".removed")
        else path.with_name(f".{path.name}.removed")
    )
    if doomed != path:
        path.rename(doomed)
    for place, _, _ in os.walk(doomed):  # a snapshot is read-only
        Path(place).chmod(0o700)
    shutil.rmtree(doomed)
