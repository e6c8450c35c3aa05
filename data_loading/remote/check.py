"""A fetched file held against the checksums of its blocks once more."""

from __future__ import annotations

import hashlib
from pathlib import Path

from data_loading.remote.pieces import Piece


def file_is_right(path: Path, piece: Piece) -> bool:
    """Whether a file is the piece. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        if file.read(len(piece.header)) != piece.header:
            return False
        for block in piece.blocks:
            digest, left = hashlib.sha256(), block.stop - block.start
            while left and (data := file.read(min(left, 1 << 20))):
                digest.update(data)
                left -= len(data)
            if digest.hexdigest() != block.sha256:
                return False
        return file.read(1) == b""
