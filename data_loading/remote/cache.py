"""A folder of fetched files that never holds more than its budget, shared by all processes of a node.

Beside a file NAME lie `.NAME.use`, which every process that uses it, or fetches it, holds a shared flock(2)
of; `.NAME.ahead`, which those hold that have it here and will use it later; and `.NAME.lock`, held by the one
that fetches it. The kernel gives locks back when a process dies, however it dies. What nobody holds may be
removed when room is needed, the least recently used first. What is only held ahead gives way to what a
process waits for: else two that keep what they want later would wait for each other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from data_loading.remote.download import allocate, journal_of, no_room, part_of
from experiment_utils import atomic_files

_BUDGET_LOCK, _SHORT_LOCK = ".budget.lock", ".short.lock"
_BLOCK_BYTES = 4096
_USE, _AHEAD, _FETCH = ".use", ".ahead", ".lock"


class NoRoom(Exception):
    """The budget, or the disk, has no room now: what is there is in use. needed, held: bytes."""

    def __init__(self, needed: int, held: int) -> None:
        super().__init__(f"{needed} bytes are needed, {held} are held")
        self.needed, self.held = needed, held


class Cache:
    """The folder `root`, with a folder for each set. budget_bytes: of all in it; None: what the disk has."""

    def __init__(self, root: Path, budget_bytes: int | None) -> None:
        self.root, self.budget_bytes = root, budget_bytes
        self._short: int | None = None
        self._asking = threading.Lock()

    def held_bytes(self) -> int:
        """On the disk now, as du counts, and what is to be written into files that are begun."""
        held = 0
        for folder, _, names in os.walk(self.root):
            for path in (folder, *(f"{folder}/{name}" for name in names)):
                with suppress(FileNotFoundError):
                    stat = os.lstat(path)
                    held += max(_rounded(stat.st_size), stat.st_blocks * 512)
        return held

    def reserve(self, path: Path, size: int, *, is_ahead: bool = False) -> None:
        """Give a file its length, once there is room for it: what nobody holds is removed. Unless is_ahead,
        so is what is only held ahead.

        Raises:
            NoRoom: all that is there is in use, or begun; or this is ahead and others wait for room.
            OSError: as the system does.
        """
        with self._locked():
            there = path.stat().st_size if path.exists() else 0
            self._make_room(_rounded(size) - _rounded(there) + _BLOCK_BYTES, is_ahead)
            try:
                allocate(path, size)
            except OSError:
                with suppress(OSError):
                    os.truncate(path, there)
                raise

    def write(self, path: Path, data: bytes, *, is_ahead: bool = False) -> None:
        """A small file, whole or not at all, within the budget, as `reserve`. Raises NoRoom, UserError."""
        with self._locked():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._make_room(_rounded(len(data)) + 2 * _BLOCK_BYTES, is_ahead)
                with atomic_files.atomic_file(path) as file:
                    file.write(data)
            except OSError as error:
                raise no_room(path, len(data), error) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.root / _BUDGET_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise no_room(self.root / _BUDGET_LOCK, 0, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def set_short(self, is_short: bool) -> None:
        """Say whether this process waits for room for what it needs now: others fetch nothing ahead then."""
        if is_short and self._short is None:
            self._short = os.open(self.root / _SHORT_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            fcntl.flock(self._short, fcntl.LOCK_SH)
        elif not is_short and self._short is not None:
            os.close(self._short)
            self._short = None

    def someone_is_short(self) -> bool:
        """Whether a process waits for room. One that asks at the same moment may be taken for it."""
        with self._asking, suppress(FileNotFoundError):
            descriptor = os.open(self.root / _SHORT_LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
        return False

    def _make_room(self, needed: int, is_ahead: bool) -> None:
        candidates: list[tuple[Path, bool]] | None = None
        if is_ahead and needed > 0 and self.someone_is_short():
            raise NoRoom(needed, self.held_bytes())
        while True:
            held = self.held_bytes()
            stat = os.statvfs(self.root)
            free = stat.f_bavail * stat.f_frsize
            fits = self.budget_bytes is None or held + needed <= self.budget_bytes
            if needed <= 0 or (fits and needed <= free):
                return
            if candidates is None:
                there = self._least_recent_first()
                candidates = [(target, False) for target in there]
                # Of what is held ahead the last that came is wanted last.
                candidates += [] if is_ahead else [(target, True) for target in reversed(there)]
            while candidates:
                if _removed(*candidates.pop(0)):
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
    """A hold on a file, there or not, until `close`. It begins as one for now: nobody removes the file."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._now: int | None = None
        self._ahead: int | None = None
        self.for_now()

    @property
    def is_for_now(self) -> bool:
        return self._now is not None

    def for_now(self) -> None:
        """Nobody removes the file from here on. Whether it is still there is to be looked at after this."""
        if self._now is None:
            self._now = _shared(self.target, _USE)
            os.utime(self._now)
        _closed(self._ahead)
        self._ahead = None

    def for_later(self) -> None:
        """The file may go where another process needs the room now."""
        if self._ahead is None:
            self._ahead = _shared(self.target, _AHEAD)
        self._let_go()

    @contextmanager
    def fetching(self) -> Iterator[bool]:
        """Whether this process is the one that fetches it now; False: another one does."""
        with _alone(self.target, _FETCH) as mine:
            yield mine

    def close(self) -> None:
        self._let_go()
        _closed(self._ahead)
        self._ahead = None

    def _let_go(self) -> None:
        if self._now is not None:
            with suppress(OSError):
                os.utime(self._now)
        _closed(self._now)
        self._now = None


def _open(target: Path, kind: str) -> int:
    path = target.with_name(f".{target.name}{kind}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _shared(target: Path, kind: str) -> int:
    descriptor = _open(target, kind)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


@contextmanager
def _alone(target: Path, kind: str) -> Iterator[bool]:
    """Whether nobody else holds this lock, which is then held to the end of the block."""
    descriptor = _open(target, kind)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _closed(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _removed(target: Path, also_wanted: bool) -> bool:
    """Whether it could go. also_wanted: also where somebody holds it ahead."""
    with _alone(target, _USE) as is_unused, _alone(target, _AHEAD) as is_unwanted:
        if not is_unused or not (is_unwanted or also_wanted):
            return False
        paths = [path for path in (target, part_of(target), journal_of(target)) if path.exists()]
        for path in paths:
            path.unlink(missing_ok=True)
        return bool(paths)


def _rounded(size: int) -> int:
    return -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
