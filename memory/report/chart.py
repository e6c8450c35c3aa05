"""The specification of a figure: series, axes, bands, limit lines and marks, as plain values.

A figure is specified once and drawn twice: `memory.report.drawing` makes files of it with matplotlib, and
`memory.report.page` puts it on a page, where figure.js draws it with uPlot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from experiment_utils.json_values import finite

Kind = Literal["stack", "line"]
Unit = Literal["bytes", "seconds", "percent", "watts"]
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
    """It reaches from 0 to this value at least."""


@dataclass(frozen=True)
class Series:
    """One amount over x."""

    name: str
    y: Sequence[float | None]
    """A value for each x of the chart; None or nan is unknown."""
    color: str = "blue"
    """A name of `colors.ON_PAGE`."""
    kind: Kind = "line"
    """A `stack` is an area on the stacks before it."""
    pattern: str = "solid"
    """The fill of an area, one of `PATTERNS`."""
    dash: tuple[float, ...] = ()
    shown: bool = True
    """Whether it is drawn before a reader asks for it. A picture leaves out what is not shown."""
    spans_gaps: bool = False
    """Unknown values are between those of another series, and the line is drawn across them."""
    note: str = ""


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


@dataclass(frozen=True)
class Mark:
    """A vertical line with a name."""

    at: float
    label: str
    is_bad: bool = False


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

    def __post_init__(self) -> None:
        """Check the lengths.

        Raises:
            ValueError: a series is not as long as x.
        """
        for one in self.series:
            if len(one.y) != len(self.x):
                raise ValueError(f"series {one.name}: {len(one.y)} values, expected {len(self.x)} as in x")

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
        """Plain values for figure.js: unknown values are null, times have four decimals."""
        plain = asdict(self) | {"x": [round(x, 4) for x in self.x], "ends": self.ends}
        for one, series in zip(plain["series"], self.series, strict=True):
            one["y"] = [y if isinstance(y, int) else finite(y) for y in series.y]
        plain["limits"] = [asdict(limit) | {"in_view": limit in self.limits_in_view} for limit in self.limits]
        del plain["setup"]
        return plain
