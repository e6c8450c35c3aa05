"""What a recurrent model takes from one window of a row to the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

STATES_OF_LAYER = {"lstm": 2, "mingru": 1}
"""By family: of an LSTM outputs and cells, of a minGRU its states."""


@dataclass(frozen=True)
class RowMemory:
    """before: states (layers, kinds, batch, width) that the windows begin with. behind: where those they end
    with are written, without their gradients; not read in the pass.
    """

    before: Tensor
    behind: Tensor
