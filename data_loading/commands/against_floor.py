"""A dataset's loader against the floor: the same windows, in the same order and state of their pages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from data_loading.commands.reading_floor import Floor, bytes_read, drop_from_cache, why_no_floor
from data_loading.readers.mapped import MappedReader
from data_loading.windows import Windows

if TYPE_CHECKING:
    import torch

    from data_loading.readers.extents import Extents
    from data_loading.streaming import StreamingDataset

    Batch = dict[str, torch.Tensor]

STATES = ("mapped", "cached", "cold")
"""mapped: the pages of the windows were read by this process before. cached: they are in the page cache, as
in the first epoch of a set that was copied here just now. cold: on the disk alone."""
_WARM_UP_BATCHES = 80
"""For so long the loader tells the kernel of what it reads next, which memory does not need."""
_WARM_UP_LIMIT_S = 3.0
_COLD_LIMIT_S = 6.0
_COLD_BATCHES_AT_LEAST = 4


@dataclass(frozen=True)
class Pair:
    """One round: seconds, of them on a processor, and bytes read from the disk, for the same batches. floor:
    None where it has none.
    """

    batches: int
    ours_s: float
    floor_s: float | None
    ours_cpu_s: float
    floor_cpu_s: float | None
    ours_read_bytes: int | None
    floor_read_bytes: int | None

    @property
    def share(self) -> float | None:
        """How much of the floor's speed ours reaches."""
        return None if self.floor_s is None else self.floor_s / self.ours_s

    @property
    def share_by_cpu(self) -> float | None:
        """The same by time on a processor, which other programs do not take."""
        return None if self.floor_cpu_s is None else self.floor_cpu_s / self.ours_cpu_s


class AgainstFloor:
    """Rounds of a plain dataset's loader and the floor, one after the other, in one process."""

    def __init__(self, dataset: StreamingDataset, batch_size: int) -> None:
        """dataset: plain windows, each of whose tokens is read once."""
        self.dataset, self.batch_size = dataset, batch_size
        tokens, ranges = dataset.data.ranges_of(dataset.split)
        self._windows = Windows(ranges, dataset.seq_len)
        self._extents = _extents(tokens)
        self.no_floor = "the tokens are in no file"
        self._floor: Floor | None = None
        if self._extents is not None:
            self.no_floor = why_no_floor(self._extents, self._windows.width) or ""
            self._floor = Floor(self._extents, self._windows.width) if not self.no_floor else None
        self._batches, self._done = self._loader(0), 0

    @property
    def has_files(self) -> bool:
        """Whether there is something that can be cold."""
        return self._extents is not None and any(self._extents.paths)

    @property
    def batch_tokens(self) -> int:
        return self.batch_size * self.dataset.seq_len

    @property
    def token_bytes(self) -> int:
        tokens, _ = self.dataset.data.ranges_of(self.dataset.split)
        return tokens.tokens.dtype.itemsize

    def batches_in(self, seconds: float) -> int:
        """About how many the loader makes in that time, at least 10."""
        until, warmed = time.monotonic() + _WARM_UP_LIMIT_S, 0
        while warmed < _WARM_UP_BATCHES and time.monotonic() < until:
            self._ours(1)
            warmed += 1
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
        for batch in starts if self._floor else []:  # the pages are there, and mapped by both
            self._by_floor([batch])
        if self._floor is None or state == "mapped":
            first = self._done
            self._ours(batches)
            self._settle(first)
        found: dict[str, _Taken] = {}
        for who in ("ours", "floor") if ours_first else ("floor", "ours"):
            if state == "cached":
                self._release()
            if who == "ours":
                found[who] = _timed(lambda: self._ours(batches))
            elif self._floor:
                found[who] = _timed(lambda: self._by_floor(starts))
        return _pair(batches, found)

    def _settle(self, first: int) -> None:
        """A loader that stands at `first` and has found that its tokens are in memory."""
        before = max(first - _WARM_UP_BATCHES, 0)
        self._batches, self._done = self._loader(before), before
        self._ours(first - before)

    def _cold(self, batches: int) -> Pair:
        assert self._extents is not None
        paths = [path for path in self._extents.paths if path is not None]
        found: dict[str, _Taken] = {}
        starts = self._starts(batches)
        if self._floor:
            self._release()
            drop_from_cache(paths)
            until, done = time.monotonic() + _COLD_LIMIT_S, 0

            def some() -> None:
                nonlocal done
                while done < batches and (time.monotonic() < until or done < _COLD_BATCHES_AT_LEAST):
                    self._by_floor(starts[done : done + 1])
                    done += 1

            found["floor"] = _timed(some)
            batches = done
        self._release()
        drop_from_cache(paths)
        self._batches = self._loader(self._done)
        found["ours"] = _timed(lambda: self._ours(batches))
        return _pair(batches, found)

    def _release(self) -> None:
        if self._extents is not None:
            MappedReader(self._extents).release()
        if self._floor:
            self._floor.release()

    def _loader(self, batch: int) -> Iterator[Batch]:
        loader = self.dataset.loader(self.batch_size, repeat=True)
        epoch, samples = divmod(batch * self.batch_size, len(self.dataset))
        state: dict[str, Any] = {"epoch": epoch, "samples": samples, "fingerprint": self.dataset.fingerprint}
        loader.load_state_dict(state)
        return iter(loader)

    def _ours(self, batches: int) -> None:
        for _ in range(batches):
            next(self._batches)
        self._done += batches

    def _by_floor(self, starts: list[np.ndarray]) -> None:
        import torch

        assert self._floor is not None
        for batch in starts:
            torch.from_numpy(self._floor.read(batch))

    def _starts(self, batches: int) -> list[np.ndarray]:
        """Of the windows that the loader reads next, a batch each."""
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


def median(pairs: list[Pair]) -> dict[str, float | None]:
    """Of several rounds: seconds a batch, the share of the floor in the same round, bytes read a batch."""

    def middle(values: list[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return statistics.median(there) if there else None

    def each(total: float | None, pair: Pair) -> float | None:
        return None if total is None else total / pair.batches

    return {
        "ours_s": middle([pair.ours_s / pair.batches for pair in pairs]),
        "floor_s": middle([each(pair.floor_s, pair) for pair in pairs]),
        "share": middle([pair.share for pair in pairs]),
        "share_by_cpu": middle([pair.share_by_cpu for pair in pairs]),
        "ours_read_bytes": middle([each(pair.ours_read_bytes, pair) for pair in pairs]),
        "floor_read_bytes": middle([each(pair.floor_read_bytes, pair) for pair in pairs]),
    }


def _extents(tokens: Any) -> Extents | None:
    try:
        found: Extents = tokens.extents
    except TypeError:
        return None
    return found


@dataclass(frozen=True)
class _Taken:
    """What one of the two took."""

    seconds: float
    cpu_s: float
    read_bytes: int | None


def _timed(do: Callable[[], None]) -> _Taken:
    before, cpu, started = bytes_read(), time.thread_time(), time.perf_counter()
    do()
    seconds, cpu_s, after = time.perf_counter() - started, time.thread_time() - cpu, bytes_read()
    return _Taken(seconds, cpu_s, None if before is None or after is None else after - before)


def _pair(batches: int, found: dict[str, _Taken]) -> Pair:
    ours, floor = found["ours"], found.get("floor")
    return Pair(
        batches,
        ours.seconds,
        floor.seconds if floor else None,
        ours.cpu_s,
        floor.cpu_s if floor else None,
        ours.read_bytes,
        floor.read_bytes if floor else None,
    )
