"""Tokens and document starts of a stored set in slices, for code that reads a few of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from data_loading.remote.set_cache import SetCache
from data_loading.remote.stored_files import SetGeometry
from data_loading.tokens.lazy_array import LazyValues

_KEPT_FILES = 8


class RemoteTokens(LazyValues):
    """The tokens; each slice downloads the blocks that it is in."""

    def __init__(self, geometry: SetGeometry, cache: SetCache) -> None:
        self._geometry, self._cache, self.dtype = geometry, cache, geometry.dtype

    def __len__(self) -> int:
        return self._geometry.borders[-1]

    def _slice(self, start: int, stop: int) -> np.ndarray:
        found, size = [np.empty(0, self.dtype)], self._geometry.block_tokens
        for number, part in enumerate(self._geometry.parts):
            low, high = max(start - part.first_token, 0), min(stop - part.first_token, part.tokens)
            for block in range(low // size, -(-high // size)) if low < high else ():
                tokens = self._cache.array(self._geometry.tokens_file(number, block, block + 1))
                found.append(tokens[max(low - block * size, 0) : high - block * size])
        return np.concatenate(found)


class RemoteStarts(LazyValues):
    """The document starts; those of a token file are downloaded when one of them is read."""

    def __init__(self, geometry: SetGeometry, cache: SetCache) -> None:
        self._geometry, self._cache, self.dtype = geometry, cache, np.dtype("<u8")
        self._first = np.cumsum([0, *(part.documents for part in geometry.parts)])
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return int(self._first[-1])

    def _of_part(self, number: int) -> np.ndarray:
        if number not in self._kept:
            if len(self._kept) >= _KEPT_FILES:
                del self._kept[next(iter(self._kept))]
            first = np.asarray(self._geometry.parts[number].first_token, self.dtype)
            starts = self._cache.array(self._geometry.documents_file(number))
            self._kept[number] = starts.astype(self.dtype) + first
        return self._kept[number]

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self.take(np.arange(start, stop))

    def take(self, places: np.ndarray) -> np.ndarray:
        found = np.empty(len(places), self.dtype)
        parts = np.searchsorted(self._first, places, side="right") - 1
        for part in np.unique(parts).tolist():
            here = parts == part
            found[here] = self._of_part(part)[places[here] - self._first[part]]
        return found

    def search(self, wanted: np.ndarray) -> np.ndarray:
        found, borders = np.empty(len(wanted), np.int64), np.array(self._geometry.borders)
        parts = np.clip(np.searchsorted(borders, wanted, side="right") - 1, 0, len(borders) - 2)
        for part in np.unique(parts).tolist():
            here, starts = parts == part, self._of_part(part)
            found[here] = self._first[part] + np.searchsorted(
                starts, np.maximum(wanted[here], 0).astype(self.dtype)
            )
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}
