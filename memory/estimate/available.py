"""Memory that is available here: the limit that applies to this process, less what others hold of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memory.accounting.slurm_environment import requested_memory
from memory.estimate.constants import CUDA_CONTEXT
from memory.measure.gpus import is_ordered, visible_gpus
from memory.measure.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from memory.estimate.estimate import Estimate

GPU_SHARE = "HIGHWATER_GPU_SHARE"
"""Variable: bytes of a GPU that a run can choose to use, if runs in parallel share it (slurm.gpus)."""
_MOMENT_S = 10.0
"""Time the driver's answer is used for: the plan of a sweep asks for each run."""


@dataclass(frozen=True)
class Room:
    """Available memory in bytes; None: not known."""

    limit_bytes: int | None = None
    """The smallest limit up the cgroup tree, what the job requested from Slurm, or the machine's memory."""
    limit_at: str | None = None
    """Which of them: a cgroup's path, `--mem`, or `host`."""
    used_bytes: int = 0
    """Part of the limit that others hold and the kernel cannot reclaim."""
    gpu_total_bytes: int | None = None
    gpu_used_bytes: int = 0
    gpu_share_bytes: int | None = None
    """This run's share of the GPU, if runs in parallel use it."""
    gpu_at: str = "the GPU"
    """Device that has the GPU memory, as text."""
    swapped_bytes: int = 0
    """Pages of this job that are in swap."""
    raised: Callable[[Estimate], str | None] | None = field(default=None, compare=False)
    """Override that raises the limit enough for an estimate; None: it cannot be raised."""

    @property
    def free_bytes(self) -> int | None:
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.used_bytes)

    @property
    def gpu_free_bytes(self) -> int | None:
        return None if self.gpu_total_bytes is None else max(0, self.gpu_total_bytes - self.gpu_used_bytes)

    @property
    def gpu_choice_bytes(self) -> int | None:
        """Bytes of the GPU that an automatic choice may use."""
        known = [size for size in (self.gpu_free_bytes, self.gpu_share_bytes) if size is not None]
        return min(known, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "limit_bytes": self.limit_bytes,
            "limit_at": self.limit_at,
            "used_by_others_bytes": self.used_bytes,
            "free_bytes": self.free_bytes,
            "gpu_total_bytes": self.gpu_total_bytes,
            "gpu_used_bytes": self.gpu_used_bytes,
        }


def room(
    found: Snapshot | None = None, *, own: bool = False, gpu: bool = False, waiting_bytes: int = 0
) -> Room:
    """Return the memory that is available here and now.

    Args:
        found: what was measured, by default now.
        own: this process is the run, so that its memory is not held by others.
        gpu: ask for the GPU as well: torch if this is the run, else the driver (a tenth of a second).
        waiting_bytes: held by processes that wait for the run and are a part of its estimate.
    """
    found = snapshot() if found is None else found
    mine = (found.main.anon_bytes or 0) + (found.main.shmem_bytes or 0) if own else 0
    mine += waiting_bytes
    total, available = found.host.total_bytes, found.host.available_bytes
    of_host = None if total is None or available is None else max(0, total - available - mine)
    limit, at = found.limit_bytes, found.limit_at
    used = max(0, (found.unreclaimable_bytes or 0) - mine) if found.scope == "job" else 0
    requested = requested_memory(os.environ)[0]
    if requested is not None and (limit is None or requested < limit):  # a site that sets no cgroup limit
        limit, at, used = requested, "--mem", 0
    if limit is None or at is None or at == "host":
        used = of_host or 0
    elif total is not None and of_host is not None and total - of_host < limit - used:
        limit, at, used = total, "host", of_host  # the machine has less to give than the limit would allow
    swapped = (found.job.swap_bytes if found.job is not None else None) or 0
    if not gpu:
        return Room(limit, at, used, swapped_bytes=swapped)
    of_gpu = (own and _gpu_by_torch()) or _gpu_by_driver(int(time.monotonic() / _MOMENT_S))
    share = os.environ.get(GPU_SHARE, "")
    return Room(limit, at, used, *of_gpu, int(share) if share.isdigit() else None, swapped_bytes=swapped)


def _gpu_by_torch() -> tuple[int, int] | None:
    """Total bytes of the current GPU, and those that other processes hold; None without torch or a GPU."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_available():
            return None
        free, total = cuda.mem_get_info()  # opens this process's context, which is in its estimate
        return total, max(0, total - free - cuda.memory_reserved() - CUDA_CONTEXT.in_bytes)
    except (AttributeError, RuntimeError, AssertionError):
        return None


@lru_cache(maxsize=1)
def _gpu_by_driver(_moment: int) -> tuple[int | None, int]:
    """Total and used bytes of the GPU that CUDA numbers 0; (None, 0): not known. Asked once a moment."""
    gpus = visible_gpus()
    return (gpus[0].total_bytes, gpus[0].used_bytes) if gpus and is_ordered(gpus) else (None, 0)
