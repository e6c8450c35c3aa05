"""Real cgroups with limits, laid out as Slurm lays them out: on v1, and on v2 where it is mounted."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from memory.files.procfs import read_counters, read_file
from memory.measure.cgroup import find_levels

MB = 1 << 20
_NUMBERS = itertools.count()


class NoCgroup(Exception):
    """None with a limit can be made here; says why."""


@dataclass(frozen=True)
class Cgroups:
    """top/job/task_0 and top/sibling. The limit stands at job, a second one perhaps at top."""

    version: int
    top: Path

    @property
    def job(self) -> Path:
        return self.top / "job"

    @property
    def task(self) -> Path:
        return self.top / "job" / "task_0"

    @property
    def sibling(self) -> Path:
        return self.top / "sibling"

    def folders(self) -> tuple[Path, ...]:
        return (self.task, self.job, self.sibling, self.top)

    def pids(self) -> list[int]:
        """Of all processes in them."""
        found: list[int] = []
        for folder in self.folders():
            with suppress(OSError):
                found.extend(map(int, (folder / "cgroup.procs").read_text().split()))
        return found

    def oom_kills(self) -> int | None:
        """Processes that the kernel killed for memory in job and task_0; v1 counts in the victim's own cgroup
        alone, v2 in all above it too.
        """
        name = "memory.oom_control" if self.version == 1 else "memory.events"
        counts = [read_counters(f"{folder}/{name}").get("oom_kill") for folder in (self.job, self.task)]
        known = [count for count in counts if count is not None]
        return (sum(known) if self.version == 1 else known[0]) if known else None


@contextmanager
def cgroups(
    limit_mb: int,
    *,
    parent_limit_mb: int | None = None,
    high_mb: int | None = None,
    oom_group: bool = False,
) -> Iterator[Cgroups]:
    """Make them below this process's own; afterwards kill what still runs in them, and remove them.

    Raises:
        NoCgroup: that is not possible here.
    """
    version, folders = _places()
    made, reasons = None, []
    for folder in folders:
        made = Cgroups(version, folder / f"highwater_case_{os.getpid()}_{next(_NUMBERS)}")
        try:
            _make(made, limit_mb, parent_limit_mb, high_mb, oom_group)
            break
        except OSError as error:
            reasons.append(str(error))
            _remove(made, within_s=1)
            made = None
    if made is None:
        raise NoCgroup(f"no memory cgroup can be made here: {'; '.join(reasons) or 'none is mounted'}")
    try:
        yield made
    finally:
        _remove(made, within_s=20)


def version_here() -> int | None:
    """Which version counts memory here: 1, 2, or None."""
    version, folders = _places()
    return version if folders else None


def _places() -> tuple[int, list[Path]]:
    """Where to try: our own cgroup, then upwards; a process that stands in the root has no levels."""
    membership = read_file("/proc/self/cgroup")
    if membership is None:  # no Linux
        return 0, []
    version, levels = find_levels("", membership)
    places = [Path(level.folder) for level in levels]
    if version == 2:
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount_point, kind, *_ = line.split()
            controllers = Path(mount_point) / "cgroup.controllers"
            if kind == "cgroup2" and controllers.exists() and "memory" in controllers.read_text().split():
                places.append(Path(mount_point))
    elif not places and Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        places.append(Path("/sys/fs/cgroup/memory"))
    return version, list(dict.fromkeys(places))


def _make(
    made: Cgroups, limit_mb: int, parent_limit_mb: int | None, high_mb: int | None, oom_group: bool
) -> None:
    limit_file = "memory.limit_in_bytes" if made.version == 1 else "memory.max"
    made.top.mkdir()
    if made.version == 2:
        _count_memory_below(made.top.parent)
        _count_memory_below(made.top)
    made.job.mkdir()
    made.sibling.mkdir()
    if made.version == 2:
        _count_memory_below(made.job)
    made.task.mkdir()
    if parent_limit_mb is not None:
        (made.top / limit_file).write_text(str(parent_limit_mb * MB))
    (made.job / limit_file).write_text(str(limit_mb * MB))
    if high_mb is not None:
        (made.job / "memory.high").write_text(str(high_mb * MB))
    if oom_group:
        (made.job / "memory.oom.group").write_text("1")


def _count_memory_below(folder: Path) -> None:
    (folder / "cgroup.subtree_control").write_text("+memory")


def _remove(made: Cgroups, within_s: float) -> None:
    until = time.monotonic() + within_s
    while made.top.exists() and time.monotonic() < until:
        for pid in made.pids():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for folder in made.folders():
            with suppress(OSError):
                folder.rmdir()
        if made.top.exists():
            time.sleep(0.05)
