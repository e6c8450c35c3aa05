"""Is memory growing with the steps, steadily, and when does it reach the limit?

A line through all samples calls a third of clean runs a leak: memory wanders, jumps when something is
first used, saws with the garbage collector, and levels off. So samples are put into blocks in order,
each block becomes its median (an evaluation's spike does not move it), and the growth from block to
block is held against its own scatter with a t-test. One jump, however high, is one large growth among
zeros and is not significant; a wandering trace scatters as much as it grows; a leak grows in nearly
every block. Growth that slows down is told as levelling off, and is no leak. Beside the medians the
floors of wider blocks are tried: garbage that piles up and is collected, or batches of several lengths,
scatter above a floor that stays, and a leak lifts it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import fmean, median, median_low
from typing import Any

ALPHA = 0.025
"""Probability of calling a clean trace a leak, all looks of a run together."""
TOO_EARLY, LEVELLING_OFF = "too early", "levelling off"
BLOCKS = 10
FLOORS = 5
"""Wider blocks, whose lowest sample counts."""
LEAST_GROWTH_BYTES = 8 << 20
"""Over what was looked at. Growth by less is left alone, however regular: things used seldom add as much."""
_WARM_UP = 0.25
_LEAST_SAMPLES = 15
_SLOWING = 0.6
"""Growth of the later half below this share of the earlier half's is levelling off."""
_FILLING, _STAYS = 0.8, 0.5
"""Growth of each part of a trace below this share of that of the part before; and of what would stay of it,
were the rest to fall on in this way, below this share of the last."""
_JUMPS_OUT = 3
"""Times the median of the growths: what is first used adds more than that at once."""
Point = tuple[float, float]
"""A step and the amount there, in bytes."""


@dataclass(frozen=True)
class Leak:
    """What a trace says about growth.

    slope_bytes_per_step with low and high, its 95% interval; None where too little was seen.
    is_significant: it is a leak. is_known: enough was seen to say so or not. levels_off: it grew, and grows
    less and less. since_step: where the stretch begins that the slope is of. blocks: (step, bytes) of the
    whole trace but its warm-up. eta_steps, eta_s: of a leak, until the limit is reached at that slope.
    """

    slope_bytes_per_step: float | None = None
    low_bytes_per_step: float | None = None
    high_bytes_per_step: float | None = None
    is_significant: bool = False
    is_known: bool = False
    levels_off: bool = False
    samples: int = 0
    since_step: float | None = None
    eta_steps: float | None = None
    eta_s: float | None = None
    blocks: tuple[Point, ...] = ()

    @property
    def verdict(self) -> str:
        """`leak`, `levelling off`, `no leak`, or `too early`."""
        if self.is_significant:
            return "leak"
        if not self.is_known:
            return TOO_EARLY
        return LEVELLING_OFF if self.levels_off else "no leak"

    def to_json(self) -> dict[str, Any]:
        """For a record."""
        return {
            "verdict": self.verdict,
            "is_leak": self.is_significant,
            "slope_bytes_per_step": _whole(self.slope_bytes_per_step),
            "low_bytes_per_step": _whole(self.low_bytes_per_step),
            "high_bytes_per_step": _whole(self.high_bytes_per_step),
            "since_step": _whole(self.since_step),
            "samples": self.samples,
            "eta_steps": _whole(self.eta_steps),
            "eta_s": _whole(self.eta_s),
        }


