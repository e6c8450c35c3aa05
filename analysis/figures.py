"""Units of axes, running means, and the colours of groups of runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.columns import cell
from experiment_utils.json_values import finite, is_number
from experiment_utils.quantities import format_count
from memory.report.chart import DASHES

if TYPE_CHECKING:
    import numpy as np

_COUNTS = ((1e12, "trillions"), (1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))

RAMP = 12
"""Number of colours of the ramp for numbers, `ramp0` to `ramp11`."""
HUES = ("blue", "red", "green", "purple", "orange", "sky")
_COUNTED = ("tokens", "budget_tokens", "parameters", "non_embedding")


@dataclass(frozen=True)
class Look:
    """Colour, line style and legend entry of the runs with one value of a column."""

    group: str
    color: str
    dash: tuple[float, ...] = ()


def looks(column: str, values: Sequence[Any]) -> list[Look]:
    """The look of each value of a column.

    Numbers, and words that begin with different numbers (`64d`), get a ramp that rises in lightness, in up to
    12 groups. Other words get Okabe and Ito's colours with
    line styles; those for which neither is left are drawn in grey together.
    """
    unknown = Look("unknown", "grey")
    known = {value_key(value): value for value in values if value is not None}
    if known and all(is_number(value) and finite(value) is not None for value in known.values()):
        of_key = _ramp_looks([(value, shown_number(column, value)) for value in sorted(known.values())])
    else:
        words = sorted(known.values(), key=natural_order)
        firsts = {natural_order(word)[:2] for word in words} - {(True, float("inf"))}
        is_ordered = len(firsts) == len(words)
        of_key = (
            _ramp_looks([(word, cell(column, word)) for word in words])
            if is_ordered
            else _word_looks(column, words)
        )
    return [of_key.get(value_key(value), unknown) for value in values]


def value_key(value: Any) -> str:
    """Equal for equal values, 1 and 1.0 too; lists of a configuration cannot be keys themselves."""
    return f"{float(value)!r}" if is_number(value) else repr(value)


def ramp(place: int, of: int) -> str:
    """The colour of one of `of` ordered places."""
    return f"ramp{round(place * (RAMP - 1) / max(1, of - 1))}"


def natural_order(value: Any) -> tuple[bool, float, str]:
    """Sorts numbers before words, and `64d` as 64, so that 112d does not come first."""
    if is_number(value):
        return False, float(value), ""
    first = re.match(r"\d+", str(value))
    return True, float(first[0]) if first else float("inf"), str(value)


def shown_number(column: str, value: float) -> str:
    """A value of a column in a legend or on an axis."""
    return format_count(round(value)) if column in _COUNTED else f"{value:.4g}".replace("e+", "e")


def _ramp_looks(ordered: Sequence[tuple[Any, str]]) -> dict[str, Look]:
    """Looks of ordered (value, text)."""
    bins = min(RAMP, len(ordered))
    members: dict[int, list[tuple[Any, str]]] = {}
    for place, one in enumerate(ordered):
        members.setdefault(place * bins // len(ordered), []).append(one)
    found: dict[str, Look] = {}
    for place, inside in members.items():
        look = Look(" to ".join(dict.fromkeys((inside[0][1], inside[-1][1]))), ramp(place, bins))
        found |= {value_key(value): look for value, _ in inside}
    return found


def _word_looks(column: str, ordered: Sequence[Any]) -> dict[str, Look]:
    found: dict[str, Look] = {}
    for place, value in enumerate(ordered):
        row = place if len(ordered) <= len(HUES) else place // len(HUES)
        if row < len(DASHES):
            found[value_key(value)] = Look(cell(column, value), HUES[place % len(HUES)], DASHES[row])
        else:
            found[value_key(value)] = Look("others", "grey")
    return found


def count_unit(largest: float) -> tuple[float, str]:
    """(divisor, unit) of counts up to `largest`: `(1e6, "millions")`."""
    return next(((scale, unit) for scale, unit in _COUNTS if largest >= scale), (1.0, ""))


def smoothed(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Centred running mean over `window` values, float64, of the same length.

    A window has fewer values at both ends. Values that are not finite are left out; a window without a finite
    value is nan.
    """
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    middle = np.arange(len(values))
    first = np.maximum(0, middle - (window - 1) // 2)
    behind = np.minimum(len(values), middle + window // 2 + 1)
    found = counts[behind] - counts[first]
    with np.errstate(invalid="ignore"):
        return np.where(found > 0, (sums[behind] - sums[first]) / np.maximum(found, 1), np.nan)
