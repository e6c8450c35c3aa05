"""The floor of reading, and the loader next to it: the same windows, in the same order and state of pages."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.loading_measure import bytes_read
from data_loading.dataset.windows import Windows
from data_loading.readers.extents import extents_of
from data_loading.readers.mapped import MappedReader, map_of

if TYPE_CHECKING:
    from data_loading.dataset.streaming_dataset import StreamingDataset

STATES = ("mapped", "cached", "cold")
"""mapped: this process has read the pages of the windows before. cached: they are in the page cache, as in
the first epoch of a set that was just copied here. cold: they are on the disk only."""
_WARM_UP_BATCHES = 80
"""At its start the loader gives the kernel hints about the next batches, which memory does not need."""
_COLD_LIMIT_S, _COLD_BATCHES_AT_LEAST = 6.0, 4


class Floor:
    """`view[starts]` of a strided view of a .npy and `astype(int64)`: no order, no checks, no hints.

    It has a map of its own, so that hints of a reader do not change it.
    """

    def __init__(self, path: Path, width: int) -> None:
        """width: tokens of a window."""
        ids = np.asarray(np.load(path, mmap_mode="r"))
        self._map, size = map_of(ids), ids.dtype.itemsize
        self._view = np.lib.stride_tricks.as_strided(ids, (len(ids) - width + 1, width), (size, size))

    def read(self, starts: np.ndarray) -> np.ndarray:
        """`(len(starts), width)` int64."""
        return self._view[starts].astype(np.int64)

    def release(self) -> None:
        """Unmap its pages; they stay in the page cache."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)


class Taken(NamedTuple):
    """Cost of some batches. cpu_s: time on a processor, which other programs do not take."""

    batches: int
    seconds: float
    cpu_s: float
    read_bytes: int


class Pair(NamedTuple):
    """One round of both."""

    ours: Taken
    floor: Taken

    @property
    def share(self) -> float:
        """Speed of ours, as a share of the floor's."""
        return self.floor.seconds / self.ours.seconds

    @property
    def share_by_cpu(self) -> float:
        return self.floor.cpu_s / self.ours.cpu_s


class AgainstFloor:
    """Rounds of a plain dataset's loader and the floor, one after the other, in one process."""

    def __init__(self, dataset: StreamingDataset, batch_size: int) -> None:
        """dataset: plain windows of tokens in one .npy, each read once."""
        self.dataset, self.batch_size = dataset, batch_size
        tokens, ranges = dataset.data.ranges_of(dataset.split)
        self._windows, self._extents = Windows(ranges, dataset.seq_len), extents_of(tokens.tokens)
        (path,) = self._extents.paths
        assert path is not None
        self._path, self._floor = path, Floor(path, self._windows.width)
        self._batches, self._done = self._loader(0), 0

    def batches_in(self, seconds: float) -> int:
        """Number of batches that the loader makes in that time, about; at least 10."""
        self._ours(_WARM_UP_BATCHES)
        count, started = 0, time.perf_counter()
        while count < 10 or (time.perf_counter() - started < seconds and count < 10_000):
            self._ours(1)
            count += 1
        return count

    def round(self, state: str, batches: int, *, ours_first: bool = True) -> Pair:
        """One round in a state of STATES; a cold one ends after some seconds, of both."""
        if state == "cold":
            return self._cold(batches)
        starts = self._starts(batches)
        self._by_floor(starts)  # the pages are here, and mapped by both
        if state == "mapped":
            first = self._done
            self._ours(batches)
            self._settle(first)
        found: dict[str, Taken] = {}
        for who in ("ours", "floor") if ours_first else ("floor", "ours"):
            if state == "cached":
                self.release()
            ours, floor = partial(self._ours, batches), partial(self._by_floor, starts)
            found[who] = _taken(batches, ours if who == "ours" else floor)
        return Pair(**found)

    def release(self) -> None:
        """Unmap the pages of both."""
        MappedReader(self._extents).release()
        self._floor.release()

    def _settle(self, first: int) -> None:
        """A loader at batch `first` that has found its tokens in memory."""
        before = max(first - _WARM_UP_BATCHES, 0)
        self._batches, self._done = self._loader(before), before
        self._ours(first - before)

    def _cold(self, batches: int) -> Pair:
        starts, done = self._starts(batches), 0
        until = time.monotonic() + _COLD_LIMIT_S

        def some() -> None:
            nonlocal done
            while done < batches and (time.monotonic() < until or done < _COLD_BATCHES_AT_LEAST):
                self._by_floor(starts[done : done + 1])
                done += 1

        self._drop()
        floor = _taken(0, some)._replace(batches=done)
        self._drop()
        self._batches = self._loader(self._done)
        return Pair(_taken(done, partial(self._ours, done)), floor)

    def _drop(self) -> None:
        self.release()
        drop_from_cache([self._path])

    def _loader(self, batch: int) -> Iterator[Any]:
        loader = self.dataset.loader(self.batch_size, repeat=True)
        epoch, samples = divmod(batch * self.batch_size, len(self.dataset))
        state = {"epoch": epoch, "samples": samples, "fingerprint": self.dataset.fingerprint}
        loader.load_state_dict(state)
        return iter(loader)

    def _ours(self, batches: int) -> None:
        for _ in range(batches):
            next(self._batches)
        self._done += batches

    def _by_floor(self, starts: list[np.ndarray]) -> None:
        import torch

        for batch in starts:
            torch.from_numpy(self._floor.read(batch))

    def _starts(self, batches: int) -> list[np.ndarray]:
        """First tokens of the windows that the loader reads next, an array for each batch."""
        size, found = len(self.dataset), []
        for batch in range(self._done, self._done + batches):
            positions = np.arange(batch * self.batch_size, (batch + 1) * self.batch_size)
            epochs = positions // size
            windows = [
                self.dataset.window_at(positions[epochs == epoch] % size, int(epoch))
                for epoch in np.unique(epochs)
            ]
            found.append(self._windows.starts(np.concatenate(windows)))
        return found


def drop_from_cache(paths: list[Path]) -> None:
    """Remove files from the page cache (posix_fadvise(2)), if no process maps them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # what was not written yet stays in the cache
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _taken(batches: int, do: Callable[[], None]) -> Taken:
    before, cpu, started = bytes_read(), time.thread_time(), time.perf_counter()
    do()
    return Taken(batches, time.perf_counter() - started, time.thread_time() - cpu, bytes_read() - before)
