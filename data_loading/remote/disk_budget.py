"""A folder of downloaded files that stays within its budget, shared by the processes of a machine.

Each file NAME has one lock, `.NAME.use` (flock(2), which the kernel releases when a process dies): shared by
readers of the file, exclusive for its download or removal. When room is needed, files that nothing locks are
removed, the least recently used first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from data_loading.remote.download import allocate, part_of
from data_loading.remote.stored_files import rounded

_BUDGET_LOCK, _LOCK = ".budget.lock", ".use"
_FOLDER_BYTES = 4096


class NoRoom(Exception):
    """The budget has no room now: the files that are there are in use."""

    def __init__(self, needed_bytes: int, held_bytes: int) -> None:
        super().__init__(f"{needed_bytes} bytes are needed, {held_bytes} are held")
        self.needed_bytes, self.held_bytes = needed_bytes, held_bytes


class Cache:
    """The folder `root`, with a folder for each set."""

    def __init__(self, root: Path, budget_bytes: int | None) -> None:
        self.root = root
        self.budget_bytes = budget_bytes
        """Limit for all that is in the folder; None: the free space of the disk."""

    def held_bytes(self) -> int:
        """Bytes on the disk now (as du counts), with what unfinished downloads will take."""
        held = 0
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                with suppress(FileNotFoundError):
                    stat = os.lstat(path)
                    held += max(rounded(stat.st_size), stat.st_blocks * 512)
        return held

    @contextmanager
    def room(self, needed_bytes: int, *, is_ahead: bool = False) -> Iterator[None]:
        """Make room for files that the block writes; no other process makes room meanwhile.

        Args:
            is_ahead: nothing waits for them: files that were downloaded and not used yet stay.

        Raises:
            NoRoom: everything that is there is in use.
            OSError: from the operating system.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with _locked(self.root / _BUDGET_LOCK, fcntl.LOCK_EX):
            self._make_room(needed_bytes, is_ahead)
            yield

    def reserve(self, path: Path, size: int, *, is_ahead: bool = False) -> None:
        """Give a file its length once there is `room` for it."""
        present = path.stat().st_size if path.exists() else 0
        with self.room(rounded(size) - rounded(present) + _FOLDER_BYTES, is_ahead=is_ahead):
            try:
                allocate(path, size)
            except OSError:
                with suppress(OSError):
                    os.truncate(path, present)
                raise

    def _make_room(self, needed: int, is_ahead: bool) -> None:
        removable: list[Path] | None = None
        while needed > 0:
            stat = os.statvfs(self.root)
            held = 0 if self.budget_bytes is None else self.held_bytes()
            fits = self.budget_bytes is None or held + needed <= self.budget_bytes
            if fits and needed <= stat.f_bavail * stat.f_frsize:
                return
            if removable is None:
                removable = self._least_recently_used(is_ahead)
            if not any(_removed(removable.pop(0)) for _ in range(len(removable))):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if fits else NoRoom(needed, held)

    def _least_recently_used(self, is_ahead: bool) -> list[Path]:
        """Files whose lock was made by a download, the least recently used first."""
        found = []
        for lock in self.root.glob(f"*/.*{_LOCK}"):
            target = lock.with_name(lock.name[1 : -len(_LOCK)])
            for path in (target, part_of(target)):
                with suppress(FileNotFoundError):
                    used, written = lock.stat().st_mtime_ns, path.stat().st_mtime_ns
                    if not (is_ahead and path == target and written >= used):
                        found.append((max(used, written), target))
        return [target for _, target in sorted(found)]


class Hold:
    """Shared lock on a file of the cache: the file stays until `close`, or until this object is collected."""

    def __init__(self, descriptor: int) -> None:
        os.utime(descriptor)
        self.close = weakref.finalize(self, _release, descriptor, os.getpid())


def hold(target: Path) -> Hold | None:
    """Lock a file against removal, whether it exists or not; None: it is downloaded or removed right now."""
    descriptor = _opened(_lock_of(target))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Hold(descriptor)


def alone(target: Path) -> AbstractContextManager[bool]:
    """Lock a file for its download or removal; the block receives False if it is locked already."""
    return _locked(_lock_of(target), fcntl.LOCK_EX | fcntl.LOCK_NB)


def _lock_of(target: Path) -> Path:
    return target.with_name(f".{target.name}{_LOCK}")


def _opened(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


@contextmanager
def _locked(path: Path, how: int) -> Iterator[bool]:
    descriptor = _opened(path)
    try:
        try:
            fcntl.flock(descriptor, how)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process forked meanwhile has a copy of the descriptor
        os.close(descriptor)


def _release(descriptor: int, process: int) -> None:
    if os.getpid() == process:  # a fork shares the lock and leaves it to its parent
        with suppress(OSError):
            os.utime(descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _removed(target: Path) -> bool:
    """Remove a file and its unfinished download unless it is locked; returns whether one was removed."""
    with alone(target) as is_mine:
        paths = [path for path in (target, part_of(target)) if is_mine and path.exists()]
        for path in paths:
            path.unlink()
        return bool(paths)
