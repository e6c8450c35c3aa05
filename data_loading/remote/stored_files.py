"""Files of a stored token set: blocks of bytes with checksums, and the tokens that each file holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from data_loading.readers.extents import Extents
from data_loading.text_io.content_hash import ContentHash
from data_loading.tokens.npy import HEADER_BYTES, header
from data_loading.tokens.set_files import SetFiles
from data_loading.tokens.shards import parts_of

_START_BYTES = 8
_DISK_BLOCK_BYTES = 4096


@dataclass(frozen=True)
class Block:
    """Bytes of an object that are verified together."""

    start: int
    stop: int
    checksum: str
    is_content_hash: bool = False
    """The checksum is a content hash (`content_hash.py`), not a plain SHA-256."""

    def hasher(self) -> Any:
        """New hash object whose hex digest is compared with the checksum."""
        return ContentHash() if self.is_content_hash else hashlib.sha256()


@dataclass(frozen=True)
class StoredFile:
    """A local file: `header`, then consecutive blocks of the object `source`."""

    name: str
    source: str
    source_bytes: int
    header: bytes
    blocks: tuple[Block, ...]

    @property
    def file_bytes(self) -> int:
        return len(self.header) + self.blocks[-1].stop - self.blocks[0].start

    @property
    def disk_bytes(self) -> int:
        """Size in whole blocks of the file system."""
        return rounded(self.file_bytes)

    @property
    def checksum(self) -> str:
        """Checksum of the whole content; `mirror` marks objects with it."""
        if self.blocks[0].is_content_hash:
            return self.blocks[0].checksum
        return hashlib.sha256("".join(block.checksum for block in self.blocks).encode()).hexdigest()

    def offset(self, start: int) -> int:
        """Position in the file of the object's byte `start`."""
        return len(self.header) + start - self.blocks[0].start


class Head(NamedTuple):
    """The first tokens of a token file, which windows of the file before it end in."""

    part: int
    tokens: int


class Run(NamedTuple):
    """Consecutive tokens of a set that are in one file."""

    file: StoredFile
    first_token: int
    tokens: int


class SetGeometry:
    """Token files of a set (`parts`), their blocks, and the borders between them."""

    def __init__(self, files: SetFiles, manifest: dict[str, Any]) -> None:
        self.parts, self.dtype = parts_of(files, manifest), np.dtype(manifest["dtype"])
        self.borders = [*(part.first_token for part in self.parts), int(manifest["tokens"])]
        self._block_bytes: int = manifest["checksums"]["bytes"]
        self.block_tokens = self._block_bytes // self.dtype.itemsize

    def tokens_file(self, number: int, first: int = 0, stop: int | None = None) -> StoredFile:
        """The blocks first to stop of a token file as an .npy of their own; by default the whole file."""
        part = self.parts[number]
        end = HEADER_BYTES + part.tokens * self.dtype.itemsize
        starts = range(HEADER_BYTES, end, self._block_bytes)
        blocks = [
            Block(start, min(start + self._block_bytes, end), checksum)
            for start, checksum in zip(starts, part.blocks, strict=True)
        ]
        chosen, name = tuple(blocks[first:stop]), part.tokens_path.name
        if len(chosen) < len(blocks):
            name = f"{name.removesuffix('.npy')}.blocks{first}-{first + len(chosen)}.npy"
        tokens = (chosen[-1].stop - chosen[0].start) // self.dtype.itemsize
        return StoredFile(name, part.tokens_path.as_posix(), end, header(self.dtype, tokens), chosen)

    def documents_file(self, number: int) -> StoredFile:
        """The document starts of a token file."""
        part = self.parts[number]
        size, path = HEADER_BYTES + part.documents * _START_BYTES, part.documents_path
        block = Block(0, size, part.documents_checksum, is_content_hash=True)
        return StoredFile(path.name, path.as_posix(), size, b"", (block,))

    def head_file(self, head: Head) -> StoredFile:
        """The blocks in which a head is."""
        return self.tokens_file(head.part, 0, -(-head.tokens // self.block_tokens))

    def runs(self, ranges: Iterable[range]) -> list[Run]:
        """Files of whole blocks that hold these ranges of tokens, in order."""
        runs, ranges, size = [], list(ranges), self.block_tokens
        for number, part in enumerate(self.parts):
            wanted = np.zeros(len(part.blocks) + 2, bool)
            for tokens in ranges:
                low = max(tokens.start - part.first_token, 0)
                high = min(tokens.stop - part.first_token, part.tokens)
                if low < high:
                    wanted[1 + low // size : 1 + -(-high // size)] = True
            edges = np.flatnonzero(wanted[1:] != wanted[:-1]).tolist()
            for first, stop in zip(edges[::2], edges[1::2], strict=True):
                count = min(stop * size, part.tokens) - first * size
                runs.append(
                    Run(self.tokens_file(number, first, stop), part.first_token + first * size, count)
                )
        return runs

    def extents(self) -> Extents:
        """Lengths of the token files, which are in no buffer."""
        count = len(self.parts)
        zeros = np.zeros(count, np.int64)
        return Extents(self.dtype, (), (), (), np.arange(count), zeros, np.array(self.borders))


def rounded(size: int) -> int:
    """Bytes that a file of this size takes on a disk."""
    return -(-size // _DISK_BLOCK_BYTES) * _DISK_BLOCK_BYTES
