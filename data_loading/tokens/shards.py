"""Files of a token set, and arrays in several files read as one."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.tokens.lazy_array import LazyValues, Values
from data_loading.tokens.npy import open_npy
from data_loading.tokens.set_files import SetFiles, documents_of
from experiment_utils.errors import UserError

_SPARE_FILES = 256
"""File descriptors for the rest of the process."""


@dataclass(frozen=True)
class Part:
    """A token file of a set, as described by its manifest."""

    tokens_path: Path
    first_token: int
    """Position of its first token in the set."""
    tokens: int
    dtype: str
    documents: int
    """Documents that begin in it."""
    blocks: list[str]
    """SHA-256 of each block of its tokens."""
    documents_checksum: str
    """Content hash of the file of its document starts."""

    @property
    def documents_path(self) -> Path:
        return documents_of(self.tokens_path)

    def open_tokens(self) -> np.ndarray:
        """Map the tokens. Raises UserError: they are damaged, or not those of the manifest."""
        tokens = open_npy(self.tokens_path)
        if (len(tokens), tokens.dtype.str) != (self.tokens, self.dtype):
            raise UserError(
                f"{self.tokens_path} has {len(tokens):,} tokens of {tokens.dtype.str}, its manifest says "
                f"{self.tokens:,} of {self.dtype}: one of them is from another set. Copy both again, or "
                "tokenize again with --overwrite",
                code="tokens-not-of-manifest",
            )
        return tokens

    def open_documents(self) -> np.ndarray:
        """Map the document starts. Raises UserError: they are damaged, or not those of the manifest."""
        if not self.documents_path.exists():
            raise UserError(
                f"{self.documents_path} is missing: it holds the document starts of {self.tokens_path.name}, "
                "which decide what is held out. Copy all files of the set again, or tokenize again with "
                "--overwrite",
                code="documents-missing",
            )
        documents = open_npy(self.documents_path, may_be_empty=True)
        if len(documents) != self.documents:
            raise UserError(
                f"{self.documents_path} has {len(documents):,} documents, the manifest says "
                f"{self.documents:,}. Copy all files of the set again, or tokenize again with --overwrite",
                code="documents-not-of-manifest",
            )
        return documents


def parts_of(files: SetFiles, manifest: dict[str, Any]) -> list[Part]:
    """Return the token files of a set in order: one, or its shards."""
    if not files.is_folder:
        checksums = manifest["checksums"]
        facts = {**manifest, "blocks": checksums["blocks"], "documents_checksum": checksums["documents"]}
        return [_part(files.tokens, 0, manifest["dtype"], facts)]
    parts, first = [], 0
    for shard in manifest["shards"]:
        parts.append(_part(files.tokens / shard["name"], first, manifest["dtype"], shard))
        first += shard["tokens"]
    return parts


def _part(path: Path, first_token: int, dtype: str, facts: dict[str, Any]) -> Part:
    counts = facts["tokens"], dtype, facts["documents"]
    return Part(path, first_token, *counts, facts["blocks"], facts["documents_checksum"])


class Shards(LazyValues):
    """1-D arrays of one dtype that follow each other, read in slices.

    Args:
        parts: The arrays.
        added: Number added to the values of each: document starts count from the first token of their shard.
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
            # Values below the first of a part count none of it.
            found += np.searchsorted(part, np.maximum(wanted - more, 0).astype(part.dtype))
        return found


def open_parts(parts: Sequence[Part]) -> tuple[Values, Values]:
    """Map (tokens, document starts) of all parts.

    Raises:
        UserError: A file is damaged, or not that of the manifest.
    """
    if len(parts) == 1:
        return parts[0].open_tokens(), parts[0].open_documents()
    allow_open_files(2 * len(parts))
    opened = [(part.open_tokens(), part.open_documents()) for part in parts]
    starts = Shards([starts for _, starts in opened], [part.first_token for part in parts])
    return Shards([tokens for tokens, _ in opened]), starts


def allow_open_files(count: int) -> None:
    """Raise the limit of open files, since each mapped file keeps a descriptor.

    Raises:
        UserError: The hard limit is lower.
    """
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _SPARE_FILES
    if allowed == resource.RLIM_INFINITY or allowed >= needed:
        return
    if most != resource.RLIM_INFINITY and most < needed:
        raise UserError(
            f"the set has {count:,} files to map, this process may open {most:,} (ulimit -Hn). Raise the "
            "limit, or make the set again with larger shards (--tokens-per-shard)",
            code="too-many-shards",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
