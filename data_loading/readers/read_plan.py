"""What of a split is read, and when: for readers that fetch tokens before they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from data_loading.dataset.orders import Order
    from data_loading.dataset.windows import Windows


@dataclass(frozen=True)
class Plan:
    """ranges: of the split. windows: None: with tokens from anywhere in it. is_held_out: it is read again
    and again between steps, and never waited for.
    """

    ranges: tuple[range, ...]
    windows: Windows | None
    order: Order
    is_held_out: bool

    @property
    def is_everywhere(self) -> bool:
        """Whether windows that are read one after the other come from all of the split."""
        if self.windows is None:
            return True
        return self.order.name != "sequential" and next(self.order.coming(0, 0)) == range(self.order.n)

    def coming(self, epoch: int, position: int) -> Iterator[range]:
        """Ranges of tokens that are read from this position of an epoch on, also in the next epoch."""
        assert self.windows is not None
        for number, first in ((epoch, position), (epoch + 1, 0)):
            for windows in self.order.coming(first, number):
                if windows:
                    start, last = self.windows.starts(np.array([windows.start, windows.stop - 1])).tolist()
                    yield range(start, last + self.windows.width)
