"""Arrays in several files, seen as one: the tokens and document starts of a set of shards."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.tokens.lazy_array import LazyValues, Values
from data_loading.tokens.npy import open_npy
from data_loading.tokens.set_files import SetFiles, documents_of
from experiment_utils.errors import UserError

_SPARE_FILES = 256
"""Descriptors left to the rest of the process."""


@dataclass(frozen=True)
class Part:
    """A token file of a set, as its manifest tells of it.

    first_token: of the set. documents: that begin in it. blocks: sha256 of each piece of its tokens.
    documents_checksum: content hash of the file of its document starts.
    """

    tokens_path: Path
    first_token: int
    tokens: int
    documents: int
    blocks: list[str]
    documents_checksum: str

    @property
    def documents_path(self) -> Path:
        return documents_of(self.tokens_path)


def parts_of(files: SetFiles, manifest: dict[str, Any]) -> list[Part]:
    """The token files of a set in their order: one, or its shards."""
    if not files.is_folder:
        checksums = manifest["checksums"]
        counts = manifest["tokens"], manifest["documents"]
        return [Part(files.tokens, 0, *counts, checksums["blocks"], checksums["documents"])]
    parts, first = [], 0
    for shard in manifest["shards"]:
        counts = shard["tokens"], shard["documents"]
        parts.append(
            Part(files.tokens / shard["name"], first, *counts, shard["blocks"], shard["documents_checksum"])
        )
        first += shard["tokens"]
    return parts


class Shards(LazyValues):
    """1-D arrays of one dtype laid end to end; read in slices.

    parts: the arrays. added: what is added to the values of each (document starts count from the first
    token of their shard); None: nothing.
    """

    def __init__(self, parts: Sequence[np.ndarray], added: Sequence[int] | None = None) -> None:
        self.parts, self.added = list(parts), added
        self.dtype = self.parts[0].dtype
        self.first = np.cumsum([0, *map(len, self.parts)])
        """`(parts + 1,)`: index of the first value of each part, and the length of all."""

    def __len__(self) -> int:
        return int(self.first[-1])

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found = np.empty(stop - start, self.dtype)
        part = int(np.searchsorted(self.first, start, side="right")) - 1
        while start < stop:
            first = int(self.first[part])
            values = self.parts[part][start - first : stop - first]
            here = found[len(found) - (stop - start) :][: len(values)]
            here[:] = values
            if self.added is not None:
                here += np.asarray(self.added[part], self.dtype)
            start, part = start + len(values), part + 1
        return found

    def take(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(len(places), self.dtype)
        parts = np.searchsorted(self.first, places, side="right") - 1
        for part in np.unique(parts):
            here = parts == part
            found[here] = self.parts[part][places[here] - self.first[part]]
            if self.added is not None:
                found[here] += np.asarray(self.added[part], self.dtype)
        return found

    def search(self, wanted: np.ndarray) -> np.ndarray:
        added = self.added if self.added is not None else [0] * len(self.parts)
        found = np.zeros(len(wanted), np.int64)
        for part, more in zip(self.parts, added, strict=True):
            # Those below the first of a part count nothing of it.
            found += np.searchsorted(part, np.maximum(wanted - more, 0).astype(part.dtype))
        return found


def open_parts(
    parts: Sequence[Part], opener: Callable[[Part], tuple[np.ndarray, np.ndarray]]
) -> tuple[Values, Values]:
    """(tokens, document starts) of all parts. opener: maps those of one and checks them."""
    if len(parts) == 1:
        return opener(parts[0])
    allow_open_files(2 * len(parts))
    opened = [opener(part) for part in parts]
    starts = Shards([starts for _, starts in opened], [part.first_token for part in parts])
    return Shards([tokens for tokens, _ in opened]), starts


def map_part(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Raises UserError where one of the two files is not what it should be."""
    return open_npy(part.tokens_path), open_npy(part.documents_path, may_be_empty=True)


def allow_open_files(count: int) -> None:
    """Python keeps a descriptor of every mapped file. Raises UserError where so many are not allowed."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _SPARE_FILES
    if allowed == resource.RLIM_INFINITY or allowed >= needed:
        return
    if most != resource.RLIM_INFINITY and most < needed:
        raise UserError(
            f"the set has {count:,} files to map, this process may open {most:,} (ulimit -Hn). Ask for more, "
            "or make the set anew with larger shards (--tokens-per-shard)",
            code="too-many-shards",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
