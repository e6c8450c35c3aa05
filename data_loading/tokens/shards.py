"""Files of a token set, and arrays in several files read as one."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
    """1-D arrays that follow each other, read in slices: value // unit + added for each value of an array.

    Args:
        parts: The arrays, of one dtype unless `dtype` is given.
        added: Number for each array: document starts count from the first token of their shard.
        units: Divisor for each array: some formats store byte offsets.
        dtype: Of the result; None: that of the arrays.
    """

    def __init__(
        self,
        parts: Sequence[np.ndarray],
        added: Sequence[int] | None = None,
        units: Sequence[int] | None = None,
        dtype: np.dtype | None = None,
    ) -> None:
        self.parts, self.added, self.units = list(parts), added, units
        self.dtype = self.parts[0].dtype if dtype is None else dtype
        self.first = np.cumsum([0, *map(len, self.parts)])
        """`(parts + 1,)`: index of the first value of each part, and the length of all."""

    def __len__(self) -> int:
        return int(self.first[-1])

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found = np.empty(stop - start, self.dtype)
        at, part = start, int(np.searchsorted(self.first, start, side="right")) - 1
        while at < stop:
            first, last = int(self.first[part]), min(stop, int(self.first[part + 1]))
            found[at - start : last - start] = self._values(part, slice(at - first, last - first))
            at, part = last, part + 1
        return found

    def take(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(len(places), self.dtype)
        parts = np.searchsorted(self.first, places, side="right") - 1
        for part in np.unique(parts):
            here = parts == part
            found[here] = self._values(part, places[here] - self.first[part])
        return found

    def search(self, wanted: np.ndarray) -> np.ndarray:
        numbers, begins = self._begins
        found = np.zeros(len(wanted), np.int64)
        nearest = np.searchsorted(begins, wanted) - 1  # the last part with a value below each
        for place in np.unique(nearest[nearest >= 0]):
            here, number = nearest == place, numbers[place]
            part, unit, added = self.parts[number], *self._factors(number)
            limits = (wanted[here] - added) * unit
            most = min(np.iinfo(part.dtype).max, np.iinfo(np.int64).max)
            below = np.searchsorted(part, np.minimum(limits, most).astype(part.dtype))
            found[here] = self.first[number] + np.where(limits > most, len(part), below)
        return found

    @cached_property
    def _begins(self) -> tuple[list[int], np.ndarray]:
        """Numbers of the parts that are not empty, and their first values, int64."""
        numbers = [number for number, part in enumerate(self.parts) if len(part)]
        begins = [int(self._values(number, slice(0, 1))[0]) for number in numbers]
        return numbers, np.array(begins, np.int64)

    def _values(self, part: int, key: slice | np.ndarray) -> np.ndarray:
        values: np.ndarray = self.parts[part][key]
        if self.added is None and self.units is None:
            return values
        unit, added = self._factors(part)
        return values.astype(np.int64) // unit + added

    def _factors(self, part: int) -> tuple[int, int]:
        """Return (unit, added) of a part."""
        return 1 if self.units is None else self.units[part], 0 if self.added is None else self.added[part]


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
