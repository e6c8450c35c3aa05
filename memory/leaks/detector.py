"""Decide whether memory grows with the steps, steadily, and when it reaches a limit.

A least-squares line through all samples calls a third of clean runs a leak: memory wanders, jumps when
something is used for the first time, rises and falls with the garbage collector, and levels off. So the
samples are cut into blocks in order, each block becomes its median (the spike of an evaluation does not
move it), and a t-test compares the growth from block to block with its own scatter. One jump, however high,
is one large growth among zeros and is not significant. A wandering trace scatters as much as it grows. A
leak grows in nearly every block. Growth that slows down levels off, which is no leak. In addition to
medians the lowest samples of wider blocks are tried: garbage that is collected from time to time, or
batches of several lengths, scatter above a floor that a leak raises.
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

ALPHA = 0.04
"""Probability of calling a clean trace a leak, over all looks of a run."""
TOO_EARLY, LEVELLING_OFF = "too early", "levelling off"
BLOCKS = 10
FLOORS = 6
"""Number of wider blocks, each its lowest sample."""
LEAST_GROWTH_BYTES = 16 << 20
"""Growth by less is no leak, however regular: things that are used seldom add as much."""
_WARM_UP = 0.25
_LEAST_SAMPLES = 15
_SLOWING = 0.6
"""Growth levels off if its later half is below this share of its earlier half."""
_FILLING, _STAYS = 0.8, 0.3
"""A pool is filling if each quarter of a trace grows by less than the first share of the quarter before, and
what would remain of that growth in the end is less than the second share of the last."""
_JUMPS_OUT = 3
"""A growth this many times the median of all can be a jump: something is used for the first time."""
Point = tuple[float, float]
"""A step and the amount there, in bytes."""


@dataclass(frozen=True)
class Leak:
    """Growth of one trace.

    slope_bytes_per_step with low and high: slope and its 95% interval; None if too few samples were taken.
    is_significant: it is a leak.
    is_known: enough samples were taken to decide.
    levels_off: it grew, and grows less and less.
    since_step: begin of the stretch that has this slope.
    eta_steps, eta_s: from now until a leak reaches the limit at this slope.
    blocks: (step, bytes) of the trace without its warm-up.
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
    step_s: float | None = None,
    alpha: float = ALPHA,
    least_growth_bytes: float = LEAST_GROWTH_BYTES,
) -> Leak:
    """Look once at a whole trace.

    The first quarter is left out as warm-up. Then the rest, its last half and its last quarter are tried, so
    that a leak that began late is found. A shorter stretch must also rise above all before it, otherwise each
    tooth of a sawtooth would be a leak.

    Args:
        steps: not decreasing, in any unit; Unix times are allowed.
        amounts_bytes: an amount that should be constant, such as anon, at each of the steps.
        limit_bytes: largest possible amount, for `eta_steps`.
        step_s: seconds of a step, for `eta_s`.
        alpha: probability of calling a clean trace a leak.
        least_growth_bytes: growth by less over a stretch is no leak.
    """
    points = list(zip(map(float, steps), map(float, amounts_bytes), strict=True))
    left = None if limit_bytes is None or not points else max(0.0, limit_bytes - _middle(points[-10:])[1])
    return _find(points, left, step_s, alpha, least_growth_bytes)


def _find(
    points: list[Point],
    left_bytes: float | None,
    step_s: float | None,
    alpha: float,
    least_growth_bytes: float,
) -> Leak:
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
    leak = chosen.leak(is_significant=bool(leaks), left_bytes=left_bytes, step_s=step_s)
    return replace(leak, levels_off=is_slowing, samples=len(points), blocks=whole.blocks)


