"""Schedule of a mixture: the source at each position, and the samples of it before.

A schedule is made of spans of constant weights: these change at milestones and, with the policy `rebalance`,
when a source is dry. In each span every source has its share of every prefix to within less than one sample
(`pattern`). Its size does not depend on the length of the stream.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from data_loading.mixture.pattern import Pattern

WHEN_DRY = ("stop", "repeat", "rebalance")


@dataclass(frozen=True)
class Stage:
    """Weights (whole numbers, one for each source) from a position on."""

    start: int
    weights: tuple[int, ...]


@dataclass(frozen=True)
class WeightSpan:
    """A pattern from position `start` on."""

    start: int
    before: np.ndarray
    """Samples of each source before it, int64 (sources,)."""
    pattern: Pattern


class Schedule:
    """The source at each position of the stream of a mixture."""

    length: int
    """Positions of an epoch. With repeat: until the last milestone is passed and every source that is still
    read was read whole; the stream continues after it."""
    dry: list[int | None]
    """Position before which each source was read whole; None: never."""
    totals: np.ndarray
    """Samples of each source in an epoch."""

    def __init__(self, sizes: Sequence[int], stages: Sequence[Stage], when_dry: str) -> None:
        """Lay out the spans.

        Args:
            sizes: Samples of each source in one pass over it.
            stages: Weights, ascending, the first ones from position 0 on.
            when_dry: Policy for a source of which every sample was read once. stop: the stream ends. repeat:
                it is read again. rebalance: the weights of the others are scaled up, until all that have one
                are dry.
        """
        self.sizes, self.when_dry = np.array(sizes, np.int64), when_dry
        self.dry = [None] * len(sizes)
        self._spans: list[WeightSpan] = []
        end = self._lay(stages)
        if when_dry == "repeat":
            end = max([self._spans[-1].start, 1, *(place for place in self.dry if place is not None)])
        self.length = end
        self._starts = np.array([span.start for span in self._spans], np.int64)
        self.totals = self.counts(end)

    @property
    def ended_by(self) -> int:
        """Source of the position after the end of an epoch."""
        last = self._spans[-1]
        return int(last.pattern.at(np.array([self.length - last.start]))[0][0])

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the source at each position (int64), and the samples of this source before it, int64 both.

        Positions from `length` on continue the last span if sources repeat. Otherwise they start the schedule
        again, and each source continues with the sample after its last.
        """
        epochs: np.ndarray | int = 0
        if self.when_dry != "repeat":
            epochs, positions = np.divmod(positions, self.length)
        if len(self._spans) == 1:
            sources, samples = self._spans[0].pattern.at(positions)
            return sources, samples + epochs * self.totals[sources]
        sources = np.empty(len(positions), np.int64)
        samples = np.empty(len(positions), np.int64)
        numbers = np.searchsorted(self._starts, positions, side="right") - 1
        for number in np.unique(numbers):
            here, span = numbers == number, self._spans[number]
            found, ranks = span.pattern.at(positions[here] - span.start)
            sources[here], samples[here] = found, ranks + span.before[found]
        return sources, samples + epochs * self.totals[sources]

    def counts(self, position: int) -> np.ndarray:
        """Return the samples of each source before a position, int64 (sources,)."""
        epochs = 0
        if self.when_dry != "repeat":
            # The end of an epoch, not the start of the next one: `totals` are made of it.
            epochs, position = divmod(position - 1, self.length) if position else (0, -1)
            position += 1
        span = self._spans[int(np.searchsorted(self._starts, position, side="right")) - 1]
        counts: np.ndarray = span.before + span.pattern.counts(position - span.start)
        return counts + epochs * self.totals if epochs else counts

    def _lay(self, stages: Sequence[Stage]) -> int:
        """Make the spans. Return the end of the stream; the last milestone if it has none."""
        position, counts = 0, np.zeros(len(self.sizes), np.int64)
        for number, stage in enumerate(stages):
            ends = stages[number + 1].start if number + 1 < len(stages) else None
            while ends is None or position < ends:
                weights = [
                    0 if self.when_dry == "rebalance" and count >= size else weight
                    for weight, count, size in zip(stage.weights, counts, self.sizes, strict=True)
                ]
                if not any(weights):
                    break
                span = WeightSpan(position, counts, Pattern(weights))
                self._spans.append(span)
                length, is_over = self._length(span, ends)
                self._note_dry(span, length)
                if length is None:
                    return position
                position, counts = position + length, counts + span.pattern.counts(length)
                if is_over:
                    return position
        return position

    def _length(self, span: WeightSpan, ends: int | None) -> tuple[int | None, bool]:
        """Return the positions of a span (None: no end), and whether the stream ends with it."""
        left = math.inf if ends is None else ends - span.start
        dry, is_over = math.inf, False
        if self.when_dry == "stop":
            dry = min(span.pattern.place(i, rest) for i, rest in self._left(span))
            is_over = dry < left
        elif self.when_dry == "rebalance":
            dry = min(span.pattern.place(i, rest - 1) + 1 for i, rest in self._left(span))
        length = min(left, dry)
        return (None if length == math.inf else int(length)), is_over

    def _left(self, span: WeightSpan) -> Iterator[tuple[int, int]]:
        """Yield each source that a span reads, and its samples that were not read yet."""
        for i, weight in enumerate(span.pattern.weights):
            if weight:
                yield i, int(self.sizes[i] - span.before[i])

    def _note_dry(self, span: WeightSpan, length: int | None) -> None:
        for i, rest in self._left(span):
            if self.dry[i] is None and rest > 0:
                place = span.pattern.place(i, rest - 1) + 1
                if length is None or place <= length:
                    self.dry[i] = span.start + place
