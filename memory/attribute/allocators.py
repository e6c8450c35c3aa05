"""torch's record of CUDA allocations. torch is found in sys.modules and never imported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_CUDA_HISTORY = 100_000
"""Allocations whose stacks torch keeps for a snapshot: about 100 MB on the host at most."""


def record_cuda_history() -> bool:
    """Have torch record the stack of each CUDA allocation, for the snapshot. False without CUDA."""
    return _call("_record_memory_history", max_entries=_CUDA_HISTORY)


def end_cuda_history() -> None:
    """Stop recording stacks, which takes time at each allocation, and drop those recorded."""
    _call("_record_memory_history", enabled=None)


def save_cuda_snapshot(path: Path) -> bool:
    """Write a file for https://docs.pytorch.org/memory_viz. False without CUDA, or if writing fails."""
    return _call("_dump_snapshot", str(path))


def _call(name: str, *arguments: Any, **options: Any) -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is None or not cuda.is_initialized():  # looking must not start CUDA
            return False
        getattr(cuda.memory, name)(*arguments, **options)
    except Exception:
        return False
    return True
