"""Small files of /proc and /sys, read fast and without ever raising: what cannot be read is None.

A process may end between two reads, a counter may be missing in this kernel, and a measurement must
not break what it measures. Nine processes are some thirty files, so the hot path here is plain system
calls and `split`: `open()` and regular expressions cost three times as much.
"""

from __future__ import annotations

import os
from collections.abc import Callable

ONE_READ_BYTES = 65536


def read_file(path: str) -> bytes | None:
    """The first 64 KB, or None: the whole of a file that the kernel writes as one record, as most are."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        return os.read(descriptor, ONE_READ_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)


Read = Callable[[str], bytes | None]
"""`read_file`, or `memory.files.cached_procfs.read_kept` for what is read again and again."""


def read_long_file(path: str) -> bytes | None:
    """A file that the kernel writes record by record, so that a read may end before the file does."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (OSError, ValueError):
        return None


def exists(path: str) -> bool:
    """Is there such a file or folder?"""
    return os.access(path, os.F_OK)


def list_folder(path: str) -> list[str]:
    """Names in the folder, none where there is no such folder."""
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in entries]
    except OSError:
        return []


def folders_in(path: str) -> list[str]:
    """Paths of the folders in it, none where there is no such folder."""
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def read_number(path: str, read: Read = read_file) -> int | None:
    """The one number of the file; None for `max`, for garbage and where there is no such file."""
    content = read(path)
    return None if content is None else to_number(content.strip())


def read_counters(path: str, read: Read = read_file) -> dict[str, int]:
    """Lines of `name number`, as in memory.stat; what is no number is left out."""
    words = (read(path) or b"").decode("ascii", "replace").split()
    return {
        name: int(digits)
        for name, digits in zip(words[::2], words[1::2], strict=False)
        if digits.isdigit() and len(digits) < 20
    }


class Counters:
    """The same of a long file, of which a few are wanted: a number is made of those that are asked for."""

    __slots__ = ("_found",)

    def __init__(self, path: str, read: Read = read_file) -> None:
        words = iter((read(path) or b"").split())
        self._found = dict(zip(words, words, strict=False))

    def get(self, *names: bytes) -> int | None:
        """Of the first of these names that is there; None for garbage and for none of them."""
        for name in names:
            digits = self._found.get(name)
            if digits is not None:
                return to_number(digits)
        return None


def kilobytes(text: bytes, names: tuple[bytes, ...]) -> list[int | None]:
    """Amounts of the lines `name number kB` of that name, in bytes; None for a name that is not there."""
    words = text.split()
    found = dict(zip(words[::3], words[1::3], strict=False))
    amounts = (found.get(name, b"") for name in names)
    return [1024 * int(digits) if digits.isdigit() and len(digits) < 16 else None for digits in amounts]


def kilobytes_after(words: list[bytes], name: bytes) -> int | None:
    """Of `... name number kB ...` the number, in bytes."""
    try:
        digits = words[words.index(name) + 1]
    except (ValueError, IndexError):
        return None
    return 1024 * int(digits) if digits.isdigit() and len(digits) < 16 else None


def to_number(digits: bytes) -> int | None:
    """The number, if it is one that fits the kernel's 64 bits."""
    return int(digits) if digits.isdigit() and len(digits) < 20 else None
