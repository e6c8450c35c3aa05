"""Units that --dedup compares, lines or whole documents: their hashes, and the text without repeated ones.

A line is compared without its line end (LF or CRLF), otherwise byte for byte. Blank lines are no
repetition of one another. Both take the text in pieces of any size and hold none of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from data_loading.pretokenizer.cleaning.seen_hashes import HASH_BYTES
from data_loading.text_io.chunks import Chunk

PIECE_BYTES = 1 << 16
"""Text that is divided into lines at a time: a chunk can be much longer."""


@dataclass
class Numbering:
    """Position in the set. number: of the current or next unit. is_open: whether the text is inside of it.
    dropped, dropped_bytes: in this source so far.
    """

    number: int = 0
    is_open: bool = False
    dropped: int = 0
    dropped_bytes: int = 0


Flags = Callable[[int, int], np.ndarray]
"""(first number, count) -> bool, whether they are to be dropped."""


class Unit(Protocol):
    """A kind of unit, numbered over all chunks of a set in the same way when hashing and when dropping."""

    name: str
    number: int

    def hash(self, data: bytes, *, ends_document: bool) -> None: ...

    def take(self) -> np.ndarray:
        """uint64 `(n, 3)`: hash and number of the units that ended since the last call."""
        ...

    @staticmethod
    def kept(chunk: Chunk, at: Numbering, flags: Flags) -> bytes: ...


class _Hashes:
    """Hashes and their numbers, until they are taken."""

    def __init__(self) -> None:
        self.number = 0
        self._digests: list[bytes] = []
        self._numbers: list[int] = []

    def take(self) -> np.ndarray:
        found = np.empty((len(self._numbers), 3), "<u8")
        found[:, :2] = np.frombuffer(b"".join(self._digests), "<u8").reshape(-1, 2)
        found[:, 2] = self._numbers
        self._digests, self._numbers = [], []
        return found

    def __len__(self) -> int:
        return len(self._numbers)


class Documents(_Hashes):
    """Documents without text have no number."""

    name = "documents"

    def __init__(self) -> None:
        super().__init__()
        self._begun: Any = None

    def hash(self, data: bytes, *, ends_document: bool) -> None:
        if data:
            self._begun = self._begun or _new_hash()
            self._begun.update(data)
        if ends_document and self._begun is not None:
            self._digests.append(self._begun.digest())
            self._numbers.append(self.number)
            self.number, self._begun = self.number + 1, None

    @staticmethod
    def kept(chunk: Chunk, at: Numbering, flags: Flags) -> bytes:
        data = chunk.data
        begins = bool(data) and not at.is_open
        at.is_open = at.is_open or begins
        if at.is_open and flags(at.number, 1)[0]:
            at.dropped += begins
            at.dropped_bytes += len(data)
            data = b""
        if chunk.ends_document and at.is_open:
            at.number, at.is_open = at.number + 1, False
        return data


class Lines(_Hashes):
    """A document's last line may have no line end."""

    name = "lines"

    def __init__(self) -> None:
        super().__init__()
        self._begun: Any = _new_hash()
        self._is_begun = self._is_blank = self._has_return = False

    def hash(self, data: bytes, *, ends_document: bool) -> None:
        first, *others = data.split(b"\n")
        self._add(first)
        if others:
            self._end()
            self._whole(others[:-1])
            self._add(others[-1])
        if ends_document and self._is_begun:
            self._end()

    def _add(self, part: bytes) -> None:
        """Add to the current line; a CR at its end can be part of a line end."""
        if not part:
            return
        if not self._is_begun:
            self._begun, self._is_begun, self._is_blank = _new_hash(), True, True
        if self._has_return:
            self._begun.update(b"\r")
        self._has_return = part.endswith(b"\r")
        self._begun.update(part[:-1] if self._has_return else part)
        self._is_blank = self._is_blank and part.isspace()

    def _end(self) -> None:
        if self._is_begun and not self._is_blank:
            self._digests.append(self._begun.digest())
            self._numbers.append(self.number)
        self.number += 1
        self._is_begun = self._has_return = False

    def _whole(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, self.number):
            if line and not line.isspace():
                line = line.removesuffix(b"\r")
                self._digests.append(hashlib.blake2b(line, digest_size=HASH_BYTES).digest())
                self._numbers.append(number)
        self.number += len(lines)

    @staticmethod
    def kept(chunk: Chunk, at: Numbering, flags: Flags) -> bytes:
        kept = []
        for piece, _ in pieces(chunk.data):
            if not piece:
                continue
            is_open = not piece.endswith(b"\n")
            count = piece.count(b"\n") + is_open
            is_dropped = flags(at.number, count)
            if is_dropped.any():
                is_new = np.ones(count, bool)
                is_new[0] = not at.is_open
                at.dropped += int((is_dropped & is_new).sum())
                lines = zip(_lines(piece), is_dropped, strict=True)
                left = b"".join([line for line, drop in lines if not drop])
                at.dropped_bytes += len(piece) - len(left)
                piece = left
            kept.append(piece)
            at.number, at.is_open = at.number + count - is_open, is_open
        if chunk.ends_document and at.is_open:
            at.number, at.is_open = at.number + 1, False
        return b"".join(kept)


def pieces(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """(part of a chunk, whether it is the last one); one at least."""
    for start in range(0, len(data) or 1, PIECE_BYTES):
        yield data[start : start + PIECE_BYTES], start + PIECE_BYTES >= len(data)


def _lines(piece: bytes) -> list[bytes]:
    """Lines with their LF. A CR alone ends none, so `splitlines` cannot be used."""
    *whole, rest = piece.split(b"\n")
    return [*(line + b"\n" for line in whole), *([rest] if rest else [])]


def _new_hash() -> Any:
    return hashlib.blake2b(digest_size=HASH_BYTES)


UNITS: dict[str, type[Lines] | type[Documents]] = {"lines": Lines, "documents": Documents}
