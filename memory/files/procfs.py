"""Small files of /proc and /sys, read without raising: what cannot be read is None.

A process may end between two reads, and a kernel may lack a counter: a measurement must not break what it
measures. Plain system calls and `split`, since `open()` and regular expressions take three times as long.
"""

from __future__ import annotations

import os

ONE_READ_BYTES = 65536


def read_file(path: str) -> bytes | None:
    """First 64 KB of a file; None if it cannot be read. Most kernel files come whole in one read."""
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


def read_long_file(path: str) -> bytes | None:
    """Whole content of a file that the kernel writes record by record, such as maps; None if unreadable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (OSError, ValueError):
        return None


def exists(path: str) -> bool:
    """Whether a file or folder has this path."""
    return os.access(path, os.F_OK)


def list_folder(path: str) -> list[str]:
    """Names in a folder; empty if it cannot be read."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def folders_in(path: str) -> list[str]:
    """Paths of the folders in a folder; empty if it cannot be read."""
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def folders_below(path: str, most: int) -> list[str]:
    """Paths of a folder and of all folders below it, at most `most` of them."""
    found = [path]
    for folder in found:
        found += folders_in(folder)[: most - len(found)]
    return found


def read_number(path: str) -> int | None:
    """The one number in a file; None for `max`, for anything else, and if it cannot be read."""
    content = read_file(path)
    return None if content is None else to_number(content.strip())


def read_counters(path: str) -> dict[str, int]:
    """Lines of `name number`, as in memory.stat, as a dictionary; other lines are left out."""
    words = iter((read_file(path) or b"").decode("ascii", "replace").split())
    return {
        name: int(digits)
        for name, digits in zip(words, words, strict=False)
        if digits.isdigit() and len(digits) < 20
    }


def kilobytes(text: bytes, names: tuple[bytes, ...]) -> list[int | None]:
    """Amounts in bytes of the lines `name number kB` with these names; None for a missing or garbled one.

    Args:
        text: such lines alone.
        names: with their colon.
    """
    words = text.split()
    found = dict(zip(words[::3], words[1::3], strict=False))
    amounts = [found.get(name, b"") for name in names]
    return [1024 * int(digits) if digits.isdigit() and len(digits) < 16 else None for digits in amounts]


def to_number(digits: bytes) -> int | None:
    """The number, if it is one that fits the kernel's 64 bits; else None."""
    return int(digits) if digits.isdigit() and len(digits) < 20 else None
