"""A folder of fetched files that never holds more than its budget, shared by all processes of a node.

Beside a file NAME lie `.NAME.use`, which every process that uses it, or fetches it, holds a shared flock(2)
of, and `.NAME.lock`, held by the one that fetches it. The kernel gives locks back when a process dies,
however it dies. What is in nobody's use may be removed when room is needed, the least recently used first.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import durable
from data_loading.remote.download import allocate, journal_of, no_room, part_of

log = logging.getLogger("data_loading")

_BUDGET_LOCK = ".budget.lock"
_BLOCK_BYTES = 4096
_USE, _FETCH = ".use", ".lock"


class NoRoom(Exception):
    """The budget, or the disk, has no room now: what is there is in use. needed, held: bytes."""

    def __init__(self, needed: int, held: int) -> None:
        super().__init__(f"{needed} bytes are needed, {held} are held")
        self.needed, self.held = needed, held


class Cache:
    """The folder `root`, with a folder for each set. budget_bytes: of all in it; None: what the disk has."""

    def __init__(self, root: Path, budget_bytes: int | None) -> None:
        self.root, self.budget_bytes = root, budget_bytes

    def held_bytes(self) -> int:
        """On the disk now, as du counts, and what is to be written into files that are begun."""
        held = 0
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(os.path.join(folder, name) for name in names)):  # noqa: PTH118
                with suppress(FileNotFoundError):
                    stat = os.lstat(path)
                    held += max(_rounded(stat.st_size), stat.st_blocks * 512)
        return held

    def reserve(self, path: Path, size: int) -> None:
        """Give a file its length, once there is room for it: what is in nobody's use is removed.

        Raises:
            NoRoom: all that is there is in use, or begun.
            OSError: as the system does.
        """
        with self._locked():
            there = path.stat().st_size if path.exists() else 0
            self._make_room(_rounded(size) - _rounded(there) + _BLOCK_BYTES)
            try:
                allocate(path, size)
            except OSError:
                with suppress(OSError):
                    os.truncate(path, there)
                raise

    def write(self, path: Path, data: bytes) -> None:
        """A small file, whole or not at all, within the budget. Raises NoRoom, UserError."""
        with self._locked():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._make_room(_rounded(len(data)) + 2 * _BLOCK_BYTES)
                with durable.atomic_file(path) as file:
                    file.write(data)
            except OSError as error:
                raise no_room(path, len(data), error) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.root / _BUDGET_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise no_room(self.root / _BUDGET_LOCK, 0, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _make_room(self, needed: int) -> None:
        candidates: list[Path] | None = None
        while True:
            held = self.held_bytes()
            stat = os.statvfs(self.root)
            free = stat.f_bavail * stat.f_frsize
            fits = self.budget_bytes is None or held + needed <= self.budget_bytes
            if needed <= 0 or (fits and needed <= free):
                return
            if candidates is None:
                candidates = self._least_recent_first()
            while candidates:
                if _remove_unused(candidates.pop(0)):
                    break
            else:
                if fits:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise NoRoom(needed, held)

    def _least_recent_first(self) -> list[Path]:
        """Files that a process may have used, by the time of their last use."""
        found = []
        for use in self.root.glob(f"*/.*{_USE}"):
            target = use.with_name(use.name[1 : -len(_USE)])
            if target.exists() or part_of(target).exists():
                found.append((use.stat().st_mtime_ns, target))
        return [target for _, target in sorted(found)]


class Use:
    """A file that is in use, there or not, until `close`: nobody removes it."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._use = _open(target, _USE)
        fcntl.flock(self._use, fcntl.LOCK_SH)
        os.utime(self._use)

    @contextmanager
    def fetching(self) -> Iterator[bool]:
        """Whether this process is the one that fetches it now; False: another one does."""
        descriptor = _open(self.target, _FETCH)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            yield False
            return
        try:
            yield True
        finally:
            os.close(descriptor)

    def close(self) -> None:
        with suppress(OSError):
            os.utime(self._use)
        os.close(self._use)


def _open(target: Path, kind: str) -> int:
    path = target.with_name(f".{target.name}{kind}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _remove_unused(target: Path) -> bool:
    descriptor = _open(target, _USE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for path in (target, part_of(target), journal_of(target)):
            path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _rounded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
