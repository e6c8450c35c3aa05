"""A walk over the objects of this process: tensors, arrays, and whatever else is large.

The garbage collector knows containers and tensors. NumPy arrays, bytes and strings it does not track; they
are found in what tracked objects refer to, and in the variables of running functions.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from types import FrameType
from typing import Any

_AT_ONCE = 2000
_NESTED = 3
_LARGE_BYTES = 256 << 10
_LONG = 4096
"""Items, characters or bytes: below it nothing is as large as that."""
_SIZED = frozenset((bytes, bytearray, str, list, tuple, dict, set, frozenset))
_UNTRACKED = frozenset((tuple, dict))
_ONE_IN = 16
_HERE = __file__.rpartition("/")[0]


@dataclass
class Heap:
    """What was found. Objects are held only as long as this is.

    tensors, modules, optimizers: of torch, if it is loaded. arrays: of NumPy. large: other objects of 256 KB
    and more, themselves, without what they refer to. objects: how many containers were looked into.
    python_bytes: all objects below that size, by_type: the largest types among them, from one in sixteen.
    """

    tensors: list[Any] = field(default_factory=list)
    modules: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)
    large: list[Any] = field(default_factory=list)
    locals: dict[int, str] = field(default_factory=dict)
    objects: int = 0
    python_bytes: int = 0
    by_type: dict[str, int] = field(default_factory=dict)


def batches() -> Iterator[tuple[list[Any], list[Any]]]:
    """Objects, and all that they refer to: of those the garbage collector tracks, some thousand at once; then
    of dicts and tuples among what they refer to that hold nothing but arrays, numbers and strings, which it
    does not track.
    """
    objects = gc.get_objects()
    for begin in range(0, len(objects), _AT_ONCE):
        holders = objects[begin : begin + _AT_ONCE]
        for _ in range(1 + _NESTED):
            referents = gc.get_referents(*holders)
            yield holders, referents
            holders = list(filterfalse(gc.is_tracked, _of_types(referents, _UNTRACKED)))
            if not holders:
                break


def walk(*, sizes: bool = True) -> Heap:
    """Look at every object, about 0.5 s where torch is loaded. sizes: also add them all up, from a sample."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    lists = {
        "tensors": getattr(torch, "Tensor", None),
        "modules": getattr(getattr(torch, "nn", None), "Module", None),
        "optimizers": getattr(getattr(torch, "optim", None), "Optimizer", None),
        "arrays": getattr(numpy, "ndarray", None),
    }
    bases = {base: name for name, base in lists.items() if isinstance(base, type)}
    heap = Heap()
    looked_for: dict[type, str] = {}
    known: set[type] = set()
    seen: set[int] = set()
    sampled: set[int] = set()
    by_type: Counter[type] = Counter()

    def note(some: list[Any]) -> None:
        # by `type`: isinstance would run code of foreign proxies
        for new in set(map(type, some)) - known:
            known.add(new)
            looked_for.update((new, name) for base, name in bases.items() if issubclass(new, base))
        for one in _of_types(some, looked_for.keys()):
            if id(one) not in seen:
                seen.add(id(one))
                getattr(heap, looked_for[type(one)]).append(one)
        for one in _of_types(some, _SIZED):
            if len(one) >= _LONG and id(one) not in seen and sys.getsizeof(one) >= _LARGE_BYTES:
                seen.add(id(one))
                heap.large.append(one)

    for holders, referents in batches():
        note(holders)
        note(referents)
        heap.objects += len(holders)
        if sizes:
            for one in (*holders, *referents):
                # a sample by address, so that it is the same however many refer to it
                if not (id(one) >> 4) * 2654435761 & 0xF0000 and id(one) not in sampled:
                    sampled.add(id(one))
                    by_type[type(one)] += _size(one)
    for name, value in _variables():
        heap.locals.setdefault(id(value), name)
        note([value])
    small = {of: _ONE_IN * size for of, size in by_type.items()}
    heap.python_bytes = sum(small.values())
    largest = sorted(small.items(), key=lambda item: -item[1])[:10]
    heap.by_type = {f"{of.__module__}.{of.__qualname__}".removeprefix("builtins."): n for of, n in largest}
    return heap


def _of_types(some: list[Any], types: Container[type]) -> Iterator[Any]:
    """Those of exactly these types; without a line of Python for each."""
    return compress(some, map(types.__contains__, map(type, some)))


def _variables() -> Iterator[tuple[str, Any]]:
    """Local variables of all functions that run, in every thread."""
    for frame in list(sys._current_frames().values()):
        at: FrameType | None = frame
        depth = 0
        while at is not None and depth < 200:
            code = at.f_code
            # what a module's own code names is found in the module
            if code.co_name != "<module>" and not code.co_filename.startswith(_HERE):
                for name, value in list(at.f_locals.items()):
                    yield (
                        f"`{name}` of {code.co_name} ({code.co_filename.rpartition('/')[2]}:{at.f_lineno})",
                        value,
                    )
            at, depth = at.f_back, depth + 1


def _size(found: Any) -> int:
    """Its own; 0 of a large one, which is counted by itself."""
    try:
        size = sys.getsizeof(found)
    except Exception:
        return 0
    return size if size < _LARGE_BYTES else 0
