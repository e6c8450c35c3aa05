"""What is still to be had: the limit that counts here, less what others hold of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from memory.accounting.slurm_environment import requested_memory
from memory.estimate import constants
from memory.measure.gpus import is_ordered, visible_gpus
from memory.measure.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from memory.estimate.estimate import Estimate


POLLED = "--mem (Slurm polls RSS)"
"""Where a limit stands that is no cgroup's."""
GPU_SHARE = "HIGHWATER_GPU_SHARE"
"""Variable: bytes of a GPU that a run can choose to use, if runs in parallel share it (slurm.gpus)."""
_MOMENT_S = 10.0
"""Time the driver's answer is used for: the plan of a sweep asks for each run."""


@dataclass(frozen=True)
class Room:
    """In bytes; None where the system does not tell.

    limit_bytes, limit_at: the smallest limit up the cgroup tree, or the machine's memory (`host`), or what
    a caller names (`--mem`). counts_rss: what kills is Slurm's poll of RSS, in which mapped files count, and
    what several processes share counts in each. used_bytes: what others hold of it now, that the kernel
    cannot take back.
    gpu_total_bytes, gpu_used_bytes: of the GPU that a run would take. gpu_share_bytes: this run's share of
    it, if runs in parallel use it. gpu_at: what has that memory, as text. raised: what one types for a limit
    with room for what is estimated; None: it cannot be had.
    """

    limit_bytes: int | None = None
    limit_at: str | None = None
    used_bytes: int = 0
    gpu_total_bytes: int | None = None
    gpu_used_bytes: int = 0
    counts_rss: bool = False
    gpu_share_bytes: int | None = None
    gpu_at: str = "the GPU"
    raised: Callable[[Estimate], str | None] | None = field(default=None, compare=False)

    @property
    def polled_bytes(self) -> int | None:
        """The limit, where Slurm's poll of RSS is what keeps it."""
        return self.limit_bytes if self.limit_at == POLLED else None

    @property
    def free_bytes(self) -> int | None:
        return None if self.limit_bytes is None else max(0, self.limit_bytes - self.used_bytes)

    @property
    def gpu_free_bytes(self) -> int | None:
        if self.gpu_total_bytes is None:
            return None
        return max(0, self.gpu_total_bytes - self.gpu_used_bytes)

    @property
    def gpu_choice_bytes(self) -> int | None:
        """Bytes of the GPU that an automatic choice may use."""
        known = [size for size in (self.gpu_free_bytes, self.gpu_share_bytes) if size is not None]
        return min(known, default=None)

    def to_json(self) -> dict[str, Any]:
        return {
            "limit_bytes": self.limit_bytes,
            "limit_at": self.limit_at,
            "counts_rss": self.counts_rss,
            "used_by_others_bytes": self.used_bytes,
            "free_bytes": self.free_bytes,
            "gpu_total_bytes": self.gpu_total_bytes,
            "gpu_used_bytes": self.gpu_used_bytes,
        }


def room(
    found: Snapshot | None = None,
    *,
    own: bool = False,
    gpu: bool = False,
    waiting_bytes: int = 0,
    counts_rss: bool = False,
) -> Room:
    """The room here and now.

    own: this process is the run itself, so that what it holds is not held by others. waiting_bytes: nor is
    what processes hold that wait for the run, and are a part of its estimate. gpu: ask for the GPU as well:
    torch in the run itself, else the driver (a tenth of a second). counts_rss: Slurm
    polls RSS here, so that what the job asked for is its limit: such a cluster sets none of a cgroup.
    """
    found = snapshot() if found is None else found
    mine = (found.main.anon_bytes or 0) + (found.main.shmem_bytes or 0) if own else 0
    mine += waiting_bytes
    total, available = found.host.total_bytes, found.host.available_bytes
    of_host = None if total is None or available is None else max(0, total - available - mine)
    gpu_total, gpu_used = (
        ((own and _gpu_by_torch()) or _gpu_by_driver(int(time.monotonic() / _MOMENT_S))) if gpu else (None, 0)
    )
    of_gpu = (gpu_total, gpu_used, counts_rss, _gpu_share() if gpu else None)
    limit, at = found.limit_bytes, found.limit_at
    used = max(0, (found.unreclaimable_bytes or 0) - mine) if found.scope == "job" else 0
    asked = requested_memory(os.environ)[0] if counts_rss else None
    if asked is not None and (limit is None or asked < limit):
        limit, at, used = asked, POLLED, 0
    if limit is None or at is None or at == "host":
        return Room(limit, at, of_host or 0, *of_gpu)
    if total is not None and of_host is not None and total - of_host < limit - used:
        # the machine itself has less to give than the limit would allow
        limit, at, used = total, "host", of_host
    return Room(limit, at, used, *of_gpu)


def _gpu_share() -> int | None:
    share = os.environ.get(GPU_SHARE, "")
    return int(share) if share.isdigit() else None


def _gpu_by_torch() -> tuple[int, int] | None:
    """Total bytes of the current GPU, and those that other processes hold; None without torch or a GPU."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_available():
            return None
        free, total = cuda.mem_get_info()  # opens this process's context, which is in its estimate
        return total, max(0, total - free - cuda.memory_reserved() - constants.CUDA_CONTEXT.in_bytes)
    except (AttributeError, RuntimeError, AssertionError):
        return None


@lru_cache(maxsize=1)
def _gpu_by_driver(_moment: int) -> tuple[int | None, int]:
    """Total and used bytes of the GPU that CUDA numbers 0; (None, 0): not known. Asked once a moment."""
    gpus = visible_gpus()
    return (gpus[0].total_bytes, gpus[0].used_bytes) if gpus and is_ordered(gpus) else (None, 0)
