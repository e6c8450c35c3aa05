"""A reader of tokens that are fetched once and stay: val, test, or a whole set, read from everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from data_loading.npy import open_npy
from data_loading.readers.choose import ReaderOptions, open_reader
from data_loading.readers.extents import extents_of
from data_loading.readers.reader import Reader
from data_loading.remote.items import Item
from data_loading.remote.rotation import nowhere
from data_loading.shards import Shards

if TYPE_CHECKING:
    from data_loading.remote.remote_set import RemoteSet


class PinnedReader(Reader):
    """Of the blocks that `ranges` lie in. They are asked for at once, and waited for at the first read."""

    name = "remote"

    def __init__(self, of: RemoteSet, ranges: Sequence[range], options: ReaderOptions) -> None:
        super().__init__(nowhere(of))
        self._set, self._options = of, options
        self._items, self._first = blocks_of(of, ranges)
        self._lengths = [_tokens_of(of, item) for item in self._items]
        self._moved = np.cumsum([0, *self._lengths])[:-1] - self._first
        self._owner = of.pin(self, self._items)
        self._fetcher = of.fetcher(options.verify)
        self._fetcher.want(self._owner, self._items, [], urgent=False)
        self._inner: Reader | None = None

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        return self._opened().gather(self._local(starts), width)

    def gather_spans(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        return self._opened().gather_spans(self._local(starts), lengths)

    def will_need(self, starts: np.ndarray, width: int) -> None:
        if self._inner is not None:
            self._inner.will_need(self._local(starts), width)

    def _local(self, starts: np.ndarray) -> np.ndarray:
        """Where tokens stand in what is here."""
        units = np.searchsorted(self._first, starts, side="right") - 1
        local: np.ndarray = starts + self._moved[units]
        return local

    def _opened(self) -> Reader:
        if self._inner is None:
            told = f"{sum(self._lengths) * self._set.dtype.itemsize / 1e6:,.1f} MB of {self._set.name}"
            self._fetcher.want(self._owner, self._items, [], urgent=False)  # a fork has a helper of its own
            self._fetcher.wait_for(self._items, told)
            arrays = [open_npy(self._set.place(item)) for item in self._items]
            tokens = arrays[0] if len(arrays) == 1 else Shards(arrays)
            self._inner, _ = open_reader(extents_of(tokens), replace(self._options, plan=None))
        return self._inner


def blocks_of(of: RemoteSet, ranges: Sequence[range]) -> tuple[list[Item], np.ndarray]:
    """Runs of blocks that hold these ranges, and the first token of each, int64."""
    size, items, firsts = of.block_tokens, [], []
    for number, part in enumerate(of.parts):
        wanted: list[list[int]] = []
        for tokens in ranges:
            low = max(tokens.start - part.first_token, 0)
            high = min(tokens.stop - part.first_token, part.tokens)
            if low >= high:
                continue
            first, stop = low // size, -(-high // size)
            if wanted and first <= wanted[-1][1]:
                wanted[-1][1] = max(stop, wanted[-1][1])
            else:
                wanted.append([first, stop])
        items += [Item("tokens", number, first, stop) for first, stop in wanted]
        firsts += [part.first_token + first * size for first, _ in wanted]
    return items, np.array(firsts, np.int64)


def _tokens_of(of: RemoteSet, item: Item) -> int:
    size = of.block_tokens
    return min(item.stop * size, of.parts[item.part].tokens) - item.first * size
