"""A reader of a set whose shards take turns on the disk: this one is read while the next ones are fetched."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from data_loading.npy import open_npy
from data_loading.readers.choose import ReaderOptions, open_reader
from data_loading.readers.extents import Extents, extents_of
from data_loading.readers.plan import Plan
from data_loading.readers.reader import Reader
from data_loading.remote.items import Item, whole
from data_loading.shards import Shards

if TYPE_CHECKING:
    from data_loading.remote.remote_set import RemoteSet

_SHARDS_AHEAD = 4


def nowhere(of: RemoteSet) -> Extents:
    """Lengths of the token files, which are in no buffer."""
    count = len(of.parts)
    return Extents(
        of.dtype, (), (), (), np.arange(count), np.zeros(count, np.int64), np.array(of.file_borders)
    )


class RotatingReader(Reader):
    """One shard is open at a time. A window that goes on in the next shard finds its end in the first tokens
    of that one, which are fetched, verified with the block that they lie in, and kept.
    """

    name = "remote"
    is_here = False

    def __init__(self, of: RemoteSet, plan: Plan, options: ReaderOptions) -> None:
        super().__init__(nowhere(of))
        assert plan.windows is not None, "windows that hold tokens from anywhere"
        self._windows = plan.windows
        self._set, self._plan, self._options = of, plan, replace(options, plan=None)
        self._owner, self._fetcher = of.rotate(self), of.fetcher(options.verify)
        self._at = (0, 0)
        self._shard: int | None = None
        self._inner: Reader | None = None
        self._has_heads = False

    def reached(self, epoch: int, position: int) -> None:
        self._at = (epoch, position)

    def gather(self, starts: np.ndarray, width: int) -> np.ndarray:
        first = self.extents.first
        if len(starts) and (starts.min() < 0 or starts.max() + width > self.extents.tokens):
            raise IndexError(f"tokens {starts.min()} to {starts.max() + width} of {self.extents.tokens:,}")
        shards = np.searchsorted(first, starts, side="right") - 1
        if len(starts) and shards.min() == (shard := int(shards.max())):
            goes_on = int(starts.max()) + width > first[shard + 1]
            return self._opened(shard, goes_on).gather(starts - first[shard], width)
        found = np.empty((len(starts), width), self.extents.dtype)
        for shard in self._in_order(shards):
            here = shards == shard
            goes_on = bool((starts[here] + width > first[shard + 1]).any())
            found[here] = self._opened(shard, goes_on).gather(starts[here] - first[shard], width)
        return found

    def will_need(self, starts: np.ndarray, width: int) -> None:
        """What is fetched is asked for by whole shards; of the one that is open the kernel is told."""
        if self._inner is None:
            return
        shards = np.searchsorted(self.extents.first, starts, side="right") - 1
        here = shards == self._shard
        self._inner.will_need(starts[here] - self.extents.first[self._shard], width)

    def _in_order(self, shards: np.ndarray) -> list[int]:
        """Each once: that which is open first, then as they come."""
        there = list(dict.fromkeys(shards.tolist()))
        return sorted(there, key=lambda shard: shard != self._shard)

    def _opened(self, shard: int, with_heads: bool) -> Reader:
        if self._inner is not None and self._shard == shard and (self._has_heads or not with_heads):
            return self._inner
        self._inner, self._shard = None, None  # unmapped first: then its file may go
        items = [whole(self._set.parts[shard], shard), *(self._heads(shard) if with_heads else ())]
        self._fetcher.want(self._owner, items, self._ahead_of(shard))
        self._fetcher.wait_for(items, f"{self._set.parts[shard].tokens_path.name} of {self._set.name}")
        arrays = [open_npy(self._set.place(item)) for item in items]
        tokens = arrays[0] if len(arrays) == 1 else Shards(arrays)
        self._inner, _ = open_reader(extents_of(tokens), self._options)
        self._shard, self._has_heads = shard, with_heads
        return self._inner

    def _ahead_of(self, shard: int) -> list[Item]:
        """What is read after this shard, in its order: the next shards, and heads.

        A head of a shard that is fetched as a whole comes after it: it is cut from the file that is here.
        """
        after = self._shards_after(shard)
        items: list[Item] = []
        late: list[Item] = []
        for one in (shard, *after):
            if one != shard:
                items.append(whole(self._set.parts[one], one))
            for head in self._heads(one):
                (late if head.part in after else items).append(head)
        return items + late

    def _heads(self, shard: int) -> list[Item]:
        """The first tokens of those after the shard, in which its last windows end."""
        items, left = [], self._tail(shard)
        while left:
            shard += 1
            count = min(left, self._set.parts[shard].tokens)
            items.append(Item("head", shard, 0, count))
            left -= count
        return items

    def _tail(self, shard: int) -> int:
        """Tokens behind the shard's last that windows which begin in it read."""
        windows, end = self._windows, self.extents.first[shard + 1]
        last = int(windows.before(np.array([end]))[0]) - 1
        if last < 0:
            return 0
        start = int(windows.starts(np.array([last]))[0])
        return max(0, start + windows.width - int(end))

    def _shards_after(self, shard: int) -> list[int]:
        """Those that are read after this one, in their order."""
        rest = itertools.dropwhile(lambda other: other != shard, self._coming())
        after: dict[int, None] = {}
        for other in itertools.islice(rest, 1, 1 + 4 * _SHARDS_AHEAD):
            if other != shard and len(after) < _SHARDS_AHEAD:
                after[other] = None
        return list(after)

    def _coming(self) -> Iterator[int]:
        """Shards in the order of their reading, from where the stream stands."""
        for tokens in self._plan.coming(*self._at):
            last = tokens.stop - self._windows.width
            first, stop = np.searchsorted(self.extents.first, [tokens.start, last], side="right") - 1
            yield from range(int(first), int(stop) + 1)
