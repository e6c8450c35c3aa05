"""How an amount moved before the end: how fast, from where, and in what manner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiment_utils.quantities import format_bytes

_JUMP_S = 2.0
_DIP = 0.15
_NOISE = 0.02
_NOTHING, _PART = 0.03, 0.1
"""Of a rise."""
_MOST_STALLED = 0.2
"""Of its time."""


@dataclass(frozen=True)
class Rise:
    """The last rise of an amount: from its lowest point before the top, without a dip of more than 15% of it
    (or 2% of the top).

    times in seconds, Unix. jump_bytes: the largest rise within two seconds, or between two neighbours.
    points: samples in it. late_share: of the rise, what came in the last third of its time. steadiness: R^2
    of a straight line through it, 1 for a constant rate. stall_share: of its time, the longest stretch in
    which next to nothing came.
    """

    from_bytes: int
    to_bytes: int
    begin_s: float
    end_s: float
    jump_bytes: int
    points: int
    late_share: float
    steadiness: float
    stall_share: float = 0.0

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
        """Most of it came at once."""
        return self.jump_bytes >= 0.6 * self.bytes

    @property
    def is_steady(self) -> bool:
        """Many samples on a line; two large amounts with a pause between them are no steady growth."""
        on_line = self.points >= 12 and self.steadiness >= 0.95 and self.stall_share < _MOST_STALLED
        return on_line and not self.is_jump and self.late_share > 0.15

    def __str__(self) -> str:
        rate = self.bytes_per_s
        fast = f", {format_bytes(rate)}/s" if rate else ""
        return (
            f"{format_bytes(self.from_bytes)} to {format_bytes(self.to_bytes)} in the last "
            f"{self.seconds:.3g} s{fast}"
        )


def last_rise(points: Sequence[tuple[float, int]]) -> Rise | None:
    """points: (time_s, bytes), by time. None without two of them, or where the end is not above the
    beginning.
    """
    if len(points) < 2:
        return None
    top = max(range(len(points)), key=lambda at: (points[at][1], at))
    peak = points[top][1]
    low = top
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
        from_bytes=found[0][1],
        to_bytes=peak,
        begin_s=found[0][0],
        end_s=found[-1][0],
        jump_bytes=_largest_jump(found),
        points=len(found),
        late_share=_late_share(found),
        steadiness=_steadiness(found),
        stall_share=_stall_share(found),
    )


def _largest_jump(points: Sequence[tuple[float, int]]) -> int:
    largest, begin = 0, 0
    for end in range(1, len(points)):
        while begin < end - 1 and points[end][0] - points[begin][0] > _JUMP_S:
            begin += 1
        largest = max(largest, points[end][1] - points[begin][1])
    return largest


def _late_share(points: Sequence[tuple[float, int]]) -> float:
    begin_s, end_s = points[0][0], points[-1][0]
    third_s = end_s - (end_s - begin_s) / 3
    before = [amount for time_s, amount in points if time_s <= third_s]
    return (points[-1][1] - before[-1]) / (points[-1][1] - points[0][1]) if before else 1.0


def _stall_share(points: Sequence[tuple[float, int]]) -> float:
    """Of stretches with a part of the rise before and after: what stands at its foot or top is no pause."""
    (begin_s, foot), (end_s, top) = points[0], points[-1]
    rise, longest_s, begin = top - foot, 0.0, 0
    for time_s, amount in points:
        while amount - points[begin][1] > _NOTHING * rise:
            begin += 1
        since_s, from_bytes = points[begin]
        if from_bytes - foot > _PART * rise and top - amount > _PART * rise:
            longest_s = max(longest_s, time_s - since_s)
    return longest_s / (end_s - begin_s) if end_s > begin_s else 0.0


def _steadiness(points: Sequence[tuple[float, int]]) -> float:
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    xx = sum((x - mean_x) ** 2 for x, _ in points)
    yy = sum((y - mean_y) ** 2 for _, y in points)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return xy * xy / (xx * yy) if xx > 0 and yy > 0 else 0.0
