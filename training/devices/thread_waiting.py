"""How threads wait for each other inside a step: awake while their cores are free, else asleep.

One that waits awake ("spins") goes on at once, which is worth up to half of a small model's step; where
others want its cores it keeps them from work, and two such runs on the same cores take several times as
long (benchmarks/threads.py).

GNU OpenMP reads once, when torch is loaded, how often a thread looks before it sleeps, and another number for
the time in which it has more threads than there are cores
(https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html). So a run whose cores others want makes a few
threads more, which do nothing.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from experiment_utils.quantities import counted
from training.devices.device import cores_of_process

if TYPE_CHECKING:
    from training.devices.device import Device

log = logging.getLogger("training")

SETTINGS = {"GOMP_SPINCOUNT": "300000", "OMP_WAIT_POLICY": "active"}
"""The first is OpenMP's own, about 3 ms; with the second it is 1000 where threads are more than cores."""
LOOK_EVERY_S = 1.0
"""Long for /proc/stat, which counts hundredths of a second."""
TOLERATED_CORES = 0.3
"""So much others may use: less than a process that computes, more than what a machine does anyway."""
MOST_SPARE = 16
"""Threads that are made to have more than cores: not on a large machine of which a run uses a little."""


def prepare_waiting() -> None:
    """Have the threads of this process wait as `watch_cores` finds; what the user's environment says stays.

    To be called before torch is loaded, and without effect after that.
    """
    global _waiting
    if "torch" not in sys.modules and not any(name in os.environ for name in SETTINGS):
        os.environ |= SETTINGS
        _waiting = Waiting()


def watch_cores(device: Device) -> None:
    """From now on threads wait asleep while others use the cores that they need, awake while none does."""
    if _waiting is not None and device.kind == "cpu":
        _waiting.watch(device.threads)


class Waiting:
    """How the threads of this process wait. spare: a team that makes them wait asleep while it is there."""

    def __init__(self, cores: set[int] | None = None) -> None:
        self.spare: SpareTeam | None = None
        self._cores = cores_of_process() if cores is None else cores
        self._in_use = CoresInUse(self._cores)
        self._threads = 1
        self._watcher: threading.Thread | None = None
        self._is_told = False

    def watch(self, threads: int) -> None:
        """Look every second, first of all at the time since this was made. threads: of this process, that
        compute.
        """
        self._threads = threads
        if self._watcher is None and threads > 1:  # one waits for no other
            self._watcher = threading.Thread(target=self._go_on, name="cores", daemon=True)
            self._watcher.start()

    def _go_on(self) -> None:
        """In a thread of its own: a first step and an evaluation may take long, most where others compute."""
        while True:
            self.look(self._threads)
            time.sleep(LOOK_EVERY_S)

    def look(self, threads: int) -> None:
        """What `watch` does each time."""
        used = self._in_use.by_others()
        if used is None:
            return
        free = len(self._cores) - threads + TOLERATED_CORES
        if used <= free:
            if self.spare is not None:
                self.spare.end()
                self.spare = None
            return
        if self.spare is None and 1 < (size := len(self._cores) - threads + 2) <= MOST_SPARE:
            self.spare = SpareTeam(size)
        if not self._is_told:
            self._is_told = True
            log.info(
                "others use %.1f of the %s of this run (%s): steps take longer",
                used,
                counted(len(self._cores), "core"),
                counted(threads, "thread"),
                extra={"screen": "alone"},  # as training.report.log.ALONE
            )


class SpareTeam:
    """Threads of GNU OpenMP that do nothing, `size` with the one that has them. None where torch's OpenMP is
    another.
    """

    def __init__(self, size: int) -> None:
        self._over, self._made = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._have, args=(size,), name="spare", daemon=True)
        self._thread.start()
        self._made.wait()

    def end(self) -> None:
        """Returns when they are gone."""
        self._over.set()
        self._thread.join()

    def _have(self, size: int) -> None:
        """A team is of the thread that asked for it, and ends with it."""
        library = _gnu_openmp()
        if library is not None:
            nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # free(NULL)
            library.GOMP_parallel(nothing, None, ctypes.c_uint(size), ctypes.c_uint(0))
        self._made.set()
        self._over.wait()


class CoresInUse:
    """What other processes use of these cores."""

    def __init__(self, cores: set[int], proc: str = "/proc") -> None:
        self._cores, self._stat = cores, Path(proc) / "stat"
        self._before = self._now()

    def by_others(self) -> float | None:
        """In cores, a mean since the last answer; None where the system does not tell.

        What a virtual machine's host took of them counts, what this process used does not.
        """
        (began, own_before, busy_before), (ended, own, busy) = self._before, self._now()
        self._before = ended, own, busy
        if busy_before is None or busy is None:
            return None
        return max(0.0, (busy - busy_before - (own - own_before)) / (ended - began))

    def _now(self) -> tuple[float, float, float | None]:
        """(time, CPU time of this process, CPU time of its cores), all in seconds."""
        try:
            busy_s = busy_seconds(self._stat.read_text(), self._cores)
        except (OSError, ValueError):
            busy_s = None
        return time.monotonic(), time.process_time(), busy_s


def busy_seconds(stat: str, cores: set[int]) -> float | None:
    """CPU time that these cores spent at work since the machine began, and that its host took of them.

    stat: the text of /proc/stat (proc_stat(5)); None where it does not tell of each of them.

    Raises:
        ValueError: it is no such text.
    """
    busy, missing = 0, {f"cpu{core}" for core in cores}
    for line in stat.splitlines():
        name, _, rest = line.partition(" ")
        if name in missing:
            missing.remove(name)
            user, nice, system, _idle, _iowait, *others = map(int, rest.split()[:8])
            busy += user + nice + system + sum(others)
    return None if missing else busy / os.sysconf("SC_CLK_TCK")


def _gnu_openmp() -> ctypes.CDLL | None:
    """That which torch computes with, where it is this one."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    path = next((line.split(maxsplit=5)[5] for line in lines if "/libgomp" in line), None)
    return None if path is None else ctypes.CDLL(path)


_waiting: Waiting | None = None
