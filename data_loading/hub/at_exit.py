"""Waits, before the interpreter ends, for the threads of Arrow that still hold files of a stream.

They take the GIL to let go of them. Where Python has begun to end by then (up to 3.13) that ends the thread
within C++ code, and so the process, by SIGABRT: "terminate called without an active exception" after all was
done (Arrow's issues 45214 and 36980, datasets' issue 7566).
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
_closings: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(stream: Any) -> None:
    """Call `stream.close()` when the interpreter ends, and wait until no thread holds what it read from."""
    atexit.unregister(_end)  # it is to be called once
    atexit.register(_end)
    _closings.add(stream)


def held_by_no_python() -> list[weakref.ref[Any]]:
    """Closed files that live on with nothing of Python referring to them: code in C does."""
    gc.collect()
    everything = gc.get_objects()
    closed = [one for one in everything if issubclass(type(one), io.IOBase) and one.closed]
    found = []
    for one in closed:
        # the two lists, and frames, whose names hold it while it is looked at
        others = [by for by in gc.get_referrers(one) if by is not closed and by is not everything]
        if not [by for by in others if type(by).__name__ != "frame"]:
            found.append(weakref.ref(one))
    return found


def _end() -> None:
    for stream in list(_closings):
        with contextlib.suppress(ValueError):  # a thread of Python is reading it
            stream.close()
    deadline_s = time.monotonic() + _LONGEST_S
    held = held_by_no_python()
    while any(ref() is not None for ref in held) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
