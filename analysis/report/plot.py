"""What a plot of a page shows, as plain values; plot.js draws it, curves.js those of many runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["line", "dash", "points", "rings", "area", "lost"]
Format = Literal["number", "count", "power", "loss", "rate", "bytes", "seconds"]
_DIGITS = 6


@dataclass(frozen=True)
class Axis:
    """name: with its unit."""

    name: str
    format: Format = "number"
    log: bool = False
    from_zero: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "format": self.format, "log": self.log, "from_zero": self.from_zero}


@dataclass(frozen=True)
class Series:
    """x, y: of one length; a y of None or nan is a gap. group: of the legend; what has none is always shown.

    kind: `area` lies between low and high; `points` have bars from low to high where they are given; `rings`
    are small; `lost` are marks at the top, of what has no finite y. notes: of each place. color: a name of
    `memory.report.colors.ON_PAGE`.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float | None] = ()
    kind: Kind = "line"
    color: str = "blue"
    group: str = ""
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """What plot.js reads.

        Raises:
            ValueError: they are not of one length.
        """
        told: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "color": self.color,
            "group": self.group,
        }
        for name in ("x", "y", "low", "high"):
            values = getattr(self, name)
            if values or name == "x":
                told[name] = rounded(values)
                if len(values) != len(self.x):
                    raise ValueError(f"{self.name}: {len(values)} values of {name} at {len(self.x)} places")
        if self.notes:
            told["notes"] = list(self.notes)
        return told


@dataclass(frozen=True)
class Line:
    """Upright (axis x) or across, with the stretch in which it may lie. row: of its label, from below."""

    axis: Literal["x", "y"]
    value: float
    label: str = ""
    low: float | None = None
    high: float | None = None
    color: str = "grey"
    row: int = 0

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"axis": self.axis, "value": self.value, "label": self.label}
        told |= {"color": self.color, "row": self.row}
        if self.low is not None and self.high is not None:
            told |= {"low": self.low, "high": self.high}
        return told


@dataclass(frozen=True)
class Plot:
    """label: what it shows, for those who cannot see it. height: in CSS pixels."""

    label: str
    x: Axis
    y: Axis
    series: Sequence[Series]
    lines: Sequence[Line] = ()
    height: int = 320
    legend_title: str = ""

    def to_json(self) -> dict[str, Any]:
        """What plot.js reads."""
        return {
            "label": self.label, "x": self.x.to_json(), "y": self.y.to_json(), "height": self.height,
            "series": [one.to_json() for one in self.series], "legend_title": self.legend_title,
            "lines": [one.to_json() for one in self.lines],
        }  # fmt: skip


def rounded(values: Sequence[float | None]) -> list[float | None]:
    """In as many digits as a page can show; what is not finite is None."""
    if None not in values and all(map(math.isfinite, values)):  # type: ignore[arg-type]
        told = (f"%.{_DIGITS}g " * len(values)) % tuple(values)  # in half the time of one by one
        return list(map(float, told.split()))
    return [
        None if value is None or not math.isfinite(value) else float(f"{value:.{_DIGITS}g}")
        for value in values
    ]
