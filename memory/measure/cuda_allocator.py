"""Memory of this process's CUDA device: what torch's allocator holds, and what the driver says is free."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Gpu:
    """In bytes. allocated: held by tensors. reserved: held by torch's allocator, tensors included.

    peak_bytes: the most that tensors held since the process began; peak_reserved_bytes: that the allocator
    did, since the last stage began. split_bytes: free within blocks that are partly in use (torch's
    inactive_split): it serves a smaller request only, and no other process. retries: how often the allocator
    had to give everything unused back to the driver to serve a request. ooms: requests that failed.
    free_bytes: of the device, as the driver counts it (cudaMemGetInfo): for this process and all others.
    """

    device: int
    name: str
    allocated_bytes: int
    reserved_bytes: int
    peak_bytes: int
    total_bytes: int
    split_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    retries: int | None = None
    ooms: int | None = None
    free_bytes: int | None = None

    @property
    def used_bytes(self) -> int | None:
        """Used on the device by all processes; None where the driver does not say."""
        return None if self.free_bytes is None else max(0, self.total_bytes - self.free_bytes)

    @property
    def outside_bytes(self) -> int | None:
        """Used on the device and not by torch here: the CUDA context, libraries, and all other processes."""
        return None if self.used_bytes is None else max(0, self.used_bytes - self.reserved_bytes)

    @property
    def unused_bytes(self) -> int:
        """Reserved and in no tensor: a cache, or fragments where a request of that size fails."""
        return max(0, self.reserved_bytes - self.allocated_bytes)


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
        split_bytes=stats.get("inactive_split_bytes.all.current"),
        peak_reserved_bytes=stats.get("reserved_bytes.all.peak"),
        retries=stats.get("num_alloc_retries"),
        ooms=stats.get("num_ooms"),
        free_bytes=_free_bytes(cuda, device),
    )


def _free_bytes(cuda: Any, device: int) -> int | None:
    """Ask the driver, which does not wait for the device's work; None where it cannot say."""
    try:
        return int(cuda.mem_get_info(device)[0])
    except (AttributeError, RuntimeError, AssertionError, ValueError):
        return None


def read_gpu_allocated() -> int | None:
    """Bytes that tensors hold on the current CUDA device, as torch counts them; None as for `read_gpu`."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return int(cuda.memory_allocated()) if cuda is not None and cuda.is_initialized() else None
    except (AttributeError, RuntimeError, AssertionError, ValueError):
        return None


def read_gpu_peak(device: int) -> int | None:
    """The most that tensors held on the device since torch's mark was last reset, in bytes."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return None if cuda is None else int(cuda.max_memory_allocated(device))
    except (AttributeError, RuntimeError, AssertionError, ValueError):
        return None


def reset_gpu_peak(device: int) -> int | None:
    """Reset torch's mark; returns what it was, or None where it cannot be told (then it is left alone)."""
    peak = read_gpu_peak(device)
    try:
        if peak is not None:
            sys.modules["torch"].cuda.reset_peak_memory_stats(device)
    except (AttributeError, RuntimeError, AssertionError, ValueError):
        return None
    return peak


def largest_free_block(device: int) -> int | None:
    """Of torch's allocator, in bytes: the largest request that it serves without asking the driver.

    Walks all of its segments, so this is for a report, not for each snapshot (torch.cuda.memory_snapshot).
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        segments = () if cuda is None else cuda.memory_snapshot()
        sizes = [
            block["size"]
            for segment in segments
            if segment["device"] == device
            for block in segment["blocks"]
            if block["state"] == "inactive"
        ]
    except (AttributeError, KeyError, TypeError, RuntimeError, AssertionError):
        return None
    return max(sizes, default=None)
