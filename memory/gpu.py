"""This process's memory on its CUDA device, as torch's allocator counts it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """In bytes. allocated: held by tensors. reserved: held by torch's allocator, tensors included.

    peak_bytes: the most that tensors held since the process began (or since torch's peak was reset).
    """

    device: int
    name: str
    allocated_bytes: int
    reserved_bytes: int
    peak_bytes: int
    total_bytes: int


def read_gpu() -> Gpu | None:
    """The current CUDA device, or None where torch has not been imported or has not touched a GPU.

    Never imports torch and never starts CUDA: that would itself cost hundreds of MB.
    """
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        # is_initialized is not there while torch is still being imported by another thread
        if cuda is None or not cuda.is_initialized():
            return None
        device = cuda.current_device()
        stats = cuda.memory_stats(device)
        properties = cuda.get_device_properties(device)
    except (AttributeError, RuntimeError, AssertionError):
        return None
    return Gpu(
        device=device,
        name=properties.name,
        allocated_bytes=stats.get("allocated_bytes.all.current", 0),
        reserved_bytes=stats.get("reserved_bytes.all.current", 0),
        peak_bytes=stats.get("allocated_bytes.all.peak", 0),
        total_bytes=properties.total_memory,
    )
