"""Waits, before the interpreter ends, for the threads of Arrow that still hold files of a stream.

They take the GIL to release them. If Python (up to 3.13) has begun to end by then, that ends the thread
within C++ code, and so the process, by SIGABRT: "terminate called without an active exception" after all work
was done (Arrow's issues 45214 and 36980, datasets' issue 7566). The wait is at most 5 s, after one pass over
the objects of the garbage collector.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import time
import weakref
from typing import Any

_LONGEST_S = 5.0
_LOOK_EVERY_S = 0.005
_AT_ONCE = 1 << 12
"""Objects whose referents are listed together; the list takes memory."""
_closings: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(stream: Any) -> None:
    """Call `stream.close()` when the interpreter ends, and wait until no thread holds its files."""
    atexit.unregister(_end)  # it is to be called once
    atexit.register(_end)
    _closings.add(stream)


def held_by_no_python() -> list[weakref.ref[Any]]:
    """Return closed files that no Python object refers to, and that are alive: code in C holds them.

    One pass over all objects, however many files there are.
    """
    gc.collect()
    everything = gc.get_objects()
    closed = [one for one in everything if issubclass(type(one), io.IOBase) and one.closed]
    without = {id(one): one for one in closed}
    for start in range(0, len(everything) if without else 0, _AT_ONCE):
        for one in gc.get_referents(*everything[start : start + _AT_ONCE]):
            without.pop(id(one), None)
    return [weakref.ref(one) for one in without.values()]


def _end() -> None:
    for stream in list(_closings):
        with contextlib.suppress(ValueError):  # a thread of Python is reading it
            stream.close()
    deadline_s = time.monotonic() + _LONGEST_S
    held = held_by_no_python()
    while any(ref() is not None for ref in held) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
