"""What the allocators themselves say: malloc's free memory, Python's allocation sites, CUDA's snapshot."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import tracemalloc
from pathlib import Path
from typing import Any

from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed

_CUDA_HISTORY = 100_000
"""Allocations whose stacks torch keeps for a snapshot: about 100 MB on the host at most."""


class _Mallinfo2(ctypes.Structure):
    """mallinfo2(3), glibc 2.33."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
            "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def read_malloc() -> dict[str, int] | None:
    """glibc's own count over all arenas, in bytes: in use, free but kept, in maps of their own; else None."""
    try:
        call = ctypes.CDLL(None).mallinfo2
        call.restype = _Mallinfo2
        found = call()
    except (OSError, AttributeError, TypeError):
        return None
    return {"in_use_bytes": found.uordblks, "free_bytes": found.fordblks, "mapped_bytes": found.hblkhd}


def allocation_sites(count: int = 10) -> list[dict[str, Any]] | None:
    """Lines of Python code that hold the most memory, by tracemalloc; None where it does not trace.

    It traces when Python is started with PYTHONTRACEMALLOC=1 (a run is several times slower then).
    """
    if not tracemalloc.is_tracing():
        return None
    statistics = tracemalloc.take_snapshot().statistics("lineno")[:count]
    return [
        {
            "site": f"{found.traceback[0].filename}:{found.traceback[0].lineno}",
            "bytes": found.size,
            "blocks": found.count,
        }
        for found in statistics
    ]


def memray_sites(path: Path, count: int = 10) -> list[dict[str, Any]]:
    """The same at the highest point of a recording that `memray run -o PATH` made.

    Raises:
        UserError: memray is not installed, or the file is no recording of it.
    """
    check_installed("memray", "memray", f"reading {path}")
    memray = importlib.import_module("memray")
    try:
        with memray.FileReader(str(path)) as reader:
            records = list(reader.get_high_watermark_allocation_records(merge_threads=True))
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{path} is no recording of memray that can be read: {error}", code="not-a-memray-recording"
        ) from None
    sites: dict[str, list[int]] = {}
    for record in records:
        trace = record.stack_trace(max_stacks=1)
        site = f"{trace[0][1]}:{trace[0][2]}" if trace else "outside Python"
        amounts = sites.setdefault(site, [0, 0])
        amounts[0] += record.size
        amounts[1] += record.n_allocations
    ranked = sorted(sites.items(), key=lambda item: -item[1][0])[:count]
    return [{"site": site, "bytes": size, "blocks": blocks} for site, (size, blocks) in ranked]


def record_cuda_history() -> bool:
    """Have torch note the stack of each CUDA allocation from here on, for the snapshot. False: no CUDA."""
    cuda = _cuda()
    if cuda is None:
        return False
    try:
        cuda.memory._record_memory_history(max_entries=_CUDA_HISTORY)
    except Exception:
        return False
    return True


def end_cuda_history() -> None:
    """Have torch note no more stacks, which takes time at each allocation, and drop those it has."""
    cuda = _cuda()
    if cuda is not None:
        with contextlib.suppress(Exception):
            cuda.memory._record_memory_history(enabled=None)


def save_cuda_snapshot(path: Path) -> bool:
    """Write what https://docs.pytorch.org/memory_viz shows. False: no CUDA, or it cannot be written."""
    cuda = _cuda()
    if cuda is None:
        return False
    try:
        cuda.memory._dump_snapshot(str(path))
    except Exception:
        return False
    return True


def cuda_sums() -> dict[str, int] | None:
    """Of the current device, in bytes; None where CUDA is not in use."""
    cuda = _cuda()
    if cuda is None:
        return None
    try:
        found = cuda.memory_stats()
        return {
            "allocated_bytes": found.get("allocated_bytes.all.current", 0),
            "reserved_bytes": found.get("reserved_bytes.all.current", 0),
            "peak_bytes": found.get("allocated_bytes.all.peak", 0),
            "split_bytes": found.get("inactive_split_bytes.all.current", 0),
        }
    except Exception:
        return None


def _cuda() -> Any:
    """torch.cuda, if this process uses it already: looking must not start it."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda if cuda is not None and cuda.is_initialized() else None
    except Exception:
        return None
