"""Measure memory of this process, its children, its cgroup and its GPU, stage by stage.

    with record_to(folder / "memory.jsonl", attempt=1):
        with stage("open_dataset"):
            ...

The number that decides an OOM kill is U, the unreclaimable memory (anon + shmem + kernel), against
the smallest limit up the cgroup tree; file pages are given back when memory is short. Every record
keeps the two apart. This package imports only `experiment_utils`, and nothing heavy.

    files <- measure <- record <- leaks        reading; one moment; a run's records; growth with the steps
             ^   ^         ^
             |   accounting, estimate          what Slurm says; what a run will need
             supervision                       the parent of a run, which watches it from outside
                           ^
    explain, attribute, report, show           why it died; who holds it; pages and pictures; one screen
                           ^
    commands                                   `python -m memory COMMAND`
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiment_utils.quantities import format_bytes as format_bytes
    from memory.leaks.detector import LeakWatch as LeakWatch
    from memory.leaks.detector import find_leak as find_leak
    from memory.leaks.monitor import LeakMonitor as LeakMonitor
    from memory.leaks.monitor import LeakReport as LeakReport
    from memory.measure.cgroup import Cgroup as Cgroup
    from memory.measure.cuda_allocator import Gpu as Gpu
    from memory.measure.host import Host as Host
    from memory.measure.process import Process as Process
    from memory.measure.snapshot import Snapshot as Snapshot
    from memory.measure.snapshot import snapshot as snapshot
    from memory.record.stage_line import fitted as fitted
    from memory.record.stages import Stage as Stage
    from memory.record.stages import record_to as record_to
    from memory.record.stages import stage as stage

_PLACES = {
    "Cgroup": "measure.cgroup",
    "Gpu": "measure.cuda_allocator",
    "Host": "measure.host",
    "LeakMonitor": "leaks.monitor",
    "LeakReport": "leaks.monitor",
    "LeakWatch": "leaks.detector",
    "Process": "measure.process",
    "Snapshot": "measure.snapshot",
    "Stage": "record.stages",
    "find_leak": "leaks.detector",
    "fitted": "record.stage_line",
    "format_bytes": "record.stage_line",
    "record_to": "record.stages",
    "snapshot": "measure.snapshot",
    "stage": "record.stages",
}
"""Loaded where they are used: the supervisor needs few of them, and must stay small."""

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name == "black_box":  # documented as `from memory import black_box; black_box.install()`
        return importlib.import_module(f"{__name__}.record.black_box")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
