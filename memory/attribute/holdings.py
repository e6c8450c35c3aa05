"""Holdings: one storage, array or object each, counted once however many views look at it."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from memory.attribute.heap import LARGE_BYTES, Heap
from memory.attribute.maps import Maps, resident_bytes


@dataclass(slots=True, eq=False)
class Holding:
    """Memory that one storage, array or object holds."""

    kind: str
    """parameters, gradients, optimizer, buffers, saved, tensors, arrays or objects."""
    name: str
    """Who refers to it, as far as known."""
    what: str
    """`float32 (64, 128)`."""
    bytes: int
    """Allocated."""
    address: int = 0
    where: str = "anon"
    """anon, shared, file, or a device as `cuda:0`."""
    resident_bytes: int | None = None
    """The part of `bytes` in memory or swap; None if that was not read."""
    module: str | None = None
    """Module of a parameter, gradient, buffer or optimizer state."""
    thing: Any = None

    @property
    def held_bytes(self) -> int:
        """Bytes in memory, as far as known."""
        return self.bytes if self.resident_bytes is None else self.resident_bytes

    def to_json(self) -> dict[str, Any]:
        """Record without `address`, `module` and `thing`."""
        keys = ("kind", "name", "what", "bytes", "resident_bytes", "where")
        return {key: getattr(self, key) for key in keys}


def place(holdings: Iterable[Holding], maps: Maps) -> None:
    """Find out `where` and `resident_bytes` of what is on the host.

    A map of a file is not anonymous memory, and pages that were never written to take none.
    """
    for holding in holdings:
        if holding.where == "anon" and holding.address:
            holding.where = maps.where(holding.address)
            if holding.bytes >= LARGE_BYTES:
                holding.resident_bytes = resident_bytes(holding.address, holding.bytes)


def array_holdings(heap: Heap, counted: list[Holding]) -> list[Holding]:
    """NumPy arrays that own memory: a view belongs to its base, and memory of a tensor to the tensor.

    Args:
        counted: holdings known already; arrays within them are left out.
    """
    base_type = getattr(sys.modules.get("numpy"), "ndarray", ())
    starts = sorted((one.address, one.address + one.bytes) for one in counted if one.where == "anon")
    found: dict[int, Holding] = {}
    for array in heap.arrays:
        while isinstance(array.base, base_type):
            array = array.base
        holding = _array(array)
        if holding is None:
            continue
        before = bisect_right(starts, (holding.address + holding.bytes - 1, 1 << 64)) - 1
        if before >= 0 and starts[before][1] > holding.address:
            continue
        known = found.get(holding.address)
        if known is None or known.bytes < holding.bytes:
            found[holding.address] = holding
    return list(found.values())


def object_holdings(heap: Heap) -> list[Holding]:
    """Bytes, strings and containers of 256 KB and more; of a container its own table, not its items."""
    return [
        Holding("objects", "", f"{type(one).__name__} of {len(one):,}", sys.getsizeof(one), thing=one)
        for one in heap.large
    ]


def _array(array: Any) -> Holding | None:
    try:
        size, address = int(array.nbytes), int(array.__array_interface__["data"][0])
        if array.base is not None and 0 in array.strides:  # one value, shown many times
            dims = zip(array.shape, array.strides, strict=True)
            size = array.itemsize * prod(length for length, stride in dims if stride)
        what = f"{array.dtype} {array.shape}"
        return Holding("arrays", "", what, size, address, thing=array) if size else None
    except Exception:  # a subclass whose own code fails
        return None
