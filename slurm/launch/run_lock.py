"""Whether another copy of a run is alive, when its lock names a process on another machine.

`lock_file.lock` sees the dead only on its own machine. A job that was requeued because its node is lost finds
the lock of its earlier start; and where slurmd alone died, that start is alive, and Slurm starts the job
twice. The process beside a run touches the lock every few seconds (`Heartbeat`): one that stands still is of
the dead. Its change is what counts, not its time: the clocks of two machines differ.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from experiment_utils import atomic_files, lock_file
from experiment_utils.run_folder import read_file
from slurm.cluster.current_job import Job, has_ended
from slurm.records.start_records import is_over_in, read_starts

log = logging.getLogger("slurm")

LOCK = "run.lock"
BEAT_S = 5.0
STILL_S = 25.0
_LATELY_S = 600.0


class Heartbeat:
    """Within the `with` block locks are touched, if they are of this machine. also: done as often."""

    def __init__(self, *locks: Path, beat_s: float = BEAT_S, also: Callable[[], None] = lambda: None) -> None:
        self._locks, self._beat_s, self._also = locks, beat_s, also
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(self._beat_s):
            for path in self._locks:
                if read_file(path).value.get("host") == socket.gethostname():
                    with suppress(OSError):
                        os.utime(path)
            self._also()


def living_holder(
    path: Path,
    what: str,
    job: Job,
    *,
    has_ended: Callable[[str], bool | None] = has_ended,
    still_s: float = STILL_S,
    say: Callable[[str], None] = lambda line: None,
) -> lock_file.Holder | None:
    """Who holds the lock of `what` and lives; None: nobody. What the dead of another machine held is gone.

    Raises:
        UserError: the lock is damaged.
    """
    holder = lock_file.read_holder(path, what)
    if holder is None or holder.is_gone():
        return None
    if holder.host == socket.gethostname() or holder.job_id is None:
        return holder
    over = None if holder.job_id == job.raw_id else has_ended(holder.job_id)
    if over is False:
        return holder
    if over is None or was_touched_lately(path):
        say(f"{holder} held {path}; looking for {still_s:.0f} s whether it is alive")
        if is_touched(path, still_s):
            return holder
    say(f"{holder} is gone: taking over")
    break_lock(path, holder, what)
    return None


def remove_lock_of_the_dead(folder: Path) -> None:
    """Of a run: a process on another machine counts as alive, unless its job has noted its end, or Slurm says
    that its job has ended, and nobody touches the lock.
    """
    path, what = folder / LOCK, f"the run folder {folder}"
    holder = lock_file.read_holder(path, what)
    if holder is None or holder.host == socket.gethostname() or holder.job_id is None or holder.is_copied:
        return
    if _has_noted_its_end(folder, holder):  # others may go on in that job
        break_lock(path, holder, what)
    elif has_ended(holder.job_id):
        if was_touched_lately(path):
            log.info(
                "%s: its job has ended; looking for %.0f s whether %s is alive", folder.name, STILL_S, holder
            )
            if is_touched(path, STILL_S):
                return
        log.info("%s was held by %s, whose job has ended", folder.name, holder)
        break_lock(path, holder, what)


def break_lock(path: Path, holder: lock_file.Holder, what: str) -> None:
    """Remove the lock of a holder on another machine that is known to have ended, and of no other.

    The file is renamed first: if several processes try, on any machine, one gets it. A lock of another holder
    is put back.
    """
    aside = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.gone")
    with suppress(FileNotFoundError):
        path.rename(aside)
        if lock_file.read_holder(aside, what) != holder:
            with suppress(FileExistsError):
                os.link(aside, path)
        aside.unlink()


def _has_noted_its_end(folder: Path, holder: lock_file.Holder) -> bool:
    """Whether the process beside the holder, which outlives it, has seen it end by itself."""
    last = next(reversed(read_starts(folder)), None)
    if last is None or (last.raw_job_id, last.host) != (holder.job_id, holder.host):
        return False
    return is_over_in([last], last.job_id.partition("_")[0])


def is_on_its_own(
    holder: lock_file.Holder, job: Job, *, has_ended: Callable[[str], bool | None] = has_ended
) -> bool:
    """Whether Slurm takes a holder that lives for dead: of an earlier start of this job, or of one now over.

    Slurm ends such a one as soon as its node answers again, and nothing of it is in the queue then.
    """
    if holder.job_id is None:
        return False
    return holder.job_id == job.raw_id or has_ended(holder.job_id) is True


def was_touched_lately(path: Path) -> bool:
    """Slurm says that a job has ended whose slurmd it has lost: its processes may live on. Those of one that
    has not touched its lock for long are dead, whatever the clocks of the two machines are.
    """
    found = _seen(path)
    return found is not None and time.time() - found[1] / 1e9 < _LATELY_S


def is_touched(path: Path, still_s: float = STILL_S) -> bool:
    """Whether somebody touches, replaces or removes it meanwhile: whoever does is alive."""
    until_s, before = time.monotonic() + still_s, _seen(path)
    while before is not None and time.monotonic() < until_s:
        time.sleep(min(1.0, still_s / 10))
        if _seen(path) != before:
            return _seen(path) is not None
    return False


def _seen(path: Path) -> tuple[int, int] | None:
    """Through an open file: NFS asks its server then, and answers stat(2) from its memory."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
    except FileNotFoundError:
        return None
    except OSError as error:  # must not be taken for the lock of a dead process
        raise atomic_files.Unreadable(path, error) from error
    return found.st_ino, found.st_mtime_ns
