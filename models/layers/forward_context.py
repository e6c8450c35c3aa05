"""What goes along with one forward pass from block to block: positions, and what each of them sees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.layers.positions import Positions


@dataclass(frozen=True)
class ForwardPass:
    """position_ids: int64 (batch, seq), 0 where a document begins; None: each row is one.

    mask: of attention, broadcast to (batch, heads, seq, seq): bool, what a position sees, or numbers that are
    added to scores; None: each sees itself and all before. before, behind: of a recurrent block, states
    (kinds, batch, width) that it begins with, and where it puts those it ends with; None: zeros, and nowhere.
    """

    positions: Positions
    position_ids: Tensor | None
    mask: Tensor | None
    before: Tensor | None = None
    behind: Tensor | None = None


def begin(
    positions: Positions, seq: int, position_ids: Tensor | None, window: int | None, device: torch.device
) -> ForwardPass:
    """Settle once for all blocks who sees whom.

    position_ids: as of `ForwardPass`; documents do not see each other. window: positions that one looks back
    on, its own included.
    """
    slopes = positions.slopes()
    is_windowed = window is not None and window < seq
    if position_ids is None and not is_windowed and slopes is None:
        return ForwardPass(positions, None, None)
    mask = torch.ones(seq, seq, dtype=torch.bool, device=device).tril()
    if is_windowed:
        assert window is not None
        mask = mask.triu(1 - window)
    mask = mask[None]
    if position_ids is not None:
        document = (position_ids == 0).cumsum(1)
        mask = (document[:, :, None] == document[:, None, :]) & mask
    mask = mask[:, None]
    return ForwardPass(positions, position_ids, mask if slopes is None else _with_slopes(mask, slopes))


def _with_slopes(mask: Tensor, slopes: Tensor) -> Tensor:
    """`-slope * distance` for what is seen, -inf for what is not: (batch or 1, heads, seq, seq)."""
    places = torch.arange(mask.shape[-1], device=mask.device)
    distances = (places[:, None] - places[None, :]).float()
    return (-slopes[:, None, None] * distances).masked_fill(~mask, float("-inf"))
