"""Kinds of memory by address (anonymous, shared, a mapped file), and how much of it is resident.

Source: proc_pid_maps(5), proc_pid_pagemap(5).
"""

from __future__ import annotations

import os
from bisect import bisect_right

from memory.files.procfs import read_long_file

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CHUNK = 1 << 16
"""Pages read at once."""
_IS_HELD = bytes(int(flags & 0xC0 != 0) for flags in range(256))
"""By the highest byte of a page's entry: bit 7 present, bit 6 swapped."""


class Maps:
    """The mappings of this process."""

    def __init__(self, content: bytes | None = None) -> None:
        """content: of /proc/PID/maps; None: of this process, empty without /proc."""
        content = read_long_file("/proc/self/maps") if content is None else content
        self._mappings = sorted(filter(None, map(_parse, (content or b"").splitlines())))

    def where(self, address: int) -> str:
        """`file`, `shared` or `anon`."""
        place = bisect_right(self._mappings, (address, 1 << 64, "")) - 1
        if place < 0 or address >= self._mappings[place][1]:
            return "anon"
        return self._mappings[place][2]


def _parse(line: bytes) -> tuple[int, int, str] | None:
    """Begin, end and kind of `7f12a000-7f12b000 rw-p 00000000 00:00 0   /path with spaces`."""
    fields = line.split(None, 5)
    try:
        begin, end = (int(number, 16) for number in fields[0].split(b"-"))
        path = fields[5] if len(fields) > 5 else b""
        is_shared = path.startswith((b"/dev/shm/", b"/memfd:", b"/SYSV", b"/dev/zero"))
        if is_shared or (not path and b"s" in fields[1]):
            return begin, end, "shared"
        return begin, end, "file" if path.startswith(b"/") else "anon"
    except (ValueError, IndexError):
        return None


def resident_bytes(address: int, size: int) -> int | None:
    """Bytes of this process's pages there that are in memory or in swap; None if that cannot be read."""
    first, last = address // _PAGE_BYTES, (address + size - 1) // _PAGE_BYTES
    pages = 0
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as file:
            for begin in range(first, last + 1, _CHUNK):
                count = min(_CHUNK, last + 1 - begin)
                flags = os.pread(file.fileno(), 8 * count, 8 * begin)[7::8]
                if len(flags) < count:
                    return None
                pages += count - flags.translate(_IS_HELD).count(0)
    except OSError:
        return None
    return min(size, pages * _PAGE_BYTES)
