"""Waiting of a step's threads for each other: awake on cores of their own, asleep on shared cores.

A thread that waits awake ("spins") continues immediately, which is worth up to a tenth of a small model's
step. If other processes want the cores, it keeps them from work, and two such runs on the same cores take
several times as long (benchmarks/threads.py). GNU OpenMP reads how long a thread spins once, when torch is
loaded (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html). So the choice is made before that,
from what other processes use of the cores while this one imports its modules.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from experiment_utils.quantities import counted
from training.devices.device import cores_of_process

if TYPE_CHECKING:
    from training.devices.device import Device

log = logging.getLogger("training")

VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
ASLEEP = {"GOMP_SPINCOUNT": "1000"}
"""About 10 microseconds; the default of GNU OpenMP is 300,000, about 3 ms."""
TOLERATED_CORES = 0.3
"""Use by other processes that changes nothing: less than one that computes, more than an idle machine's."""


def cpu_times(stat: Path = Path("/proc/stat")) -> tuple[float, float, float | None]:
    """(time, CPU time of this process, CPU time of its cores) in seconds; None: the system has no such file.

    Time that the host of a virtual machine took from the cores counts as theirs (proc_stat(5)).
    """
    names, busy_ticks = {f"cpu{core}" for core in cores_of_process()}, 0
    try:
        for line in stat.read_text().splitlines():
            name, *ticks = line.split()
            if name in names:
                user, nice, system, _idle, _iowait, *others = map(int, ticks[:8])
                busy_ticks += user + nice + system + sum(others)
    except (OSError, ValueError):
        return time.monotonic(), time.process_time(), None
    return time.monotonic(), time.process_time(), busy_ticks / os.sysconf("SC_CLK_TCK")


_at_import = cpu_times()
_used_by_others = 0.0


def choose_waiting() -> None:
    """Let threads of this process wait asleep if other processes use its cores.

    To be called before torch is loaded; a variable that the user has set decides instead.
    """
    global _used_by_others
    (began_s, own_before_s, busy_before_s), (ended_s, own_s, busy_s) = _at_import, cpu_times()
    if "torch" in sys.modules or any(name in os.environ for name in VARIABLES):
        return
    if busy_s is not None and busy_before_s is not None:
        used = (busy_s - busy_before_s - (own_s - own_before_s)) / (ended_s - began_s)
        if used > TOLERATED_CORES:
            os.environ |= ASLEEP
            _used_by_others = used


def log_shared_cores(device: Device) -> None:
    """Log that steps take longer than alone, if `choose_waiting` found other processes on the cores."""
    if _used_by_others and device.kind == "cpu":
        log.info(
            "others use %.1f of the %s that this run may use for its %s: steps take longer than alone",
            _used_by_others,
            counted(len(cores_of_process()), "core"),
            counted(device.threads, "thread"),
            extra={"screen": "alone"},  # as training.report.log.ALONE
        )
