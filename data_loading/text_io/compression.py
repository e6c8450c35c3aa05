"""Compressed streams, known by their first bytes, decompressed piece by piece in bounded memory."""

from __future__ import annotations

import bz2
import codecs
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from experiment_utils.errors import UserError
from experiment_utils.extras import PACKAGE_MISSING, install_command

HEAD_BYTES = 6
"""Bytes from which a compression is known."""
SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
_READ_BYTES = 1 << 18
_XZ_MEMORY = 256 << 20
"""Four times what `xz -9` needs. A file can ask for more than the machine has."""


class _Member(Protocol):
    """Decompressor of one gzip member, zstd frame, bzip2 or xz stream."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _GzipMember:
    """zlib with the interface of the others."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        found = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        self.needs_input = not self._zlib.unconsumed_tail and len(found) < max_length
        return found


def _xz_member() -> Any:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _zstd() -> Any:
    """The zstd module of Python 3.14, which older ones get as a package."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        try:
            from backports import zstd
        except ImportError:
            raise UserError(
                f"reading zstd needs the package backports.zstd: {install_command('zstd')}",
                code=PACKAGE_MISSING,
            ) from None
    return zstd


@dataclass(frozen=True)
class Compression:
    """member: makes a decompressor. magics: first bytes of a member. padding: zeros can follow it."""

    name: str
    magics: tuple[bytes, ...]
    member: Callable[[], _Member]
    errors: Callable[[], tuple[type[Exception], ...]]
    padding: bool = False


_COMPRESSIONS = (
    Compression("gzip", (b"\x1f\x8b",), _GzipMember, lambda: (zlib.error,), padding=True),
    Compression(
        "zstd",
        (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + i]) + b"\x2a\x4d\x18" for i in range(16))),  # RFC 8878, 3.1
        lambda: _zstd().ZstdDecompressor(),
        lambda: (_zstd().ZstdError,),
    ),
    Compression("bzip2", (b"BZh",), bz2.BZ2Decompressor, lambda: (OSError, ValueError)),
    Compression("xz", (b"\xfd7zXZ\x00",), _xz_member, lambda: (lzma.LZMAError,), padding=True),
)


def compression_of(head: bytes) -> Compression | None:
    """Compression of a file with these first bytes; None if it is not compressed."""
    return next((found for found in _COMPRESSIONS if head.startswith(found.magics)), None)


def is_cut_short(head: bytes, suffix: str) -> bool:
    """Whether a whole file is shorter than the first bytes of its compression."""
    magics = (magic for found in _COMPRESSIONS for magic in found.magics)
    return suffix in SUFFIXES and any(len(head) < len(magic) and magic.startswith(head) for magic in magics)


def looks_damaged(head: bytes, suffix: str) -> bool:
    """Whether a file is compressed by its name, but its first bytes are neither of that nor of a text."""
    try:
        text = codecs.utf_8_decode(head, "strict", False)[0]
    except UnicodeDecodeError:
        return suffix in SUFFIXES
    return suffix in SUFFIXES and any(c < " " and c not in "\t\n\v\f\r" for c in text)


def decompressed(
    read: Callable[[int], bytes], compression: Compression, name: str, piece_bytes: int
) -> Iterator[bytes]:
    """Yield the text of a stream in pieces of up to `piece_bytes`, all members to the end.

    Args:
        read: Returns up to the given number of bytes of the stream, none at its end.
        name: For messages.

    Raises:
        UserError: it is damaged, ends too early, or is followed by something else; with the byte.
    """
    errors = compression.errors()
    member = compression.member()
    data, taken = b"", 0

    def more() -> bytes:
        nonlocal taken
        found = read(_READ_BYTES)
        taken += len(found)
        return found

    while True:
        if member.eof:
            data = _next_member(member.unused_data, more, compression)
            if not data:
                return
            if not data.startswith(compression.magics):
                raise UserError(
                    f"{name} is damaged: its {compression.name} data end at byte {taken - len(data):,}, and "
                    "something else follows. Copy or download it again, or cut it off there",
                    code="compressed-trailing-data",
                )
            member = compression.member()
        elif member.needs_input:
            data = more()
            if not data:
                raise UserError(
                    f"{name} ends in the middle of its {compression.name} data, at byte {taken:,}: it is cut "
                    "short. Copy or download it again",
                    code="compressed-cut-short",
                )
        else:
            data = b""
        try:
            found = member.decompress(data, piece_bytes)
        except errors as error:
            raise UserError(
                f"{name} is damaged: its {compression.name} data cannot be read on at byte {taken:,} or up "
                f"to {_READ_BYTES >> 10} KB before it ({error}). Copy or download it again",
                code="compressed-damaged",
            ) from None
        if found:
            yield found


def _next_member(rest: bytes, more: Callable[[], bytes], compression: Compression) -> bytes:
    """The bytes after a member, enough to recognize them; empty at the end."""
    while True:
        rest = rest.lstrip(b"\0") if compression.padding else rest
        if len(rest) >= HEAD_BYTES:
            return rest
        data = more()
        if not data:
            return rest
        rest += data