def find_leak(
    steps: Sequence[float],
    amounts_bytes: Sequence[float],
    *,
    limit_bytes: float | None = None,
    at_bytes: float | None = None,
    step_s: float | None = None,
    alpha: float = ALPHA,
    least_growth_bytes: float = LEAST_GROWTH_BYTES,
) -> Leak:
    """Look once at a whole trace. Takes numbers in any unit of steps; Unix times do as well.

    The first quarter is left out as warm-up. Then the rest, its last half and its last quarter are tried, so
    that a leak which began late is found; what is tried in a shorter stretch must also rise above all before
    it, else each tooth of a saw would be a leak.

    Args:
        steps: not decreasing.
        amounts_bytes: anon, or another amount that should stay as it is, one a step given.
        limit_bytes, at_bytes: what the amount is part of, and where that stands: the limit and U.
        step_s: seconds a step, for `eta_s`.
        alpha: probability of calling a trace a leak that is none.
        least_growth_bytes: growth by less over a stretch is no leak.
    """
    points = list(zip(map(float, steps), map(float, amounts_bytes), strict=True))
    rest = points[int(len(points) * _WARM_UP) :]
    if len(rest) < _LEAST_SAMPLES:
        return Leak(samples=len(points))
    first_step = points[0][0]
    whole, leaks = _Growth(rest, first_step), []
    parts = () if _fills(points) else ((1, 0.5), (2, 0.25), (4, 0.25))
    for part, share in parts:
        stretch = rest[len(rest) - len(rest) // part :]
        if part > 1 and len(stretch) < 4 * _LEAST_SAMPLES:
            break
        found = _steepest(stretch, rest[: -len(stretch)], first_step, share * alpha, least_growth_bytes)
        leaks += [found] if found else []
    chosen = max(leaks, key=lambda growth: growth.t, default=whole)
    is_slowing = not leaks and whole.slows_down and whole.is_significant(alpha)
    return _told(chosen, bool(leaks), is_slowing, len(points), whole.blocks, limit_bytes, at_bytes, step_s)


class LeakWatch:
    """`find_leak` while the trace grows: constant memory (about 1,000 points), cheap to add to.

    Looks are many, so each has a smaller alpha: look k of a run, one every 128 samples, has
    alpha / (k (k + 1)), whose sum is alpha. Long traces are thinned to medians of three (the remedian of
    Rousseeuw and Bassett, JASA 85, 1990); the last 256 samples are also kept as they are, so that a leak
    which begins late is found as soon as one that begins early.
    """

    _POINTS = 729
    _RECENT = 256
    _LOOK = 128
    """Samples from one look to the next, and steps before the first: a tooth of a saw may be as long."""
    _LEAST = 48

    def __init__(self, *, alpha: float = ALPHA, least_growth_bytes: float = LEAST_GROWTH_BYTES) -> None:
        self._alpha, self._least_bytes = alpha, least_growth_bytes
        self._points: list[Point] = []
        self._levels: list[list[Point]] = [[]]
        self._recent: deque[Point] = deque(maxlen=self._RECENT)
        self.samples = 0

    def add(self, step: float, amount_bytes: float) -> None:
        """One more sample, at a step not before the last one's."""
        if not self.samples:
            self._first_step = float(step)
        self.samples += 1
        point = (float(step), float(amount_bytes))
        self._recent.append(point)
        for level in self._levels[:-1]:
            level.append(point)
            if len(level) < 3:
                return
            point = _middle(level)
            level.clear()
        self._points.append(point)
        if len(self._points) == self._POINTS:
            self._points = [_middle(self._points[at : at + 3]) for at in range(0, self._POINTS, 3)]
            self._levels.append([])

    def look(
        self,
        *,
        limit_bytes: float | None = None,
        at_bytes: float | None = None,
        step_s: float | None = None,
    ) -> Leak:
        """What is known by now; no leak before step 128 or the 48th sample."""
        steps = self._recent[-1][0] - self._first_step if self._recent else 0.0
        is_early = self.samples < self._LEAST or steps < self._LOOK - 1
        look = 1 + max(1, self.samples // self._LOOK)
        alpha = 0.0 if is_early else self._alpha / (look * (look + 1))
        points = self._points
        found = find_leak(
            [step for step, _ in points], [amount for _, amount in points],
            limit_bytes=limit_bytes, at_bytes=at_bytes, step_s=step_s,
            alpha=alpha, least_growth_bytes=self._least_bytes,
        )  # fmt: skip
        if not found.is_significant and self.samples >= 2 * self._RECENT:
            stretch = list(self._recent)
            before = [point for point in points[int(len(points) * _WARM_UP) :] if point[0] < stretch[0][0]]
            recent = _steepest(stretch, before, self._first_step, alpha, self._least_bytes)
            if recent:
                found = _told(recent, True, False, 0, found.blocks, limit_bytes, at_bytes, step_s)
        return replace(found, samples=self.samples, is_known=found.is_known and not is_early)


def _steepest(
    stretch: list[Point], before: list[Point], first_step: float, alpha: float, least_growth_bytes: float
) -> _Growth | None:
    """The leak in this stretch of a trace that begins at first_step, if there is one.

    With and without its two steepest growths, which may be jumps that hide it.
    """
    found = [
        growth
        for growth in (
            _Growth(stretch, first_step),
            _Growth(stretch, first_step, jumps=2),
            _Growth(stretch, first_step, of_floor=True),
        )
        if growth.bytes >= least_growth_bytes
        and growth.is_significant(alpha)
        and not growth.slows_down
        and growth.is_new_after(before)
    ]
    return max(found, key=lambda growth: growth.t, default=None)


class _Growth:
    """Growth over a stretch: from block to block, its mean, and how sure that is.

    first_step: where the whole trace begins. jumps: so many of the steepest are left out, as what was used
    for the first time there. of_floor: of wide blocks the lowest sample counts, in place of the median.
    """

    def __init__(
        self, points: list[Point], first_step: float, jumps: int = 0, *, of_floor: bool = False
    ) -> None:
        self._first_step = first_step
        count = max(2, min(FLOORS if of_floor else BLOCKS, len(points) // 3))
        edges = [len(points) * number // count for number in range(count + 1)]
        of_block = _floor if of_floor else _middle
        self.blocks = tuple(of_block(points[first:last]) for first, last in pairwise(edges))
        self.begins, self.ends_bytes = self.blocks[0][0], self.blocks[-1][1]
        grown = [
            (after[0] - before[0], after[1] - before[1])
            for before, after in pairwise(self.blocks)
            if after[0] > before[0]
        ]
        for _ in range(min(jumps, len(grown) - 2)):
            steepest, usual = max(map(_slope, grown)), median(map(_slope, grown))
            if usual > 0 and steepest < _JUMPS_OUT * usual:
                break  # the beginning of growth that slows down, without which it would seem to be steady
            grown.remove(max(grown, key=_slope))
        steps = sum(wide for wide, _ in grown)
        self.bytes = sum(high for _, high in grown)
        self.slope = self.bytes / steps if steps else 0.0
        self._grown = grown
        rests = [high - self.slope * wide for wide, high in grown]
        self.freedom = len(grown) - 1
        squares = sum(rest * rest for rest in rests)
        scatter = math.sqrt(_together(rests) * squares / max(1, self.freedom) * len(grown))
        # what rounding leaves of a trace without noise is no scatter
        scatter = max(scatter, 1e-9 * self.ends_bytes)
        self.error = scatter / steps if steps else math.inf
        self.t = self.slope / self.error if self.error else 0.0

    def is_significant(self, alpha: float) -> bool:
        return self.slope > 0 and self.freedom > 0 and upper_tail(self.t, self.freedom) < alpha

    @property
    def slows_down(self) -> bool:
        """Does the later half grow much less than the earlier, or all as a logarithm rather than a line?"""
        middle = len(self._grown) // 2
        earlier, later = _rate(self._grown[:middle]), _rate(self._grown[middle:])
        return later < _SLOWING * earlier or self._is_logarithmic()

    def _is_logarithmic(self) -> bool:
        """Do the blocks, jumps and all, lie closer to a logarithm of the step than to a line?

        So a cache of ever rarer things grows, or slower. A leak does not, one that begins late still less.
        """
        steps = [step - self._first_step for step, _ in self.blocks]
        amounts = [amount for _, amount in self.blocks]
        if steps[0] <= 0:
            return False
        return _rest_of_line([math.log(step) for step in steps], amounts) < _rest_of_line(steps, amounts)

    def is_new_after(self, before: list[Point]) -> bool:
        """Does it rise above all that was before, and no slower than that rose?"""
        if len(before) < 3:
            return True
        size = max(1, len(before) // BLOCKS)
        blocks = [_middle(before[at : at + size]) for at in range(0, len(before), size)]
        above = self.ends_bytes - max(amount for _, amount in blocks)
        rose = _rate([(blocks[-1][0] - blocks[0][0], blocks[-1][1] - blocks[0][1])])
        return above >= self.bytes / 2 and self.slope >= _SLOWING * rose


def _together(rests: list[float]) -> float:
    """How many times more than independent growths these scatter in their sum: 1 + 2 x their correlation
    from one to the next, with an allowance for what so few tell of it.

    -0.5 of steady noise, whose growths take each other back; 0.25 of the blocks of a random walk (Working,
    Econometrica 28, 1960).
    """
    squares = sum(rest * rest for rest in rests)
    products = sum(one * next_ for one, next_ in pairwise(rests))
    return min(1.5, max(0.35, 1.5 + 2.2 * products / squares)) if squares else 1.0


def _told(
    growth: _Growth,
    is_leak: bool,
    is_slowing: bool,
    samples: int,
    blocks: tuple[Point, ...],
    limit_bytes: float | None,
    at_bytes: float | None,
    step_s: float | None,
) -> Leak:
    half = critical(0.025, growth.freedom) * growth.error if growth.freedom > 0 else math.inf
    eta_steps = None
    if is_leak and limit_bytes is not None:
        at = blocks[-1][1] if at_bytes is None else at_bytes
        eta_steps = max(0.0, limit_bytes - at) / growth.slope
    return Leak(
        slope_bytes_per_step=growth.slope,
        low_bytes_per_step=growth.slope - half,
        high_bytes_per_step=growth.slope + half,
        is_significant=is_leak,
        is_known=True,
        levels_off=is_slowing,
        samples=samples,
        since_step=growth.begins,
        eta_steps=eta_steps,
        eta_s=None if eta_steps is None or step_s is None else eta_steps * step_s,
        blocks=blocks,
    )


def _middle(points: Sequence[Point]) -> Point:
    # the lower of two in the middle: their mean would make two growths of a jump between them
    return median([step for step, _ in points]), median_low([amount for _, amount in points])


def _fills(points: Sequence[Point]) -> bool:
    """Does the whole of it, warm-up and all, grow less and less, with nothing that would stay?

    Of r + a q^n, which a leak r beside a pool that fills comes to, three growths tell r.
    """
    edges = [len(points) * number // 4 for number in range(5)]
    blocks = [_middle(points[first:last]) for first, last in pairwise(edges)]
    first, second, third = (_rate([(b[0] - a[0], b[1] - a[1])]) for a, b in pairwise(blocks))
    if not (0 < third < _FILLING * second and second < _FILLING * first):
        return False
    bend = first + third - 2 * second
    return bend <= 0 or (first * third - second * second) / bend < _STAYS * third


def _floor(points: Sequence[Point]) -> Point:
    return median([step for step, _ in points]), min(amount for _, amount in points)


def _slope(growth: tuple[float, float]) -> float:
    """growth: (steps, bytes)."""
    return growth[1] / growth[0]


def _rest_of_line(places: Sequence[float], amounts: Sequence[float]) -> float:
    """Sum of squares that a least-squares line leaves of the amounts."""
    place, amount = fmean(places), fmean(amounts)
    along = [one - place for one in places]
    beside = [one - amount for one in amounts]
    spread = sum(one * one for one in along)
    product = sum(one * other for one, other in zip(along, beside, strict=True))
    return sum(one * one for one in beside) - (product * product / spread if spread else 0.0)


def _rate(grown: Sequence[tuple[float, float]]) -> float:
    """grown: (steps, bytes) each."""
    steps = sum(wide for wide, _ in grown)
    return sum(high for _, high in grown) / steps if steps else 0.0


def _whole(number: float | None) -> int | None:
    return None if number is None or not math.isfinite(number) else round(number)


def upper_tail(t: float, freedom: int) -> float:
    """Probability above `t` of Student's t distribution with `freedom` degrees of freedom, at least 1.

    Exact to 1e-15. Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    angle = math.atan(abs(t) / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for number in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * number / (number + 1)
    inside = 2 / math.pi * (angle + sine * total) if odd else sine * total
    outside = max(0.0, (1 - inside) / 2)
    return outside if t >= 0 else 1 - outside


@lru_cache(maxsize=1024)
def critical(tail: float, freedom: int) -> float:
    """The t above which Student's t distribution has a probability of `tail` (0 to 0.5), within rounding."""
    low, high = 0.0, 1e9
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, freedom) > tail else (low, middle)
    return high
