"""What is fetched of a set: runs of the blocks that its manifest has checksums of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from data_loading.content_hash import PIECE_BYTES
from data_loading.npy import HEADER_BYTES, header
from data_loading.shards import Part

_START_BYTES = 8


@dataclass(frozen=True)
class Block:
    """Bytes start to stop of an object. sha256: of them; None: only the whole is verified."""

    start: int
    stop: int
    sha256: str | None


@dataclass(frozen=True)
class Piece:
    """A local file: `header`, then the bytes of `blocks`, which follow each other in the object `source`.

    name: of the local file. source_bytes: size that the object has. content_hash: of the whole file, where
    blocks have none.
    """

    name: str
    source: str
    source_bytes: int
    header: bytes
    blocks: tuple[Block, ...]
    content_hash: str | None = None

    @property
    def file_bytes(self) -> int:
        return len(self.header) + self.blocks[-1].stop - self.blocks[0].start

    @property
    def checksum(self) -> str:
        """Tells its content from any other."""
        import hashlib

        told = [block.sha256 or "" for block in self.blocks]
        return self.content_hash or hashlib.sha256("".join(told).encode()).hexdigest()

    def place(self, start: int) -> int:
        """Where the object's byte `start` stands in the file."""
        return len(self.header) + start - self.blocks[0].start


def blocks_of(part: Part, dtype: np.dtype, block_bytes: int) -> list[Block]:
    """All blocks of a token file, as places in the object."""
    end = HEADER_BYTES + part.tokens * dtype.itemsize
    starts = range(HEADER_BYTES, end, block_bytes)
    return [
        Block(start, min(start + block_bytes, end), digest)
        for start, digest in zip(starts, part.blocks, strict=True)
    ]


def tokens_piece(part: Part, manifest: dict[str, Any], first: int = 0, stop: int | None = None) -> Piece:
    """The blocks first to stop of a token file, as an .npy of their own; all of them by default."""
    dtype = np.dtype(manifest["dtype"])
    every = blocks_of(part, dtype, manifest["checksums"]["bytes"])
    blocks = tuple(every[first:stop])
    name = part.tokens_path.name
    if len(blocks) < len(every):
        name = f"{name.removesuffix('.npy')}.blocks{first}-{first + len(blocks)}.npy"
    tokens = (blocks[-1].stop - blocks[0].start) // dtype.itemsize
    return Piece(name, part.tokens_path.as_posix(), every[-1].stop, header(dtype, tokens), blocks)


def documents_piece(part: Part) -> Piece:
    """The file of document starts of a token file."""
    size = HEADER_BYTES + part.documents * _START_BYTES
    blocks = tuple(
        Block(start, min(start + PIECE_BYTES, size), None) for start in range(0, size, PIECE_BYTES)
    )
    path = part.documents_path
    return Piece(path.name, path.as_posix(), size, b"", blocks, part.documents_checksum)
