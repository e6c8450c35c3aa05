"""GPUs of runs in parallel on one node: which one each run gets, and how much of its memory.

A run trains on the first GPU that CUDA shows to it. Each of several runs in parallel therefore sees one GPU,
in turn, of those that the process sees that starts them. A run alone, and each rank of one, sees all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from experiment_utils.quantities import counted
from memory.estimate.available import GPU_SHARE
from memory.measure.gpus import GpuDevice, hides_all, is_ordered, read_gpus, select_visible

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class GpuSlot:
    """GPU of one of several runs in parallel."""

    name: str  # as CUDA_VISIBLE_DEVICES names it: an index, or the UUID of a GPU or a MIG instance
    runs: int  # that share this GPU
    free_bytes: int | None  # of the GPU, before these runs start; None: not known

    @property
    def environment(self) -> dict[str, str]:
        """Variables of the run's process."""
        return {VISIBLE: self.name, **self.share}

    @property
    def share(self) -> dict[str, str]:
        """Environment for `memory.estimate.available`: bytes of the GPU that an automatic choice may use."""
        if self.runs < 2 or self.free_bytes is None:
            return {}
        return {GPU_SHARE: str(self.free_bytes // self.runs)}


def gpu_slots(slots: int, environ: Mapping[str, str] = os.environ) -> list[GpuSlot]:
    """The GPU of each slot, in order. Empty: there is no GPU, or one slot, which sees all of them."""
    if slots < 2 or hides_all(environ):
        return []
    found, places = _visible(environ), []
    for slot in range(slots if found else 0):
        place = slot % len(found)
        name, gpu = found[place]
        runs = -(-(slots - place) // len(found))
        places.append(GpuSlot(name, runs, gpu.total_bytes - gpu.used_bytes if gpu else None))
    return places


def idle_gpus(slots: int, environ: Mapping[str, str] = os.environ) -> str | None:
    """A line if there are more GPUs than runs in parallel."""
    count = len(_visible(environ)) if slots > 1 and not hides_all(environ) else 0
    if count <= slots:
        return None
    return f"{slots} runs in parallel use one GPU each, {count - slots} of {counted(count, 'GPU')} stay idle"


@contextmanager
def planned_with(slots: list[GpuSlot]) -> Iterator[None]:
    """Within the block, plans made here take their share of a GPU: of the least of these."""
    shares = [share for slot in slots for share in slot.share.values()]
    if not shares:
        yield
        return
    before = os.environ.get(GPU_SHARE)
    os.environ[GPU_SHARE] = min(shares, key=int)
    try:
        yield
    finally:
        os.environ.pop(GPU_SHARE)
        if before is not None:
            os.environ[GPU_SHARE] = before


def _visible(environ: Mapping[str, str]) -> list[tuple[str, GpuDevice | None]]:
    """Name and facts of each visible GPU; MIG instances all, though one process sees only the first."""
    gpus, _ = read_gpus()
    visible = environ.get(VISIBLE)
    instances = [instance for gpu in gpus for instance in gpu.instances]
    if visible is None and instances:
        return [(instance.uuid, instance) for instance in instances]
    ordered = is_ordered(gpus, environ)
    if visible is None:
        return [(str(index), gpu if ordered else None) for index, gpu in enumerate(gpus)]
    found: list[tuple[str, GpuDevice | None]] = []
    for name in map(str.strip, visible.split(",")):
        selected = select_visible(gpus, name, is_ordered=ordered)
        if hides_all({VISIBLE: name}) or (gpus and ordered and not selected):
            break  # CUDA ends its list here
        found.append((name, selected[0] if selected else None))
    return found
