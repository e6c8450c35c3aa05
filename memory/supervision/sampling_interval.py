"""Seconds to the next sample: 1 s as a rule, 50 ms if the limit is near or memory grows towards it fast."""

from __future__ import annotations

SLOWEST_S, FASTEST_S = 1.0, 0.05
HURRIES_FROM = 0.80
"""Share of the limit from which the interval shrinks; from FASTEST_FROM on it is the shortest."""
FASTEST_FROM = 0.92
_SAMPLES_BEFORE_FULL = 10
"""Samples still to be taken before memory that grows as it does now reaches the limit."""
_MOST_OF_A_CORE = 0.1


def next_interval_s(
    taken: int, nearness: float | None, growth_bytes_per_s: float, room_bytes: float | None, cost_s: float
) -> float:
    """Seconds until the next sample.

    Args:
        taken: samples so far: the first ones come fast, since a run can be short.
        nearness: U as a share of its limit; None if unknown.
        growth_bytes_per_s: of U, lately.
        room_bytes: bytes left up to the limit.
        cost_s: CPU time of the last sample: sampling takes at most a tenth of a core.
    """
    wanted = min(SLOWEST_S, FASTEST_S * 2 ** min(taken, 10))
    if nearness is not None and nearness > HURRIES_FROM:
        near = min(1.0, (nearness - HURRIES_FROM) / (FASTEST_FROM - HURRIES_FROM))
        wanted = min(wanted, SLOWEST_S + near * (FASTEST_S - SLOWEST_S))
    if room_bytes is not None and growth_bytes_per_s > 0:
        wanted = min(wanted, max(0.0, room_bytes) / growth_bytes_per_s / _SAMPLES_BEFORE_FULL)
    return min(SLOWEST_S, max(FASTEST_S, wanted, cost_s / _MOST_OF_A_CORE))
