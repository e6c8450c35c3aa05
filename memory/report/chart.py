"""The specification of a figure: series, axes, bands, limit lines and marks, as plain values.

A figure is specified once and drawn twice, as a file by matplotlib and on a page by a script. Series over one
time axis (`Chart.x`) are drawn by `memory.report.drawing` and figure.js, series with an x of their own by
`analysis.panels` and plot.js.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from experiment_utils.json_values import finite

Kind = Literal["stack", "line", "area", "points", "rings", "lost"]
Unit = Literal["bytes", "seconds", "percent", "watts", "number", "count", "power", "loss", "rate", "none"]
Scale = Literal["zero", "fit", "log"]
PATTERNS = ("solid", "rising", "dots", "crossed", "falling", "level")
"""Fills of areas, which differ in grey too."""
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 3),
    (1.5, 2),
    (6, 2, 1.5, 2),
    (12, 4),
    (3, 6),
    (9, 2, 2, 2, 2, 2),
)
"""Line styles, in points: lengths of strokes and gaps."""


@dataclass(frozen=True)
class Axis:
    """An axis of a chart."""

    label: str
    unit: Unit
    end: float = 0.0
    """It reaches to this value at least."""
    scale: Scale = "zero"
    """`zero`: linear from 0; `fit`: linear from the lowest value; `log`: logarithmic."""
    top: float | None = None
    """Values above it are cut off."""
    names: Sequence[str] = ()
    """Names of the places 0, 1, 2, ... instead of numbers."""


@dataclass(frozen=True)
class Series:
    """One amount over x."""

    name: str
    y: Sequence[float | None]
    """A value for each x; None or nan is unknown. Empty for `area` and `lost`."""
    color: str = "blue"
    """A name of `colors.ON_PAGE`."""
    kind: Kind = "line"
    """A `stack` is an area on the stacks before it, an `area` is between `low` and `high`. `points` have
    error bars if `low` and `high` are given, `rings` are small points, `lost` marks x without a finite y."""
    pattern: str = "solid"
    """The fill of an area, one of `PATTERNS`."""
    dash: tuple[float, ...] = ()
    shown: bool = True
    """Whether it is drawn before a reader asks for it. A picture leaves out what is not shown."""
    spans_gaps: bool = False
    """Unknown values are between those of another series, and the line is drawn across them."""
    note: str = ""
    x: Sequence[float] | None = None
    """Its own x; None: that of the chart."""
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    notes: Sequence[str] = ()
    """A note for each x."""
    group: str = ""
    """Its entry in the legend, which series can share; without one it has no entry."""
    mark: str = "o"
    """Shape of points in a file, as matplotlib names it."""
    is_thin: bool = False


@dataclass(frozen=True)
class Band:
    """A stretch of x with a name, drawn above the plot."""

    label: str
    begin: float
    end: float | None
    """None: it never ended."""
    row: int = 0
    """Bands within others are in a lower row; 0 is the highest."""
    color: str = "tint0"
    note: str = ""


@dataclass(frozen=True)
class LimitLine:
    """A horizontal line with a name."""

    value: float
    label: str
    color: str = "red"


@dataclass(frozen=True)
class Mark:
    """A vertical line with a name."""

    at: float
    label: str
    is_bad: bool = False
    until: float | None = None
    """The end of a shaded stretch that begins at `at`; None: a line."""


@dataclass(frozen=True)
class Label:
    """A text at a place."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Chart:
    """A figure."""

    label: str
    """Its content in a few words, for readers who cannot see it."""
    x: Sequence[float]
    series: Sequence[Series]
    x_axis: Axis = Axis("time", "seconds")
    y_axis: Axis = Axis("memory", "bytes")
    limits: Sequence[LimitLine] = ()
    bands: Sequence[Band] = ()
    marks: Sequence[Mark] = ()
    setup: Sequence[Band] = ()
    """Bands at the beginning of a picture that get the same width each, since all of them are short."""
    height: int = 320
    """Height of the plot on a page, in CSS pixels."""
    group: str = ""
    """Charts of one group on a page share the range of x and the cursor."""
    labels: Sequence[Label] = ()
    legend_title: str = ""

    def __post_init__(self) -> None:
        """Check the lengths.

        Raises:
            ValueError: a series is not as long as its x.
        """
        for one in self.series:
            x = self.x if one.x is None else one.x
            for values in (one.y, one.low, one.high, one.notes):
                if len(values) != len(x) and (
                    values or (values is one.y and one.kind not in ("area", "lost"))
                ):
                    raise ValueError(f"series {one.name}: {len(values)} values, expected {len(x)} as in x")

    @property
    def ends(self) -> float:
        """The last x, of moments, marks and bands."""
        ends = [self.x_axis.end, *self.x, *(mark.at for mark in self.marks)]
        return max(ends + [band.end for band in self.bands if band.end is not None])

    def stacked(self) -> list[tuple[Series, list[float], list[float]]]:
        """(series, lower edge, upper edge) of each shown area, from the bottom; unknown counts as 0."""
        sums, found = [0.0] * len(self.x), []
        for one in self.series:
            if one.kind == "stack" and one.shown:
                below, sums = sums, [at + (finite(y) or 0.0) for at, y in zip(sums, one.y, strict=True)]
                found.append((one, below, sums))
        return found

    @property
    def highest(self) -> float:
        """The highest shown value of lines; areas without a line of their sum can reach beyond it."""
        lines = (y for one in self.series if one.kind == "line" and one.shown for y in one.y)
        return max((value for y in lines if (value := finite(y)) is not None), default=0.0)

    @property
    def limits_in_view(self) -> list[LimitLine]:
        """Limits near the values; one that is far above would flatten all else."""
        return [limit for limit in self.limits if limit.value <= 2 * max(self.highest, self.y_axis.end)]

    @property
    def limits_out_of_view(self) -> list[LimitLine]:
        return [limit for limit in self.limits if limit not in self.limits_in_view]

    def to_json(self) -> dict[str, Any]:
        """Plain values for the scripts: unknown is null, times have four decimals, own x six digits."""
        plain = asdict(self) | {"x": [round(x, 4) for x in self.x], "ends": self.ends}
        for one, series in zip(plain["series"], self.series, strict=True):
            if series.x is None:
                one["y"] = [y if isinstance(y, int) else finite(y) for y in series.y]
                continue
            one |= {name: rounded(getattr(series, name)) for name in ("x", "y", "low", "high")}
        plain["limits"] = [asdict(limit) | {"in_view": limit in self.limits_in_view} for limit in self.limits]
        del plain["setup"]
        return plain


def rounded(values: Sequence[float | None]) -> list[float | None]:
    """Values with the six digits that a page can show; unknown values are None."""
    if None not in values and all(map(math.isfinite, values)):  # type: ignore[arg-type]
        text = ("%.6g " * len(values)) % tuple(values)  # half the time of one by one
        return list(map(float, text.split()))
    return [None if finite(value) is None else float(f"{value:.6g}") for value in values]
