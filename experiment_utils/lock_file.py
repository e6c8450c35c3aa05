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

from experiment_utils.atomic_files import read_object
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
    while not _try_lock(path):
        holder = read_holder(path, what)
        if holder is not None and holder.is_gone():
            _remove_stale(path, holder, what)
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


def _try_lock(path: Path) -> bool:
    """Create the lock file: written under another name, then linked, which fails if it exists."""
    holder = Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        started_at=_started_at(os.getpid()),
        since=time.strftime("%Y-%m-%d %H:%M:%S"),
        job_id=os.environ.get("SLURM_JOB_ID"),
        folder=os.path.realpath(path.parent),
    )
    candidate = path.with_name(f".{path.name}.{holder.host}.{holder.pid}")
    candidate.write_text(json.dumps(asdict(holder)))
    try:
        os.link(candidate, path)
    except FileExistsError:
        return False
    finally:
        candidate.unlink()
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
        folder = found.get("folder")
        return Holder(**known, folder=folder, is_copied=is_copy(path.parent, folder))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} locks {what}, but was damaged and does not name the process that holds it. When none "
            f"works there any more, remove it: {shlex.join(['rm', str(path)])}"
        ) from error


def _remove_stale(path: Path, holder: Holder, what: str) -> None:
    """Remove the lock file of a holder that has ended, unless another process was faster.

    Only processes on this host compete (`is_gone`), so flock serves. A new file of the same name has another
    inode.
    """
    with suppress(FileNotFoundError), open(path, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_ino == path.stat().st_ino and read_holder(path, what) == holder:
            path.unlink()


def _started_at(pid: int) -> int:
    """Start of the process in clock ticks after boot (proc(5), field 22 of stat); 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in "ZX" else int(fields[19])
