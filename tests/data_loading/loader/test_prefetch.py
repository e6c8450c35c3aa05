"""The kernel is told of batches to come where reading waits for a disk, not where it is merely slow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from data_loading.dataset.protocol import RankBatches
from data_loading.loader.loader import Loader
from data_loading.loader.prefetch import _STAYS_COLD, BATCHES_AHEAD

COUNT = 300
SLOW_S = 0.0005
"""A hundred times what memory takes, and so short that the kernel seldom switches the thread within it."""


class Slow:
    """Positions read one way or the other. told: first positions of the batches that were told of."""

    epoch, fingerprint, seq_len, ranks, step_windows = 0, "", 8, "distinct", None
    together, times_set = 1, 0

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause, self.told, self.read_positions = pause, [], []  # type: ignore[var-annotated]

    def __len__(self) -> int:
        return COUNT

    def read(self, epoch: int, start: int, stop: int) -> dict[str, Any]:
        import torch

        self._pause()
        self.read_positions.append(start)
        return {"input_ids": torch.zeros(1, 8, dtype=torch.int64)}

    def batches_per_read(self, batch_size: int) -> int:
        return self.together

    def read_batches(self, taken: RankBatches) -> Iterator[dict[str, Any]]:
        return iter([self.read(taken.epoch, at, at + 1) for at in range(taken.first, taken.last)])

    def will_need(self, epoch: int, start: int, stop: int) -> None:
        self.told.append(start)

    def join(self, batches: Sequence[dict[str, Any]]) -> dict[str, Any]:
        raise AssertionError("each batch is one span")


def busy() -> None:
    until = time.perf_counter() + SLOW_S
    while time.perf_counter() < until:
        pass


def batches_of(dataset: Slow, count: int = COUNT) -> int:
    return sum(1 for _ in Loader(dataset, 1, num_batches=count))


@pytest.mark.parametrize("pause", [lambda: None, busy], ids=["fast", "slow without waiting"])
def test_memory_gets_hints_at_the_beginning_only(pause: Callable[[], None]) -> None:
    dataset = Slow(pause)
    assert batches_of(dataset) == COUNT
    assert dataset.read_positions == list(range(COUNT))
    assert len(dataset.told) < COUNT * 9 // 10, "the kernel may switch the thread once or twice"
    assert dataset.told[: _STAYS_COLD + BATCHES_AHEAD] == list(range(_STAYS_COLD + BATCHES_AHEAD))


def test_slow_disk_gets_hints_for_every_batch() -> None:
    dataset = Slow(lambda: time.sleep(SLOW_S))
    assert batches_of(dataset) == COUNT
    assert dataset.told == list(range(COUNT))


def test_disk_that_becomes_cold_gets_hints_from_then_on() -> None:
    dataset = Slow(lambda: time.sleep(SLOW_S) if len(dataset.read_positions) >= 150 else busy())
    batches_of(dataset)
    assert dataset.told[-100:] == list(range(COUNT - 100, COUNT))
    assert len(dataset.told) < COUNT


@pytest.mark.parametrize("is_cold", [False, True])
def test_from_memory_several_are_read_at_once_from_a_disk_each_by_itself(is_cold: bool) -> None:
    dataset = Slow((lambda: time.sleep(SLOW_S)) if is_cold else (lambda: None))
    dataset.together, taken = 16, []
    read_batches = dataset.read_batches
    dataset.read_batches = lambda part: (taken.append(part.batches), read_batches(part))[1]  # type: ignore[method-assign]
    assert batches_of(dataset, 290) == 290
    assert dataset.read_positions == list(range(290))
    assert (not taken) if is_cold else max(taken) == 16
