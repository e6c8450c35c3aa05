"""The searched keys of a command line, and candidates drawn from them."""

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
_POINTS, _POINTS_EACH = 10_000, 10
"""Points drawn at most, and more for each candidate: of lists, the last combinations come late."""


@dataclass(frozen=True)
class Interval:
    """Numbers of `interval(a, b)`; `int(interval(a, b))`: whole ones; `tag(log, ...)`: by their logarithm."""

    low: float
    high: float
    is_log: bool = False
    is_whole: bool = False

    def at(self, place: float) -> Value:
        """The value at a place from 0 to below 1."""
        high = (
            self.high + 1 if self.is_whole else self.high
        )  # each whole number has as much room as the others
        if self.is_log:
            number = math.exp(math.log(self.low) + place * math.log(high / self.low))
        else:
            number = self.low + place * (high - self.low)
        if self.is_whole:
            whole = min(int(self.high), math.floor(number))
            return Value(whole, str(whole))
        rounded = min(max(float(f"{number:.{_DIGITS}g}"), self.low), self.high)
        return Value(rounded, repr(rounded))


Dimension = Interval | tuple[Value, ...]


def dimensions_of(settings: Mapping[str, Setting]) -> tuple[dict[str, Dimension], list[Problem]]:
    """The values of each searched key, and what is wrong with them."""
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
    assert parsed.start is not None
    assert parsed.end is not None
    is_whole = isinstance(parsed.start, int) and isinstance(parsed.end, int)
    return Interval(parsed.start, parsed.end, "log" in parsed.tags, is_whole)


def every(dimensions: Mapping[str, Dimension]) -> list[dict[str, Value]]:
    """Every combination of lists; the last key varies fastest."""
    lists = [one for one in dimensions.values() if not isinstance(one, Interval)]
    return [dict(zip(dimensions, values, strict=True)) for values in product(*lists)]


def drawn(dimensions: Mapping[str, Dimension], count: int, how: str, seed: int) -> list[dict[str, Value]]:
    """Different candidates, `count` or as many as lists hold.

    The same seed draws the same, and a larger count begins with them.
    """
    found: dict[tuple[str, ...], dict[str, Value]] = {}
    for point in islice(_points(len(dimensions), how, seed), _POINTS + _POINTS_EACH * count):
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
    """Points in the unit cube, without end."""
    if how == RANDOM:
        generator = random.Random(seed)
        while True:
            yield [generator.random() for _ in range(dimensions)]
    from scipy.stats import qmc

    sobol, size = qmc.Sobol(dimensions, scramble=True, seed=seed), 1
    while True:  # powers of two keep it balanced
        yield from sobol.random(size).tolist()
        size = max(1, sobol.num_generated)
