"""Reading ahead where the disk is cold: the kernel is told of batches before they are read."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from data_loading.spans import Span, will_need_spans

if TYPE_CHECKING:
    from data_loading.positioned import Positioned

BATCHES_AHEAD = 8
_STAYS_COLD = 64
"""Reads for which a cold disk is believed to stay cold; telling costs as much as reading from memory."""
_WARM_BYTES_PER_S = 200e6
_WARM_WINDOW_S = 5e-6
_ID_BYTES = 8

Read = TypeVar("Read")


class ReadAhead:
    """A read that took longer than memory takes, and waited for something, makes those to come be told of.
    Where other processes want the processor too, many a read is slow that did not wait.
    """

    def __init__(self, dataset: Positioned) -> None:
        self._dataset = dataset
        self._cold = _STAYS_COLD
        self._coming: Iterator[list[Span]] | None = None
        self._told = 0

    @property
    def is_cold(self) -> bool:
        """Whether what is read is believed to come from a disk."""
        return self._cold > 0

    def tell(self, coming: Callable[[], Iterator[list[Span]]]) -> None:
        """To be called before each read of a batch while it is cold. coming: that batch and all after it."""
        if self._coming is None:
            self._coming, self._told = coming(), 0
        while self._told <= BATCHES_AHEAD:
            spans = next(self._coming, None)
            if spans is None:
                break
            will_need_spans(self._dataset, spans)
            self._told += 1
        self._told -= 1

    def timed(self, read: Callable[[], Read], windows: int, tokens: int) -> Read:
        """What `read` returns, which reads so many windows and tokens."""
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
    """How often this thread gave the processor away to wait, for a disk above all (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
