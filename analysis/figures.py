"""What the pictures of a study share: axes in units that people read, curves without their noise.

Colours, size and style are those of the memory room's pictures (memory/report).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_COUNTS = ((1e12, "trillions"), (1e9, "billions"), (1e6, "millions"), (1e3, "thousands"))


def count_unit(largest: float) -> tuple[float, str]:
    """(divisor, words for the axis) of counts up to `largest`: `(1e6, " (millions)")`."""
    return next(((scale, f" ({unit})") for scale, unit in _COUNTS if largest >= scale), (1.0, ""))


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
