"""Memory of this process's CUDA device: what torch's allocator holds, and what the driver reports as free.

Nothing here imports torch or starts CUDA, which alone would cost hundreds of MB.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

_ERRORS = (AttributeError, KeyError, TypeError, ValueError, RuntimeError, AssertionError)
"""Raised by torch while it is still being imported by another thread, and after a CUDA error."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Memory of one CUDA device as this process's torch counts it."""

    device: int
    name: str
    allocated_bytes: int
    """Held by tensors."""
    reserved_bytes: int
    """Held by torch's allocator, tensors included."""
    peak_bytes: int
    """Highest allocated_bytes since the process began."""
    total_bytes: int
    split_bytes: int | None = None
    """Free within blocks that are partly in use (torch's inactive_split): for smaller requests only."""
    peak_reserved_bytes: int | None = None
    """Highest reserved_bytes since the last stage began."""
    retries: int | None = None
    """Times that the allocator had to release all its cache to serve a request."""
    ooms: int | None = None
    """Requests that failed."""
    free_bytes: int | None = None
    """Free on the device for all processes, as the driver counts it (cudaMemGetInfo)."""

    @property
    def used_bytes(self) -> int | None:
        """Used on the device by all processes; None if the driver does not report it."""
        return None if self.free_bytes is None else max(0, self.total_bytes - self.free_bytes)

    @property
    def outside_bytes(self) -> int | None:
        """Used on the device and not by torch here: the CUDA context, libraries, and all other processes."""
        return None if self.used_bytes is None else max(0, self.used_bytes - self.reserved_bytes)

    @property
    def unused_bytes(self) -> int:
        """Reserved and in no tensor: a cache, or fragments if a request of that size fails."""
        return max(0, self.reserved_bytes - self.allocated_bytes)


def read_gpu() -> Gpu | None:
    """The current CUDA device; None if torch has not been imported or has not used a GPU."""
    try:
        cuda = _cuda()
        if not cuda.is_initialized():
            return None
        device = cuda.current_device()
        stats = cuda.memory_stats(device)
        properties = cuda.get_device_properties(device)
    except _ERRORS:
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


def _cuda() -> Any:
    """torch.cuda, or None."""
    return getattr(sys.modules.get("torch"), "cuda", None)


def _free_bytes(cuda: Any, device: int) -> int | None:
    """Ask the driver, which does not wait for the device's work; None if it does not answer."""
    try:
        return int(cuda.mem_get_info(device)[0])
    except _ERRORS:
        return None


def device_uuid(device: int) -> str | None:
    """UUID of a CUDA device without the prefix `GPU-`; None if torch does not know it."""
    try:
        return str(_cuda().get_device_properties(device).uuid)
    except _ERRORS:
        return None


def read_gpu_allocated() -> int | None:
    """Bytes that tensors hold on the current CUDA device, as torch counts them; None as for `read_gpu`."""
    cuda = _cuda()
    try:
        return int(cuda.memory_allocated()) if cuda.is_initialized() else None
    except _ERRORS:
        return None


def read_gpu_peak(device: int) -> int | None:
    """Highest memory of tensors on a device since torch's mark was last reset, in bytes; None if unknown."""
    try:
        return int(_cuda().max_memory_allocated(device))
    except _ERRORS:
        return None


def reset_gpu_peak(device: int) -> int | None:
    """Reset torch's mark; returns its bytes, or None if it is unknown (then it is not reset)."""
    peak = read_gpu_peak(device)
    try:
        if peak is not None:
            _cuda().reset_peak_memory_stats(device)
    except _ERRORS:
        return None
    return peak


def largest_free_block(device: int) -> int | None:
    """Largest request in bytes that torch's allocator serves without asking the driver; None if unknown.

    It walks all segments (torch.cuda.memory_snapshot): for a report, not for each snapshot.
    """
    try:
        sizes = [
            block["size"]
            for segment in _cuda().memory_snapshot()
            if segment["device"] == device
            for block in segment["blocks"]
            if block["state"] == "inactive"
        ]
    except _ERRORS:
        return None
    return max(sizes, default=None)
