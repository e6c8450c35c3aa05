"""A walk over the objects of this process: tensors, arrays, and whatever else is large.

The garbage collector tracks containers and tensors. It does not track NumPy arrays, bytes and strings: they
are found in what tracked objects refer to, and in the variables of running functions.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from types import FrameType
from typing import Any

CONTAINERS = (list, tuple, dict, deque)
LARGE_BYTES = 256 << 10
_BATCH = 2000
_NESTED = 3
"""Levels of untracked dicts and tuples: those that hold nothing but arrays, numbers and strings."""
_SIZED = frozenset((bytes, bytearray, str, list, tuple, dict, set, frozenset))
_LONG = 4096
"""Items, characters or bytes: a shorter object is never large."""
_HERE = __file__.rpartition("/")[0]


@dataclass
class Heap:
    """Objects that were found. They are kept alive only as long as this is."""

    tensors: list[Any] = field(default_factory=list)
    modules: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    large: list[Any] = field(default_factory=list)
    """Other objects of 256 KB and more, without what they refer to."""
    variables: dict[int, str] = field(default_factory=dict)
    """id -> variable of a running function that holds the object."""
    containers: dict[int, Any] = field(default_factory=dict)
    """id -> list, tuple, dict or deque that holds the object."""


def walk() -> Heap:
    """Look at every object of this process, about 0.5 s with torch loaded; never imports torch or NumPy."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    heap = Heap()
    lists = (
        (getattr(torch, "Tensor", None), heap.tensors),
        (getattr(getattr(torch, "nn", None), "Module", None), heap.modules),
        (getattr(getattr(torch, "optim", None), "Optimizer", None), heap.optimizers),
        (getattr(numpy, "ndarray", None), heap.arrays),
    )
    bases = [(base, found) for base, found in lists if isinstance(base, type)]
    known: set[type] = set()
    lists_by_type: dict[type, list[Any]] = {}
    objects = gc.get_objects()
    for name, value in _variables().items():
        heap.variables.setdefault(id(value), name)
        objects.append(value)
    seen = {id(objects)}

    def note(some: list[Any]) -> bool:
        """Add the new ones to their lists; returns whether any is of interest."""
        for new in set(map(type, some)) - known:  # isinstance would run code of foreign proxies
            known.add(new)
            lists_by_type.update((new, found) for base, found in bases if issubclass(new, base))
        pairs = [(one, lists_by_type[type(one)]) for one in _of_types(some, lists_by_type)]
        for one in _of_types(some, _SIZED):
            if len(one) >= _LONG and sys.getsizeof(one) >= LARGE_BYTES:
                pairs.append((one, heap.large))
        for one, found in pairs:
            if id(one) not in seen:
                seen.add(id(one))
                found.append(one)
        return bool(pairs)

    for holders in _holders(objects):
        note(holders)
        if note(gc.get_referents(*holders)):
            for holder in _of_types(holders, CONTAINERS):
                if holder is not objects and all(holder is not own for own in vars(heap).values()):
                    held = (id(one) for one in gc.get_referents(holder))
                    heap.containers.update((key, holder) for key in held if key in seen)
    return heap


def _holders(objects: list[Any]) -> Iterator[list[Any]]:
    """Batches of objects that refer to others: those tracked, then untracked dicts and tuples in them."""
    for begin in range(0, len(objects), _BATCH):
        holders = objects[begin : begin + _BATCH]
        for _ in range(1 + _NESTED):
            yield holders
            inner = _of_types(gc.get_referents(*holders), (tuple, dict))
            holders = list(filterfalse(gc.is_tracked, inner))
            if not holders:
                break


def _of_types(some: list[Any], types: Container[type]) -> Iterator[Any]:
    """The objects of exactly these types, without a step of Python for each."""
    return compress(some, map(types.__contains__, map(type, some)))


def _variables() -> dict[str, Any]:
    """Local variables of all running functions by name: `` `x` of work (run.py:12)``."""
    found: dict[str, Any] = {}
    frames: list[FrameType | None] = list(sys._current_frames().values())
    while frames:
        frame = frames.pop()
        if frame is None:
            continue
        code = frame.f_code
        frames.append(frame.f_back)
        # variables of a module are found in the module
        if code.co_name != "<module>" and not code.co_filename.startswith(_HERE):
            place = f"{code.co_name} ({code.co_filename.rpartition('/')[2]}:{frame.f_lineno})"
            found.update((f"`{name}` of {place}", value) for name, value in list(frame.f_locals.items()))
    return found  # `frame` is None: it would keep the callers' variables alive
