"""Recurrent state that a row carries from one window to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

STATES_OF_LAYER = {"lstm": 2, "mingru": 1}
"""By family: outputs and cells of an LSTM, states of a minGRU."""


@dataclass(frozen=True)
class RowMemory:
    """States of shape (layers, kinds, batch, width)."""

    before: Tensor
    """States that the windows start with."""
    behind: Tensor
    """Receives the states that they end with, without gradients; not read in the pass."""