class LeakWatch:
    """`find_leak` while the trace grows: constant memory (about 1,000 points), cheap to add to.

    The many looks share alpha: look k of a run, one every 128 samples, has alpha / (k (k + 1)), which add up
    to alpha. Long traces are thinned to medians of three (the remedian of Rousseeuw and Bassett, JASA 85,
    1990). The last 256 samples are also kept unchanged, so that a late leak is found as soon as an early one.
    """

    _POINTS = 729
    _RECENT = 256
    _LOOK = 128
    """Samples between two looks, and steps before the first: a tooth of a sawtooth can be as long."""
    _LEAST = 48

    def __init__(self, *, alpha: float = ALPHA, least_growth_bytes: float = LEAST_GROWTH_BYTES) -> None:
        self._alpha, self._least_bytes = alpha, least_growth_bytes
        self._points: list[Point] = []
        self._levels: list[list[Point]] = [[]]
        self._recent: deque[Point] = deque(maxlen=self._RECENT)
        self.samples = 0

    def add(self, step: float, amount_bytes: float) -> None:
        """Add a sample. Steps do not decrease."""
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

    def look(self, *, left_bytes: float | None = None, step_s: float | None = None) -> Leak:
        """Report the growth so far: no leak before step 128 or the 48th sample.

        left_bytes: until the limit, for `eta_steps`. step_s: seconds of a step, for `eta_s`.
        """
        steps = self._recent[-1][0] - self._first_step if self._recent else 0.0
        is_early = self.samples < self._LEAST or steps < self._LOOK - 1
        look = max(1, self.samples // self._LOOK)
        alpha = 0.0 if is_early else self._alpha / (look * (look + 1))
        points = self._points
        found = _find(points, left_bytes, step_s, alpha, self._least_bytes)
        if not found.is_significant and self.samples >= 2 * self._RECENT:
            stretch = list(self._recent)
            before = [point for point in points[int(len(points) * _WARM_UP) :] if point[0] < stretch[0][0]]
            recent = _steepest(stretch, before, self._first_step, alpha, self._least_bytes)
            if recent:
                late = recent.leak(is_significant=True, left_bytes=left_bytes, step_s=step_s)
                found = replace(late, blocks=found.blocks)
        return replace(found, samples=self.samples, is_known=found.is_known and not is_early)


def _steepest(
    stretch: list[Point], before: list[Point], first_step: float, alpha: float, least_growth_bytes: float
) -> _Growth | None:
    """The leak in a stretch of a trace that begins at first_step, or None.

    It is tried with and without the two steepest growths, which can be jumps that hide it.
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
    """Mean growth from block to block over a stretch, and its standard error.

    first_step: of the whole trace.
    jumps: number of the steepest growths that are left out, because something was used for the first time.
    of_floor: use the lowest samples of wide blocks instead of medians.
    """

    def __init__(
        self, points: list[Point], first_step: float, jumps: int = 0, *, of_floor: bool = False
    ) -> None:
        self._first_step, self._of_floor = first_step, of_floor
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
        scatter = math.sqrt(_variance_factor(rests) * squares / max(1, self.freedom) * len(grown))
        # a trace without noise has only rounding errors
        scatter = max(scatter, 1e-9 * self.ends_bytes)
        self.error = scatter / steps if steps else math.inf
        self.t = self.slope / self.error if self.error else 0.0

    def is_significant(self, alpha: float) -> bool:
        """Whether growth this steady has less than this probability without a leak."""
        if self._of_floor and sum(high <= 0 for _, high in self._grown) > 1:
            return False  # a leak raises the floor of nearly every block
        return self.slope > 0 and self.freedom > 0 and upper_tail(self.t, self.freedom) < alpha

    def leak(self, *, is_significant: bool, left_bytes: float | None, step_s: float | None) -> Leak:
        """This growth as a result. left_bytes: until the limit. step_s: seconds of a step."""
        half = critical(0.025, self.freedom) * self.error if self.freedom > 0 else math.inf
        eta_steps = left_bytes / self.slope if is_significant and left_bytes is not None else None
        return Leak(
            slope_bytes_per_step=self.slope,
            low_bytes_per_step=self.slope - half,
            high_bytes_per_step=self.slope + half,
            is_significant=is_significant,
            is_known=True,
            since_step=self.begins,
            eta_steps=eta_steps,
            eta_s=None if eta_steps is None or step_s is None else eta_steps * step_s,
        )

    @property
    def slows_down(self) -> bool:
        """Whether the later half grows much less than the earlier, or the blocks follow a logarithm."""
        middle = len(self._grown) // 2
        earlier, later = _rate(self._grown[:middle]), _rate(self._grown[middle:])
        return later < _SLOWING * earlier or self._is_logarithmic()

    def _is_logarithmic(self) -> bool:
        """Whether the growth, without the jumps, is closer to a logarithm of the step than to a line.

        A cache of ever rarer things grows in this way. A leak does not, and a late one even less.
        """
        steps, amounts = [self.begins - self._first_step], [0.0]
        if steps[0] <= 0:
            return False
        for wide, high in self._grown:
            steps.append(steps[-1] + wide)
            amounts.append(amounts[-1] + high)
        return _rest_of_line([math.log(step) for step in steps], amounts) < _rest_of_line(steps, amounts)

    def is_new_after(self, before: list[Point]) -> bool:
        """Whether it rises above everything before, and no slower than that rose."""
        if len(before) < 3:
            return True
        size = max(1, len(before) // BLOCKS)
        blocks = [_middle(before[at : at + size]) for at in range(0, len(before), size)]
        above = self.ends_bytes - max(amount for _, amount in blocks)
        rose = _rate([(blocks[-1][0] - blocks[0][0], blocks[-1][1] - blocks[0][1])])
        return above >= self.bytes / 2 and self.slope >= _SLOWING * rose


def _variance_factor(rests: list[float]) -> float:
    """Variance of the sum of these growths over that of independent ones: 1 + 2 x correlation of neighbours.

    The correlation is -0.5 for steady noise, where each growth undoes the one before, and 0.25 for the blocks
    of a random walk (Working, Econometrica 28, 1960). The constants allow for an estimate from few growths.
    """
    squares = sum(rest * rest for rest in rests)
    products = sum(one * next_ for one, next_ in pairwise(rests))
    return min(1.5, max(0.35, 1.5 + 2.2 * products / squares)) if squares else 1.0


def _middle(points: Sequence[Point]) -> Point:
    # the lower of two in the middle: their mean would turn a jump between them into two growths
    return median([step for step, _ in points]), median_low([amount for _, amount in points])


def _fills(points: Sequence[Point]) -> bool:
    """Whether the whole trace, with its warm-up, grows less and less towards no growth.

    A leak r together with a pool that fills grows by r + a q^n in quarter n. Three such growths determine r.
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
    """Sum of squares of the amounts around a least-squares line."""
    place, amount = fmean(places), fmean(amounts)
    along = [one - place for one in places]
    across = [one - amount for one in amounts]
    spread = sum(one * one for one in along)
    product = sum(one * other for one, other in zip(along, across, strict=True))
    return sum(one * one for one in across) - (product * product / spread if spread else 0.0)


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
    """Quantile of Student's t distribution: the t that is exceeded with probability `tail` (0 to 0.5)."""
    low, high = 0.0, 1e9
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, freedom) > tail else (low, middle)
    return high
