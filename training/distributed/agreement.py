"""Schedule by which the ranks of a run agree on a stop: about once a second."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 1.0
"""Seconds of steps between two agreements."""
MOST_STEPS = 1000


def steps_until_next(steps: int, lasted_s: float) -> int:
    """Number of steps from one agreement to the next.

    The number at most doubles, because the first steps of an attempt say little about those that follow, and
    because steps that become slower are noticed only at the end of an interval.

    Args:
        steps: taken since the last agreement, at least 1.
        lasted_s: seconds that they took on the slowest rank.
    """
    fitting = int(steps * EVERY_S / max(lasted_s, 1e-6))
    return max(1, min(fitting, 2 * steps, MOST_STEPS))


class Schedule:
    """Counts the steps of one rank. Every rank makes the same decisions, since all of them are made from
    numbers that the agreement itself exchanges.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps, self._every = 0, 1
        self._began_s = clock()

    def is_due(self) -> bool:
        """Count a step; returns whether the ranks agree after it."""
        self._steps += 1
        return self._steps >= self._every

    def lasted_s(self) -> float:
        """Seconds since the last agreement, as this rank measures them."""
        return self._clock() - self._began_s

    def agreed(self, longest_s: float) -> None:
        """The ranks have agreed. longest_s: largest `lasted_s` of all ranks."""
        if self._steps:
            self._every = steps_until_next(self._steps, longest_s)
        self._steps, self._began_s = 0, self._clock()
