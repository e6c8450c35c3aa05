"""Reading ahead where the disk is cold: the kernel is told of batches before they are read."""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from data_loading.spans import Span, read_spans, will_need_spans

if TYPE_CHECKING:
    import torch

    from data_loading.positioned import Positioned

    Batch = dict[str, torch.Tensor]

BATCHES_AHEAD = 8
_STAYS_COLD = 64
"""Batches for which a cold disk is believed to stay cold; telling costs as much as reading from memory."""
_WARM_BYTES_PER_S = 200e6
_WARM_WINDOW_S = 5e-6


def read_with_ahead(dataset: Positioned, batches: Iterable[list[Span]]) -> Iterator[Batch]:
    """Batches of these spans. A batch that took longer than memory takes, and waited for something, makes
    those to come be told of. Where other processes want the processor too, many a batch is slow that did not
    wait.
    """
    waiting: deque[list[Span]] = deque()
    cold = _STAYS_COLD
    for spans in batches:
        waiting.append(spans)
        if cold:
            will_need_spans(dataset, spans)
        if len(waiting) > BATCHES_AHEAD:
            waits, started = _waits(), time.perf_counter()
            batch = read_spans(dataset, waiting.popleft())
            is_slow = bool(batch) and time.perf_counter() - started > _warm_s(batch)
            is_cold = is_slow and _waits() > waits
            yield batch
            cold = _STAYS_COLD if is_cold else max(cold - 1, 0)
    while waiting:
        yield read_spans(dataset, waiting.popleft())


def _waits() -> int:
    """How often this thread gave the processor away to wait, for a disk above all (getrusage(2))."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _warm_s(batch: Batch) -> float:
    """The longest that a batch may take whose tokens are in the page cache."""
    ids = batch["input_ids"]
    return ids.shape[0] * _WARM_WINDOW_S + ids.numel() * ids.element_size() / _WARM_BYTES_PER_S
