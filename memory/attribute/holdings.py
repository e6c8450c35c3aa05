"""What holds memory: one storage, array or object each, counted once however many look at it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from memory.attribute.maps import Maps

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_WORTH_A_LOOK_BYTES = 256 << 10


@dataclass(slots=True)
class Holding:
    """kind: parameters, gradients, optimizer, buffers, saved, tensors, arrays or objects.

    name: whose it is, as far as known. what: `float32 (64, 128)`. where: anon, shared, file, or a device
    as `cuda:0`. bytes: allocated; resident_bytes: those that lie in memory, None where it was not asked.
    module: of a parameter, gradient, buffer or optimizer state, the module it belongs to.
    """

    kind: str
    name: str
    what: str
    bytes: int
    address: int = 0
    where: str = "anon"
    resident_bytes: int | None = None
    module: str | None = None

    @property
    def held_bytes(self) -> int:
        """In memory, as far as known."""
        return self.bytes if self.resident_bytes is None else self.resident_bytes

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        return {
            "kind": self.kind,
            "name": self.name,
            "what": self.what,
            "bytes": self.bytes,
            "resident_bytes": self.resident_bytes,
            "where": self.where,
        }


def place(holdings: list[Holding], maps: Maps) -> None:
    """Settle `where` and `resident_bytes` of those on the host: a map of a file is no anonymous memory, and
    what was never written to takes none.
    """
    kinds = {"file": "file", "shared": "shared"}
    try:
        pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        pagemap = None
    try:
        for holding in holdings:
            if holding.where != "anon" or not holding.address:
                continue
            mapping = maps.at(holding.address)
            if mapping is not None:
                holding.where = kinds.get(mapping.kind, "anon")
            is_elsewhere = holding.kind == "objects" and holding.what.startswith(("dict", "set", "frozenset"))
            if pagemap is not None and holding.bytes >= _WORTH_A_LOOK_BYTES and not is_elsewhere:
                holding.resident_bytes = _resident(pagemap, holding.address, holding.bytes)
    finally:
        if pagemap is not None:
            os.close(pagemap)


def _resident(pagemap: int, address: int, size: int) -> int | None:
    """Bytes of these pages that are in memory or in swap (proc_pid_pagemap(5))."""
    first, last = address // _PAGE_BYTES, (address + size - 1) // _PAGE_BYTES
    pages = 0
    for begin in range(first, last + 1, 1 << 16):
        count = min(1 << 16, last + 1 - begin)
        try:
            content = os.pread(pagemap, 8 * count, 8 * begin)
        except OSError:
            return None
        # the highest byte of each of these little-endian words: bit 7 present, bit 6 swapped
        flags = content[7::8]
        if len(flags) < count:
            return None
        pages += count - flags.translate(_IS_THERE).count(0)
    return min(size, pages * _PAGE_BYTES)


_IS_THERE = bytes(int(flags & 0xC0 != 0) for flags in range(256))
