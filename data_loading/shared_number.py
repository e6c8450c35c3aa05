"""A number that copies of an object in other processes see change: forks, and those a pickle made."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from typing import Any, BinaryIO, cast

_LAYOUT = struct.Struct("<q16s")


class SharedNumber:
    """An int64. It lies in a file in memory without a name, which /proc/PID/fd lets other processes map.

    A copy that is made when the file is gone, or on another machine, has a number of its own.
    """

    def __init__(self, value: int) -> None:
        self._make(value, os.urandom(16))

    def _make(self, value: int, identity: bytes) -> None:
        self._file = _unnamed_file()
        self._file.truncate(_LAYOUT.size)
        self._map = mmap.mmap(self._file.fileno(), _LAYOUT.size)
        self._path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        self._map[:] = _LAYOUT.pack(value, identity)

    @property
    def value(self) -> int:
        return int(_LAYOUT.unpack(self._map[:])[0])

    @value.setter
    def value(self, value: int) -> None:
        self._map[:8] = struct.pack("<q", value)

    def __getstate__(self) -> dict[str, Any]:
        value, identity = _LAYOUT.unpack(self._map[:])
        return {"path": self._path, "value": value, "identity": identity}

    def __setstate__(self, state: dict[str, Any]) -> None:
        try:
            self._file = os.fdopen(os.open(state["path"], os.O_RDWR | os.O_CLOEXEC), "r+b")
            self._map = mmap.mmap(self._file.fileno(), _LAYOUT.size)
            is_same = _LAYOUT.unpack(self._map[:])[1] == state["identity"]
        except (OSError, ValueError):
            is_same = False
        if is_same:
            self._path = state["path"]
        else:
            self._make(state["value"], state["identity"])


def _unnamed_file() -> BinaryIO:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("highwater"), "r+b")
    return cast(BinaryIO, tempfile.TemporaryFile())
