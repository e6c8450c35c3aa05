"""Where the memory is: measure this process, its children, its cgroup and its GPU, stage by stage.

    with record_to(folder / "memory.jsonl", attempt=1):
        with stage("open_dataset"):
            ...

The number that decides an OOM kill is U, the unreclaimable memory (anon + shmem + kernel), against
the smallest limit up the cgroup tree; file pages are given back when memory is short. Every record
keeps the two apart. This package imports nothing of ours, and nothing heavy.
"""

from __future__ import annotations

from memory.cgroup import Cgroup
from memory.format import fitted, format_bytes
from memory.gpu import Gpu
from memory.host import Host
from memory.process import Process
from memory.snapshots import Snapshot, snapshot
from memory.stages import Stage, record_to, stage

__all__ = [
    "Cgroup",
    "Gpu",
    "Host",
    "Process",
    "Snapshot",
    "Stage",
    "fitted",
    "format_bytes",
    "record_to",
    "snapshot",
    "stage",
]
