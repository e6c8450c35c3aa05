"""Where the memory is: measure this process, its children, its cgroup and its GPU, stage by stage.

    with record_to(folder / "memory.jsonl", attempt=1):
        with stage("open_dataset"):
            ...

The number that decides an OOM kill is U, the unreclaimable memory (anon + shmem + kernel), against
the smallest limit up the cgroup tree; file pages are given back when memory is short. Every record
keeps the two apart. This package imports nothing of ours, and nothing heavy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from experiment_utils.quantities import format_bytes as format_bytes
    from memory.cgroup import Cgroup as Cgroup
    from memory.format import fitted as fitted
    from memory.gpu import Gpu as Gpu
    from memory.host import Host as Host
    from memory.leak_monitor import LeakMonitor as LeakMonitor
    from memory.leak_monitor import LeakReport as LeakReport
    from memory.leaks import LeakWatch as LeakWatch
    from memory.leaks import find_leak as find_leak
    from memory.process import Process as Process
    from memory.snapshots import Snapshot as Snapshot
    from memory.snapshots import snapshot as snapshot
    from memory.stages import Stage as Stage
    from memory.stages import polled_limit_is as polled_limit_is
    from memory.stages import record_to as record_to
    from memory.stages import stage as stage

_PLACES = {
    "Cgroup": "cgroup",
    "Gpu": "gpu",
    "Host": "host",
    "LeakMonitor": "leak_monitor",
    "LeakReport": "leak_monitor",
    "LeakWatch": "leaks",
    "Process": "process",
    "Snapshot": "snapshots",
    "Stage": "stages",
    "find_leak": "leaks",
    "fitted": "format",
    "format_bytes": "format",
    "polled_limit_is": "stages",
    "record_to": "stages",
    "snapshot": "snapshots",
    "stage": "stages",
}
"""Loaded where they are used: the supervisor needs few of them, and must stay small."""

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"memory.{_PLACES[name]}"), name)
