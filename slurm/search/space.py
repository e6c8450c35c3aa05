"""What is searched, as the command line says it, and candidates drawn from it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING

from conf.composing.overrides import Setting, Value
from experiment_utils.errors import Problem

if TYPE_CHECKING:
    from hydra.core.override_parser.types import IntervalSweep

RANDOM, SOBOL = "random", "sobol"
_DIGITS = 6
_TRIES, _TRIES_EACH = 10_000, 10
"""Points that are drawn at most: lists have an end, and the last of their combinations come late."""


@dataclass(frozen=True)
class Interval:
    """`interval(a, b)`, of whole numbers as `int(interval(a, b))`, by their logarithm as `tag(log, ...)`."""

    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def at(self, place: float) -> Value:
        """place: from 0 to below 1."""
        if self.is_whole:  # each number has as much room as the others
            low, high = (self.low, self.high + 1)
        else:
            low, high = self.low, self.high
        drawn = (
            math.exp(math.log(low) + place * math.log(high / low))
            if self.is_log
            else low + place * (high - low)
        )
        if self.is_whole:
            whole = min(int(self.high), math.floor(drawn))
            return Value(whole, str(whole))
        rounded = min(max(float(f"{drawn:.{_DIGITS}g}"), self.low), self.high)
        return Value(rounded, repr(rounded))


Dimension = Interval | tuple[Value, ...]


def dimensions_of(settings: Mapping[str, Setting]) -> tuple[dict[str, Dimension], list[Problem]]:
    """What is searched, key by key; and what is wrong with it."""
    found: dict[str, Dimension] = {}
    problems = []
    for key, setting in settings.items():
        if setting.is_interval:
            interval = _interval(setting)
            if not interval.low < interval.high:
                problems.append(Problem(key, f"expected interval(LOW,HIGH), got {setting.argument}"))
            elif interval.is_log and interval.low <= 0:
                problems.append(Problem(key, f"a logarithm needs numbers above 0: {setting.argument}"))
            found[key] = interval
        elif len(setting.values) > 1:
            found[key] = setting.values
    return found, problems


def _interval(setting: Setting) -> Interval:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed: IntervalSweep = OverridesParser.create().parse_override(setting.argument).value()  # type: ignore[assignment]
    low, high = parsed.start, parsed.end
    is_whole = isinstance(low, int) and isinstance(high, int)
    assert low is not None
    assert high is not None
    return Interval(low, high, "log" in parsed.tags, is_whole)


def every(dimensions: Mapping[str, Dimension]) -> list[dict[str, Value]]:
    """Every combination, the last key varying fastest; of lists alone."""
    lists = [one for one in dimensions.values() if not isinstance(one, Interval)]
    assert len(lists) == len(dimensions)
    return [dict(zip(dimensions, values, strict=True)) for values in product(*lists)]


def drawn(dimensions: Mapping[str, Dimension], count: int, how: str, seed: int) -> list[dict[str, Value]]:
    """So many candidates, or fewer where lists hold no more; none twice. The same seed draws the same, and
    a larger count the same ones first.
    """
    found: dict[tuple[str, ...], dict[str, Value]] = {}
    for point in islice(_points(len(dimensions), how, seed), _TRIES + _TRIES_EACH * count):
        values = {key: _at(one, place) for (key, one), place in zip(dimensions.items(), point, strict=True)}
        found.setdefault(tuple(value.text for value in values.values()), values)
        if len(found) >= count:
            break
    return list(found.values())


def _at(dimension: Dimension, place: float) -> Value:
    if isinstance(dimension, Interval):
        return dimension.at(place)
    return dimension[min(len(dimension) - 1, int(place * len(dimension)))]


def _points(dimensions: int, how: str, seed: int) -> Iterator[Sequence[float]]:
    """In the unit cube, without end."""
    if how == RANDOM:
        generator = random.Random(seed)
        while True:
            yield [generator.random() for _ in range(dimensions)]
    from scipy.stats import qmc

    sobol, size = qmc.Sobol(dimensions, scramble=True, seed=seed), 1
    while True:  # powers of two keep it balanced
        yield from sobol.random(size).tolist()
        size = max(1, sobol.num_generated)
