"""NumPy arrays that own memory, each once: a view is its base's, and what is a tensor's the tensor's."""

from __future__ import annotations

import ctypes
import sys
from bisect import bisect_right
from typing import Any

from memory.attribute.heap import Heap
from memory.attribute.holdings import Holding


def array_holdings(heap: Heap, counted: list[Holding]) -> list[Holding]:
    """counted: what is known already; arrays within it are left out."""
    numpy = sys.modules.get("numpy")
    owners: dict[int, Any] = {}
    for array in heap.arrays:
        owner = _owner(array, numpy.ndarray if numpy else ())
        owners[id(owner)] = owner
    known = _Ranges(counted)
    found: dict[int, Holding] = {}
    for owner in owners.values():
        holding = _holding(owner, heap)
        if holding is None or known.overlap(holding.address, holding.bytes):
            continue
        other = found.get(holding.address)
        if other is None or other.bytes < holding.bytes:
            found[holding.address] = holding
    return list(found.values())


def object_holdings(heap: Heap) -> list[Holding]:
    """bytes, strings and containers of 256 KB and more; of a container its own table, not what is in it."""
    found = []
    for large in heap.large:
        size = sys.getsizeof(large)
        length = len(large) if hasattr(large, "__len__") else 0
        what = f"{type(large).__name__} of {length:,}"
        found.append(Holding("objects", heap.locals.get(id(large), ""), what, size, data_address(large)))
    return found


def data_address(large: Any) -> int:
    """Where most of a built-in object's memory is; of a kind whose layout is not known, the object itself.

    Source: CPython's Include/cpython/listobject.h and bytearrayobject.h, the same from 3.11 to 3.14.
    """
    offset = 24 if type(large) is list else 40 if type(large) is bytearray else None
    if offset is None or sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 15):
        return id(large)
    return ctypes.c_void_p.from_address(id(large) + offset).value or id(large)


def _owner(array: Any, of: Any) -> Any:
    """The array whose memory a view looks at."""
    for _ in range(1000):
        base = array.base
        if not isinstance(base, of):
            return array
        array = base
    return array


def _holding(owner: Any, heap: Heap) -> Holding | None:
    try:
        size, address = int(owner.nbytes), int(owner.__array_interface__["data"][0])
        strides, shape = owner.strides, owner.shape
        if owner.base is not None and 0 in strides:  # one value, shown many times
            size = owner.itemsize * _product(n for n, stride in zip(shape, strides, strict=True) if stride)
        name = heap.locals.get(id(owner), "")
        return Holding("arrays", name, f"{owner.dtype} {shape}", size, address) if size else None
    except Exception:  # a subclass whose own code fails
        return None


def _product(numbers: Any) -> int:
    result = 1
    for number in numbers:
        result *= number
    return result


class _Ranges:
    """Addresses on the host that are counted."""

    def __init__(self, holdings: list[Holding]) -> None:
        ranges = sorted((h.address, h.address + h.bytes) for h in holdings if h.address and h.where == "anon")
        self._begins = [begin for begin, _ in ranges]
        self._ends = [end for _, end in ranges]

    def overlap(self, address: int, size: int) -> bool:
        number = bisect_right(self._begins, address + size - 1) - 1
        return number >= 0 and self._ends[number] > address
