"""What a process asks the helper for, as one word each, and the files that hold it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.remote.pieces import Piece, documents_piece, tokens_piece
from data_loading.shards import Part


@dataclass(frozen=True)
class Item:
    """kind: tokens: the blocks first to stop of the token file `part`; documents: its document starts; head:
    its first `stop` tokens.
    """

    kind: str
    part: int
    first: int = 0
    stop: int = 0

    @property
    def word(self) -> str:
        return f"{self.kind}:{self.part}:{self.first}:{self.stop}"

    @classmethod
    def of(cls, word: str) -> Item:
        kind, *numbers = word.split(":")
        return cls(kind, *map(int, numbers))

    def piece(self, parts: list[Part], manifest: dict[str, Any]) -> Piece:
        """What is fetched for it: of a head the blocks that it lies in."""
        part = parts[self.part]
        if self.kind == "documents":
            return documents_piece(part)
        if self.kind == "head":
            size = self.stop * np.dtype(manifest["dtype"]).itemsize
            return tokens_piece(part, manifest, 0, -(-size // manifest["checksums"]["bytes"]))
        return tokens_piece(part, manifest, self.first, self.stop)

    def target(self, folder: Path, parts: list[Part], manifest: dict[str, Any]) -> Path:
        """Where it lies when it was fetched."""
        if self.kind == "head":
            stem = parts[self.part].tokens_path.name.removesuffix(".npy")
            return folder / f"{stem}.head{self.stop}.npy"
        return folder / self.piece(parts, manifest).name


def whole(part: Part, number: int) -> Item:
    """All of a token file."""
    return Item("tokens", number, 0, len(part.blocks))
