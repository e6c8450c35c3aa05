"""The last rise of an amount: from where, how fast, and how evenly."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from experiment_utils.quantities import format_bytes

_JUMP_S = 2.0
_DIP = 0.15
_NOISE = 0.02


@dataclass(frozen=True)
class Rise:
    """From the lowest point before the top, without a dip of more than 15% of the rise (or 2% of the top)."""

    from_bytes: int
    to_bytes: int
    begin_s: float
    end_s: float
    jump_bytes: int
    """The largest rise within two seconds, or between two neighbours."""
    points: int
    steadiness: float
    """R2 of a straight line through it, 1 for a constant rate."""
    least_fifth: float = 0.0
    """Five times the share of the rise in the fifth of its time in which least came: 1 for a constant rate.
    """

    @property
    def bytes(self) -> int:
        return self.to_bytes - self.from_bytes

    @property
    def seconds(self) -> float:
        return max(0.0, self.end_s - self.begin_s)

    @property
    def bytes_per_s(self) -> float | None:
        return self.bytes / self.seconds if self.seconds > 0 else None

    @property
    def is_jump(self) -> bool:
        """Most of it came within two seconds."""
        return self.jump_bytes >= 0.6 * self.bytes

    @property
    def is_even(self) -> bool:
        """Many samples on a line, with a like part of the rise in each fifth of its time."""
        return self.points >= 12 and self.steadiness >= 0.95 and not self.is_jump and self.least_fifth >= 0.4

    def __str__(self) -> str:
        rate = f", {format_bytes(self.bytes_per_s)}/s" if self.bytes_per_s else ""
        return (
            f"{format_bytes(self.from_bytes)} to {format_bytes(self.to_bytes)} in the last "
            f"{self.seconds:.3g} s{rate}"
        )


def last_rise(points: Sequence[tuple[float, int]]) -> Rise | None:
    """Find the last rise of (time_s, bytes), sorted by time; None if there is none."""
    if len(points) < 2:
        return None
    top = max(range(len(points)), key=lambda at: (points[at][1], at))
    peak, low = points[top][1], top
    for at in range(top - 1, -1, -1):
        amount = points[at][1]
        if amount < points[low][1]:
            low = at
        elif amount - points[low][1] > max(_DIP * (peak - points[low][1]), _NOISE * peak):
            break
    found = points[low : top + 1]
    if len(found) < 2 or peak <= found[0][1]:
        return None
    return Rise(
        found[0][1], peak, found[0][0], found[-1][0],
        _largest_jump(found), len(found), _steadiness(found), _least_fifth(found),
    )  # fmt: skip


def _largest_jump(points: Sequence[tuple[float, int]]) -> int:
    largest, begin = 0, 0
    for end in range(1, len(points)):
        while begin < end - 1 and points[end][0] - points[begin][0] > _JUMP_S:
            begin += 1
        largest = max(largest, points[end][1] - points[begin][1])
    return largest


def _least_fifth(points: Sequence[tuple[float, int]]) -> float:
    (begin_s, foot), (end_s, top) = points[0], points[-1]
    if end_s <= begin_s:
        return 0.0
    times = [time_s for time_s, _ in points]

    def at(time_s: float) -> float:
        after = min(len(points) - 1, max(1, bisect_left(times, time_s)))
        (before_s, before), (after_s, amount) = points[after - 1], points[after]
        part = (time_s - before_s) / (after_s - before_s) if after_s > before_s else 1.0
        return before + (amount - before) * min(1.0, max(0.0, part))

    borders = [at(begin_s + (end_s - begin_s) * part / 5) for part in range(6)]
    return 5 * min(after - before for before, after in pairwise(borders)) / (top - foot)


def _steadiness(points: Sequence[tuple[float, int]]) -> float:
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return xy * xy / (xx * yy) if xx > 0 and yy > 0 else 0.0
