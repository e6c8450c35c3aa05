"""Plan of what is read from a split, for readers that fetch tokens before they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class PlannedWindows(Protocol):
    """The part of `dataset.windows.Windows` that a plan needs."""

    @property
    def width(self) -> int: ...
    def starts(self, windows: np.ndarray) -> np.ndarray: ...
    def before(self, tokens: np.ndarray) -> np.ndarray: ...


class PlannedOrder(Protocol):
    """The part of `dataset.orders.Order` that a plan needs."""

    n: int

    @property
    def name(self) -> str: ...
    def coming(self, position: int, epoch: int) -> Iterator[range]: ...


@dataclass(frozen=True)
class Plan:
    """Windows of a split and their order."""

    ranges: tuple[range, ...]
    """Tokens of the split."""
    windows: PlannedWindows | None
    """None: windows that hold tokens from anywhere in the split."""
    order: PlannedOrder
    is_held_out: bool
    """The split is read repeatedly, between steps, and must not be waited for."""

    @property
    def is_everywhere(self) -> bool:
        """Whether windows that are read one after the other come from all of the split."""
        if self.windows is None:
            return True
        return self.order.name != "sequential" and next(self.order.coming(0, 0)) == range(self.order.n)

    def coming(self, epoch: int, position: int) -> Iterator[range]:
        """Yield ranges of tokens that are read from this position of an epoch on, also in the next epoch."""
        assert self.windows is not None
        for number, first in ((epoch, position), (epoch + 1, 0)):
            for windows in filter(None, self.order.coming(first, number)):
                start, last = self.windows.starts(np.array([windows.start, windows.stop - 1])).tolist()
                yield range(start, last + self.windows.width)
