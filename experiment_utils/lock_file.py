"""Lock files that name the process that holds them, also across the nodes of a cluster."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

from experiment_utils.atomic_files import read_object, reading
from experiment_utils.errors import UserError
from experiment_utils.safe_read import is_copy


@dataclass(frozen=True)
class Holder:
    """The process that holds a lock."""

    host: str
    pid: int
    started_at: int
    """Start of the process in clock ticks after boot, 0 if unknown."""
    since: str
    job_id: str | None
    folder: str | None = None
    """Folder of the lock file."""
    token: str | None = None
    """Random, for a lease (`experiment_utils.lease`): no other lease has it."""
    is_copied: bool = False
    """The lock file came with a copy of that folder, and locks nothing here."""

    def __str__(self) -> str:
        job = f", Slurm job {self.job_id}" if self.job_id else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"

    def is_gone(self) -> bool:
        """Whether the holder ran on this host and has ended. A holder on another host counts as alive."""
        is_here = self.host == socket.gethostname()
        return self.is_copied or (is_here and _started_at(self.pid) != self.started_at)


class LockHeld(UserError):
    """Another process (`holder`) holds the lock file `path` of `what`."""

    def __init__(self, path: Path, holder: Holder, what: str) -> None:
        self.path, self.holder, self.what = path, holder, what
        super().__init__(
            f"{what} is in use by {holder}. Wait for it, or stop it with `kill {holder.pid}` on "
            f"{holder.host}. If that process is surely gone, remove {path}"
        )


@contextmanager
def lock(path: str | Path, what: str, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock file for the length of the block.

    The file is created with O_EXCL, which also holds over NFS and Lustre where flock may not leave
    the node, and names its holder. A lock whose holder died on this host is taken over.

    Raises:
        LockHeld: when another process still holds it after `wait_s` seconds.
        UserError: when the file is there but names no holder.
    """
    path = Path(path)
    deadline = time.monotonic() + wait_s
    while not create(path):
        found, holder = version(path), read_holder(path, what)
        if holder is not None and holder.is_gone():
            remove(path, found)
        elif time.monotonic() >= deadline:
            if holder is not None:
                raise LockHeld(path, holder, what)
        else:
            time.sleep(0.2)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            path.unlink()


def create(path: Path, token: str | None = None, *, replace: bool = False) -> bool:
    """Create a lock file that names this process; False if it exists.

    It is written under another name, then linked, which fails if it exists.

    Args:
        path: of the lock file.
        token: of a lease.
        replace: an existing file is replaced.
    """
    holder = Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at=_started_at(os.getpid()),
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
        job_id=os.environ.get("SLURM_JOB_ID"),
        folder=os.path.realpath(path.parent),
        token=token,
    )
    candidate = path.with_name(f".{path.name}.{holder.host}.{holder.pid}")
    candidate.write_text(json.dumps(asdict(holder)))
    try:
        if replace:
            candidate.rename(path)
        else:
            os.link(candidate, path)
    except FileExistsError:
        return False
    finally:
        candidate.unlink(missing_ok=True)
    _remove_candidates_of_the_dead(path, holder.host)
    return True


def _remove_candidates_of_the_dead(path: Path, host: str) -> None:
    """Remove files of processes that were killed between writing a candidate and linking it."""
    for candidate in path.parent.glob(f".{path.name}.{host}.*"):
        pid = candidate.name.rpartition(".")[2]
        if pid.isdigit() and _started_at(int(pid)) == 0:
            candidate.unlink(missing_ok=True)


def read_holder(path: Path, what: str) -> Holder | None:
    """Holder of the lock file, None if it does not exist. Keys that a later version has added are ignored.

    Raises:
        UserError: it is no lock file, or cannot be read. They are made whole: no process is just writing it.
    """
    try:
        found = read_object(path)
        if found is None:
            return None
        known = {field.name: found[field.name] for field in fields(Holder) if field.default is MISSING}
        folder, token = found.get("folder"), found.get("token")
        return Holder(**known, folder=folder, token=token, is_copied=is_copy(path.parent, folder))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} locks {what}, but was damaged and does not name the process that holds it. When none "
            f"works there any more, remove it: {shlex.join(['rm', str(path)])}"
        ) from error


def version(path: Path) -> tuple[int, int] | None:
    """Inode and time of the last change (ns) of a lock file; None without one.

    It is read through an open file: NFS then asks its server, and answers stat(2) from its cache.

    Raises:
        Unreadable: it exists and cannot be opened, which says nothing about its holder.
    """
    try:
        with reading(path), open(path, "rb") as file:
            found = os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns


def remove(path: Path, found: tuple[int, int] | None) -> None:
    """Remove the lock file of a holder that has ended, unless it has changed since it had this version.

    Of several processes one removes it: on one host flock(2) sees to that, on several the rename to a name of
    its own. A file that another process has created meanwhile is put back.
    """
    aside = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.gone")
    mode = "r+" if os.access(path, os.W_OK) else "r"  # NFS locks only what is open for writing
    with suppress(FileNotFoundError), open(path, mode) as file:
        with suppress(OSError):  # a file system without flock
            fcntl.flock(file, fcntl.LOCK_EX)
        if version(path) != found:
            return
        path.rename(aside)
        if version(aside) != found:
            with suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()


def _started_at(pid: int) -> int:
    """Start of the process in clock ticks after boot (proc(5), field 22 of stat); 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
