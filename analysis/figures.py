"""What the pictures share: size, colours, axes in units that people read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure

SIZE_INCHES = (6.4, 4.0)

# Okabe and Ito's colours, which the colour-blind can tell apart. Series that overlap also differ in
# grey: by lightness, line style or marker.
BLUE, SKY, GREEN, ORANGE, VERMILLION, YELLOW = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#F0E442",
)
GREY, LIGHT_GREY = "#777777", "#BBBBBB"

_COUNTS = ((1e12, "trillions"), (1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))
_DURATIONS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
_SIZES = ((2.0**40, "TB"), (2.0**30, "GB"), (2.0**20, "MB"))


def new_figure() -> Figure:
    """A figure for Agg: no window, no display, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def count_unit(largest: float) -> tuple[float, str]:
    """(divisor, words for the axis) of counts up to `largest`: `(1e6, " (millions)")`."""
    return next(((scale, f" ({unit})") for scale, unit in _COUNTS if largest >= scale), (1.0, ""))


def duration_unit(largest_s: float) -> tuple[float, str]:
    """(divisor, unit) of durations up to `largest_s`: at least two of the unit."""
    return next(((scale, unit) for scale, unit in _DURATIONS if largest_s >= 2 * scale), (1.0, "seconds"))


def size_unit(largest_bytes: float) -> tuple[float, str]:
    """(divisor, unit) of sizes up to `largest_bytes`."""
    return next(((scale, unit) for scale, unit in _SIZES if largest_bytes >= scale), (2.0**20, "MB"))


def smoothed(values: Sequence[float] | np.ndarray, window: int) -> np.ndarray:
    """Centred running mean over `window` values, float64, of the same length.

    Fewer values at both ends; those that are not finite are left out, and nan where all are.
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
