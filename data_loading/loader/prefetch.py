"""Prefetching from a cold disk: the kernel gets hints about batches before they are read."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from data_loading.dataset.protocol import Span, will_need_spans

if TYPE_CHECKING:
    from data_loading.dataset.protocol import ReadableDataset

BATCHES_AHEAD = 8
_STAYS_COLD = 64
"""Reads for which a disk counts as cold after a slow one. Hints cost as much as reading from memory."""
_WARM_BYTES_PER_S = 200e6
_WARM_WINDOW_S = 5e-6
_ID_BYTES = 8

Read = TypeVar("Read")


class Prefetch:
    """Issues hints for the batches that follow a read which was slow because it waited for a disk.

    A read that was slow without waiting is no sign: other processes want the processor too.
    """

    def __init__(self, dataset: ReadableDataset) -> None:
        self._dataset = dataset
        self._cold = _STAYS_COLD
        self._coming: Iterator[list[Span]] | None = None
        self._hinted = 0

    @property
    def is_cold(self) -> bool:
        """Whether batches seem to come from a disk."""
        return self._cold > 0

    def hint(self, coming: Callable[[], Iterator[list[Span]]]) -> None:
        """Issue hints, before each read of a batch while it is cold.

        Args:
            coming: Returns the spans of the next batch and of all after it.
        """
        if self._coming is None:
            self._coming, self._hinted = coming(), 0
        while self._hinted <= BATCHES_AHEAD:
            spans = next(self._coming, None)
            if spans is None:
                break
            will_need_spans(self._dataset, spans)
            self._hinted += 1
        self._hinted -= 1

    def timed(self, read: Callable[[], Read], windows: int, tokens: int) -> Read:
        """Return the result of `read`, which reads this number of windows and tokens, and note its time."""
        waits, started = _waits(), time.perf_counter()
        found = read()
        warm_s = windows * _WARM_WINDOW_S + tokens * _ID_BYTES / _WARM_BYTES_PER_S
        is_slow = tokens > 0 and time.perf_counter() - started > warm_s
        if is_slow and _waits() > waits:
            self._cold = _STAYS_COLD
        elif self._cold:
            self._cold -= 1
            if not self._cold:
                self._coming = None
        return found


def _waits() -> int:
    """Return how often this thread gave the processor away to wait, mostly for a disk (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
