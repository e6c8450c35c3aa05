"""Readers of a stored set, of files that stay and of shards that take turns on the disk, and its slices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from data_loading.readers.choose_reader import ReaderOptions, open_reader
from data_loading.readers.extents import extents_of
from data_loading.readers.read_plan import Plan
from data_loading.readers.reader import Reader
from data_loading.remote.disk_budget import Hold
from data_loading.remote.set_cache import SetCache
from data_loading.remote.stored_files import Head, Run, SetGeometry, StoredFile
from data_loading.tokens.lazy_array import LazyValues
from data_loading.tokens.npy import open_npy
from data_loading.tokens.shards import Shards, allow_open_files

_SHARDS_AHEAD = 4
_KEPT_FILES = 8


class _CachedReader(Reader):
    """Reader of files of the cache through `inner`, a reader of what is open now."""

    name = "remote"

    def __init__(self, geometry: SetGeometry, cache: SetCache, options: ReaderOptions) -> None:
        super().__init__(geometry.extents())
        self._geometry, self._cache = geometry, cache
        cache.is_verifying |= options.verify == "blocks"
        self._options = replace(options, plan=None, verify="set")
        self._inner: Reader | None = None
        self._holds: dict[str, Hold] = {}

    def _open(self, files: Sequence[StoredFile], *more: np.ndarray) -> Reader:
        """Reader of these files in a row, then of arrays in memory."""
        self._inner = None
        for name in self._holds.keys() - {file.name for file in files}:
            self._holds.pop(name).close()
        for file in files:
            if file.name not in self._holds or not self._holds[file.name].close.alive:
                self._holds[file.name] = self._cache.hold(file)
        arrays = [*(open_npy(self._cache.path(file)) for file in files), *more]
        tokens = arrays[0] if len(arrays) == 1 else Shards(arrays)
        self._inner, _ = open_reader(extents_of(tokens), self._options)
        return self._inner


class ResidentReader(_CachedReader):
    """Reader of val, test or a whole set: files that are downloaded once and stay while it lives."""

    def __init__(
        self, geometry: SetGeometry, cache: SetCache, runs: Sequence[Run], options: ReaderOptions
    ) -> None:
        super().__init__(geometry, cache, options)
        self._files = [run.file for run in runs]
        # A map and a lock of each file, of this reader and the set's others.
        allow_open_files(2 * (len(runs) + len(geometry.parts)))
        self._first = np.array([run.first_token for run in runs], np.int64)
        self._moved = np.cumsum([0, *(run.tokens for run in runs)])[:-1] - self._first
        cache.prefetch(self, self._files)

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        return self._opened().gather(self._local(starts), width)

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return self._opened().gather_spans(self._local(starts), lengths)

    def will_need(self, starts: np.ndarray, width: int) -> None:
        if self._inner is not None:
            self._inner.will_need(self._local(starts), width)

    def _opened(self) -> Reader:
        return self._inner if self._inner is not None else self._open(self._files)

    def _local(self, starts: np.ndarray) -> np.ndarray:
        """Positions of tokens in the files in a row."""
        runs = np.searchsorted(self._first, starts, side="right") - 1
        local: np.ndarray = starts + self._moved[runs]
        return local


class RotatingReader(_CachedReader):
    """Reader of train: one shard is open at a time, and the next ones are downloaded meanwhile.

    A window that ends in the next shard finds its last tokens in the head of that one.
    """

    is_here = False

    def __init__(self, geometry: SetGeometry, cache: SetCache, plan: Plan, options: ReaderOptions) -> None:
        super().__init__(geometry, cache, options)
        assert plan.windows is not None, "windows that hold tokens from anywhere"
        self._windows, self._plan, self._at = plan.windows, plan, (0, 0)
        self._shard, self._has_heads = -1, False

    def reached(self, epoch: int, position: int) -> None:
        self._at = (epoch, position)

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        first, tokens = self.extents.first, self.extents.tokens
        if len(starts) and (starts.min() < 0 or starts.max() + width > tokens):
            raise IndexError(f"tokens {starts.min()} to {starts.max() + width} of {tokens:,}")
        shards = np.searchsorted(first, starts, side="right") - 1
        is_across = starts + width > first[shards + 1]
        found = np.empty((len(starts), width), self.extents.dtype)
        # The open shard first, the others in the order of their windows.
        for shard in sorted(dict.fromkeys(shards.tolist()), key=lambda shard: shard != self._shard):
            here = shards == shard
            inner = self._opened(shard, bool(is_across[here].any()))
            found[here] = inner.gather(starts[here] - first[shard], width)
        return found

    def will_need(self, starts: np.ndarray, width: int) -> None:
        if self._inner is not None:
            shards = np.searchsorted(self.extents.first, starts, side="right") - 1
            here = starts[shards == self._shard]
            self._inner.will_need(here - self.extents.first[self._shard], width)

    def _opened(self, shard: int, with_heads: bool) -> Reader:
        if self._inner is not None and self._shard == shard and (self._has_heads or not with_heads):
            return self._inner
        file, heads = self._geometry.tokens_file(shard), self._heads(shard) if with_heads else []
        self._shard = -1
        inner = self._open([file], *map(self._cache.head, heads))
        self._shard, self._has_heads = shard, with_heads
        self._cache.prefetch(self, self._tasks_after(shard))
        return inner

    def _tasks_after(self, shard: int) -> list[StoredFile | Head]:
        """Downloads after a shard in the order of their use, without heads of shards that come anyway."""
        rest = itertools.dropwhile(lambda other: other != shard, self._coming())
        others = (other for other in itertools.islice(rest, 1, 1 + 4 * _SHARDS_AHEAD) if other != shard)
        after = list(dict.fromkeys(others))[:_SHARDS_AHEAD]
        tasks: list[StoredFile | Head] = []
        for number in (shard, *after):
            tasks += [self._geometry.tokens_file(number)] if number != shard else []
            tasks += [head for head in self._heads(number) if head.part not in after]
        return tasks

    def _heads(self, shard: int) -> list[Head]:
        """Heads of the following shards in which the last windows of a shard end."""
        windows, end = self._windows, self.extents.first[shard + 1]
        last = windows.before(np.array([end])) - 1
        left = int(windows.starts(last)[0] + windows.width - end) if last[0] >= 0 else 0
        heads = []
        while left > 0:
            shard += 1
            heads.append(Head(shard, min(left, self._geometry.parts[shard].tokens)))
            left -= heads[-1].tokens
        return heads

    def _coming(self) -> Iterator[int]:
        """Shards in the order of their reading, from the position of the stream."""
        for tokens in self._plan.coming(*self._at):
            last = tokens.stop - self._windows.width
            first, stop = np.searchsorted(self.extents.first, [tokens.start, last], side="right") - 1
            yield from range(int(first), int(stop) + 1)


class RemoteTokens(LazyValues):
    """The tokens; each slice downloads the blocks that hold it."""

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

    dtype = np.dtype("<u8")

    def __init__(self, geometry: SetGeometry, cache: SetCache) -> None:
        self._geometry, self._cache = geometry, cache
        self._first = np.cumsum([0, *(part.documents for part in geometry.parts)])
        self._kept: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return int(self._first[-1])

    def _of_part(self, number: int) -> np.ndarray:
        if number not in self._kept:
            if len(self._kept) >= _KEPT_FILES:
                del self._kept[next(iter(self._kept))]
            starts = self._cache.array(self._geometry.documents_file(number)).astype(self.dtype)
            self._kept[number] = starts + np.asarray(self._geometry.parts[number].first_token, self.dtype)
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
        found, borders = np.empty(len(wanted), np.int64), self._geometry.borders
        parts = np.clip(np.searchsorted(borders, wanted, side="right") - 1, 0, len(borders) - 2)
        for part in np.unique(parts).tolist():
            here, least = parts == part, np.maximum(wanted, 0).astype(self.dtype)
            found[here] = self._first[part] + np.searchsorted(self._of_part(part), least[here])
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}
