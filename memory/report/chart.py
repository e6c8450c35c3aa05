"""What a chart of a page shows, as plain values; chart.js draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from experiment_utils.json_values import finite

Kind = Literal["stack", "hatch", "line", "dash"]
Format = Literal["bytes", "seconds", "number"]


@dataclass(frozen=True)
class Series:
    """One amount over x. y: None or nan where it is not known. color: a name of `colors.ON_PAGE`.

    kind: `stack` lies on those before it; `hatch` lies on them too and is no danger; `line`; `dash`, dashed.
    x: its own, where it differs from the chart's; a stacked one has none. shown: at first.
    """

    name: str
    y: Sequence[float | None]
    color: str = "blue"
    kind: Kind = "line"
    x: Sequence[float] | None = None
    shown: bool = True
    note: str = ""


@dataclass(frozen=True)
class Band:
    """A stretch of x with a name, above the plot. end: None: it never ended. row: 0 is the highest."""

    label: str
    begin: float
    end: float | None
    color: str = "tint0"
    row: int = 0
    note: str = ""


@dataclass(frozen=True)
class Level:
    """A line across, such as a limit."""

    value: float
    label: str


@dataclass(frozen=True)
class Mark:
    """A moment. is_bad: the end of a run, say."""

    at: float
    label: str
    is_bad: bool = False


@dataclass(frozen=True)
class Chart:
    """label: what it shows, for those who cannot see it. height: of the plot, in CSS pixels.

    group: charts of one page with the same group show the same stretch of x and share a cursor.
    x_range: what the x axis spans at least. y_max: what the y axis reaches at least. has_legend: False where
    a chart of the same group has it.
    """

    label: str
    x: Sequence[float] = ()
    series: Sequence[Series] = ()
    bands: Sequence[Band] = ()
    levels: Sequence[Level] = ()
    marks: Sequence[Mark] = ()
    x_format: Format = "seconds"
    y_format: Format = "bytes"
    height: int = 320
    group: str = ""
    x_range: tuple[float, float] | None = None
    y_max: float | None = None
    from_zero: bool = True
    has_legend: bool = True

    def to_json(self) -> dict[str, Any]:
        """What chart.js reads.

        Raises:
            ValueError: a series is not as long as its x.
        """
        for one in self.series:
            x = self.x if one.x is None else one.x
            if len(x) != len(one.y):
                raise ValueError(f"{one.name}: {len(one.y)} values at {len(x)} places")
        return {
            "label": self.label,
            "x": [_rounded(x) for x in self.x],
            "series": [_of_series(one) for one in self.series],
            "bands": [
                {
                    "label": band.label,
                    "begin": _rounded(band.begin),
                    "end": None if band.end is None else _rounded(band.end),
                    "color": band.color,
                    "row": band.row,
                    "note": band.note,
                }
                for band in self.bands
            ],
            "levels": [{"value": level.value, "label": level.label} for level in self.levels],
            "marks": [
                {
                    "at": _rounded(mark.at),
                    "label": mark.label,
                    "kind": "bad" if mark.is_bad else "mark",
                    "row": row,
                }
                for row, mark in enumerate(self.marks)
            ],
            "x_format": self.x_format,
            "y_format": self.y_format,
            "height": self.height,
            "group": self.group,
            "x_range": None if self.x_range is None else [_rounded(x) for x in self.x_range],
            "y_max": self.y_max,
            "from_zero": self.from_zero,
            "has_legend": self.has_legend,
        }


def _of_series(one: Series) -> dict[str, Any]:
    told: dict[str, Any] = {
        "name": one.name,
        "y": [_known(value) for value in one.y],
        "color": one.color,
        "kind": one.kind,
        "shown": one.shown,
        "note": one.note,
    }
    if one.x is not None:
        told["x"] = [_rounded(x) for x in one.x]
    return told


def _known(value: float | None) -> float | None:
    """An amount in bytes stays whole; what is not finite is not known."""
    return value if isinstance(value, int) else finite(value)


def _rounded(x: float) -> float:
    return round(x, 4)
