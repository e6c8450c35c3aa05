"""How long to wait until the next sample: 1 s in calm, 50 ms where the limit is near or comes near fast."""

from __future__ import annotations

SLOWEST_S, FASTEST_S = 1.0, 0.05
HURRIES_FROM = 0.80
"""Of the limit; at `FASTEST_FROM` the pace is the fastest."""
FASTEST_FROM = 0.92
_LOOKS_BEFORE_FULL = 10
"""Samples that should still be taken before memory that grows as it does now has reached the limit."""
_MOST_OF_A_CORE = 0.05
_MOST_SAVED_S = 0.5
_MOST_OWED_S = SLOWEST_S * _MOST_OF_A_CORE


class Allowance:
    """CPU time that sampling may take: 5% of a core. What calm leaves of it is saved, up to half a second,
    since a look takes longest where it counts: while memory is nearly full, or all cores are busy.
    """

    def __init__(self) -> None:
        self._left_s = _MOST_SAVED_S

    def spend(self, cost_s: float, elapsed_s: float) -> None:
        """A sample took so much CPU time, so long after the one before."""
        left_s = min(_MOST_SAVED_S, self._left_s + elapsed_s * _MOST_OF_A_CORE) - cost_s
        self._left_s = max(left_s, -_MOST_OWED_S)

    @property
    def wait_s(self) -> float:
        """Until there is something left of it."""
        return max(0.0, -self._left_s / _MOST_OF_A_CORE)


def next_interval_s(
    taken: int, nearness: float | None, growth_bytes_per_s: float, room_bytes: float | None, owed_s: float
) -> float:
    """Seconds until the next sample.

    Args:
        taken: samples so far: the first ones come fast, since a run may be short.
        nearness: U over its limit; None if unknown.
        growth_bytes_per_s: of U, lately.
        room_bytes: what is left up to the limit.
        owed_s: how long to wait at least, of `Allowance`.
    """
    wanted = min(SLOWEST_S, FASTEST_S * 2 ** min(taken, 10))
    if nearness is not None and nearness > HURRIES_FROM:
        near = min(1.0, (nearness - HURRIES_FROM) / (FASTEST_FROM - HURRIES_FROM))
        wanted = min(wanted, SLOWEST_S + near * (FASTEST_S - SLOWEST_S))
    if room_bytes is not None and growth_bytes_per_s > 0:
        wanted = min(wanted, max(0.0, room_bytes) / growth_bytes_per_s / _LOOKS_BEFORE_FULL)
    return min(SLOWEST_S, max(FASTEST_S, wanted, owed_s))
