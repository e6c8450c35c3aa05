"""Leases: lock files that their holder touches, so that processes on other hosts see whether it lives.

A holder on this host that has ended loses its lease at once. Of a holder on another host only the file says
whether it lives: a process that wants the lease watches it, and takes it over when it has not changed for
LAPSE_S by its own clock. The clocks of two hosts are never compared. A holder that was stopped or cut off for
so long finds another token in the file before its next write, and ends without writing.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files, lock_file
from experiment_utils.exit_status import LEASE_LOST
from experiment_utils.lock_file import Holder, LockHeld

log = logging.getLogger("lease")

LAPSE_S = float(os.environ.get("HIGHWATER_LEASE_S") or 60)
"""A lease that was not touched for this time is taken over. It is touched six times as often, and a holder
reads it again before a write if its last touch is two thirds of this ago."""
TOKEN = "HIGHWATER_LEASE"
"""Environment variable: token of the leases that this process and its children share."""


def new_token() -> str:
    """A random token."""
    return os.urandom(8).hex()


def touch_s() -> float:
    """Seconds between two touches."""
    return LAPSE_S / 6


class Lease:
    """A lease that this process or one that it has started holds, until the end of a `with` block."""

    def __init__(self, path: Path, what: str, token: str) -> None:
        self.path, self.what, self.token = path, what, token
        self._touched_s = _now_s()

    def touch(self) -> bool:
        """Touch the file if the lease is still held; returns whether it is.

        Raises:
            OSError: the file cannot be read now.
        """
        now_s = _now_s()
        try:
            with open(self.path, "rb") as file:
                if json.loads(file.read()).get("token") != self.token:
                    return False
                os.utime(file.fileno())  # of this file, even if another one has its name by now
        except (FileNotFoundError, ValueError, AttributeError):
            return False
        self._touched_s = now_s
        return True

    def check(self) -> None:
        """End this process if the lease was lost: at once, without a write of its threads and handlers."""
        if _now_s() - self._touched_s >= LAPSE_S * 2 / 3 and not self.touch():
            self._end_process()

    def beat(self) -> None:
        """Touch the file; end this process if the lease was lost."""
        with suppress(OSError):
            if not self.touch():
                self._end_process()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        """Release it."""
        with suppress(OSError):
            if self.touch():
                self.path.unlink()

    def _end_process(self) -> None:
        line = f"error: this process lost {self.what}: {self.path} was taken over or removed. It ends\n"
        with suppress(OSError):
            os.write(2, line.encode())
        os._exit(LEASE_LOST)


class Watch:
    """Repeated looks at leases of other processes, which tell those that live from those that have ended."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[int, int], float]] = {}
        self._living: set[Path] = set()

    def holder(self, path: Path, what: str) -> Holder | None:
        """The process that holds the lease; None if it is free. That of a process that has ended is removed.

        Raises:
            UserError: the file is damaged, or cannot be read.
        """
        while (found := lock_file.version(path)) is not None:
            holder = lock_file.read_holder(path, what)
            if holder is None:
                continue
            if not holder.is_gone() and not self._has_lapsed(path, holder, found):
                return holder
            lock_file.remove(path, found)
            self._living.discard(path)
        return None

    def lives(self, path: Path) -> bool:
        """Whether the holder was seen alive; False: a later look will tell."""
        return path in self._living

    def _has_lapsed(self, path: Path, holder: Holder, found: tuple[int, int]) -> bool:
        # earlier versions, which wrote no token, touched the lock of a run in a job
        is_touched = holder.token is not None or holder.job_id is not None
        if holder.host == socket.gethostname() or not is_touched:
            self._living.add(path)
            return False
        before, since_s = self._seen.get(path, (None, 0.0))
        if before != found:
            self._seen[path] = found, time.monotonic()
            if before is None:
                log.info("%s is held by %s; looking for %g s whether it lives", path, holder, LAPSE_S)
            else:
                self._living.add(path)
            return False
        return time.monotonic() - since_s >= LAPSE_S


def take(path: Path, what: str, watch: Watch) -> Lease:
    """Take a lease that is free, without waiting.

    Raises:
        LockHeld: a process holds it that lives, or of which `watch` does not know yet whether it lives.
        UserError: the file is damaged, or cannot be read.
    """
    token = os.environ.get(TOKEN) or new_token()
    while not lock_file.create(path, token):
        holder = watch.holder(path, what)
        if holder is not None and holder.token == token:  # of the process that has started this one
            lock_file.create(path, token, replace=True)
            break
        if holder is not None:
            raise LockHeld(path, holder, what)
    return Lease(path, what, token)


@contextmanager
def hold(path: Path, what: str) -> Iterator[Lease]:
    """Hold a lease for the length of the block; a process that loses it ends with exit status LEASE_LOST.

    A holder on another host is watched, for LAPSE_S at most.

    Raises:
        LockHeld: a process that lives holds it.
        UserError: the file is damaged, or cannot be read.
    """
    remove_lapsed([path])
    with take(path, what, Watch()) as held:
        atomic_files.guards.append(held.check)
        try:
            with Periodic(touch_s(), held.beat):
                yield held
        finally:
            atomic_files.guards.remove(held.check)


def remove_lapsed(paths: Iterable[Path]) -> None:
    """Remove the leases of run folders whose holders have ended; those on other hosts are watched together.

    Raises:
        UserError: a file is damaged, or cannot be read.
    """
    watch, left = Watch(), list(paths)
    while left := [
        path for path in left if watch.holder(path, f"the run folder {path.parent}") and not watch.lives(path)
    ]:
        time.sleep(look_s())


def look_s() -> float:
    """Seconds between two looks at the lease of another process."""
    return min(1.0, LAPSE_S / 20)


class Periodic:
    """Within the `with` block a thread calls `call` every `every_s` seconds."""

    def __init__(self, every_s: float, call: Callable[[], Any]) -> None:
        self._every_s, self._call = every_s, call
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="periodic", daemon=True)

    def __enter__(self) -> Periodic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._over.wait(self._every_s):
            self._call()


def _now_s() -> float:
    """Seconds of a clock that also counts while the machine is suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
