"""How threads wait for each other in a step: awake where their cores are free as a run begins, else asleep.

One that waits awake ("spins") goes on at once, which is worth a third of a small model's step; where other
processes want its cores it keeps them from work, and steps take up to twice as long (benchmarks/threads.py).
GNU OpenMP reads GOMP_SPINCOUNT once, when torch is loaded
(https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html).
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from conf import Config
from conf.quantities import counted
from training.device import cores_of_process, resolve_threads

log = logging.getLogger("training")

SPIN_COUNT = "GOMP_SPINCOUNT"
ASLEEP = "1000"
"""Spins before a thread sleeps: microseconds. OpenMP's own 300,000 are milliseconds."""
OF_THE_USER = (SPIN_COUNT, "OMP_WAIT_POLICY")
LOOK_S = 0.2
"""Long enough for /proc/stat, which counts hundredths of a second."""
TOLERATED_CORES = 0.3
"""So much others may use: less than a process that computes, more than what a machine does anyway."""


def settle_waiting(config: Config, kept: Mapping[str, object], *, is_alone: bool) -> None:
    """Choose how the threads of this process wait, by its environment; a choice of the user stays.

    To be called before torch is loaded, and without effect after that. kept: what an earlier attempt chose,
    as for `resolve_device`. is_alone: it is the only rank of its run; several start at once, so that what
    others use tells nothing.
    """
    if "torch" in sys.modules or any(name in os.environ for name in OF_THE_USER):
        return
    threads = resolve_threads(config.training, kept)
    if threads == 1:
        return  # it waits for no other
    cores = cores_of_process()
    used = CoresInUse(cores).by_others() if is_alone else None
    if used is None or used > len(cores) - threads - config.dataset.num_workers + TOLERATED_CORES:
        os.environ[SPIN_COUNT] = ASLEEP
    if used is not None and used > len(cores) - threads + TOLERATED_CORES:
        log.info(
            "others use %.1f of the %s that this run may use for its %s: steps take longer than alone",
            used,
            counted(len(cores), "core"),
            counted(threads, "thread"),
        )


class CoresInUse:
    """What other processes use of these cores, from when this was made."""

    def __init__(self, cores: set[int], proc: str = "/proc") -> None:
        self._cores, self._stat = cores, Path(proc) / "stat"
        self._before = self._now()

    def by_others(self, look_s: float = LOOK_S) -> float | None:
        """In cores, a mean over at least look_s since this was made; None where the system does not tell.

        What a virtual machine's host took of them counts, what this process used does not.
        """
        time.sleep(max(0.0, self._before[0] + look_s - time.monotonic()))
        (began, own_before, busy_before), (ended, own, busy) = self._before, self._now()
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
