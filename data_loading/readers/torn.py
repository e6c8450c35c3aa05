"""Mapped files that are truncated in the very moment in which they are read: an error in place of SIGBUS.

A page of a map behind the end of its file raises SIGBUS in the thread that reads it (mmap(2)). Within a
`TornMaps` block the handler puts empty pages there, so that the read goes on, and the block says so at its
end. The signal is synchronous: it comes where memory is copied, and nowhere else. Outside such a block, and
for whatever is no truncated map of it, the signal does what it did before.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value
_here = threading.local()


class TornMaps:
    """Guards reads of buffers that are views of maps. is_torn: one was truncated while it was read."""

    def __init__(self, buffers: Sequence[np.ndarray], maps: Sequence[mmap.mmap | None], offsets: Any) -> None:
        """offsets: of each buffer's first byte in its file."""
        self._buffers = [
            (buffer.ctypes.data, len(buffer), int(offset), mapped)
            for buffer, mapped, offset in zip(buffers, maps, offsets, strict=True)
            if mapped is not None
        ]
        self.is_torn = False

    def __enter__(self) -> TornMaps:
        _here.maps = self
        if _HANDLER is not None:
            _HANDLER.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _HANDLER is not None:
            _HANDLER.end()
        _here.maps = None

    def mend(self) -> bool:
        """Empty pages where files have ended; False where none has."""
        for address, length, offset, mapped in self._buffers:
            there = max(mapped.size() - offset, 0)
            if there < length:
                first = -(-(address + there) // mmap.PAGESIZE) * mmap.PAGESIZE
                end = -(-(address + length) // mmap.PAGESIZE) * mmap.PAGESIZE
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
                if end > first and _mapped(first, end - first, flags) == _FAILED:
                    return False
                self.is_torn = True
        return self.is_torn


class _Handler:
    """Of SIGBUS, for as long as something is read; then it is what it was, whoever has set it meanwhile.

    Not by signal.signal, whose handlers run after the instruction, which would be tried for ever.
    """

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self.mmap, self._signal = libc.mmap, libc.signal
        self.mmap.restype, self._signal.restype = ctypes.c_void_p, ctypes.c_void_p
        self.mmap.argtypes = (
            ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
        )  # fmt: skip
        self._signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_int)(self._caught)
        self._pointer = ctypes.cast(self._callback, ctypes.c_void_p)
        self._lock, self._readers, self._before = threading.Lock(), 0, None

    def begin(self) -> None:
        with self._lock:
            if self._readers == 0:
                self._before = self._signal(signal.SIGBUS, self._pointer)
            self._readers += 1

    def end(self) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0:
                self._signal(signal.SIGBUS, self._before)

    def _caught(self, number: int) -> None:
        maps = getattr(_here, "maps", None)
        try:
            is_mended = maps is not None and maps.mend()
        except Exception:
            is_mended = False
        if not is_mended:
            self._signal(number, self._before)
            os.kill(os.getpid(), number)  # when this returns: the end that it has without a handler


_HANDLER = _Handler() if sys.platform.startswith("linux") else None
"""Elsewhere the signal is left alone."""


def _mapped(address: int, length: int, flags: int) -> int | None:
    assert _HANDLER is not None
    found: int | None = _HANDLER.mmap(address, length, mmap.PROT_READ, flags, -1, 0)
    return found
