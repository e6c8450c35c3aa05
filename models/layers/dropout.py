"""Dropout: of single numbers, or locked, of the same numbers at all positions of a row."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


def dropped(x: Tensor, share: float, training: bool, *, locked: bool = False) -> Tensor:
    """(batch, seq, width) with that share of its numbers 0 and the others larger, in training.

    locked: what is drawn for a row holds at all its positions (Gal & Ghahramani, arXiv:1512.05287).
    """
    if not share or not training:
        return x
    if not locked:
        return F.dropout(x, share)
    return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), share)


class LockedDropout(nn.Module):
    """`dropped` with one draw a row."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return dropped(x, self.share, self.training, locked=True)


def dropout(share: float, *, locked: bool = False) -> nn.Module:
    """The module of a place; nothing where nothing is dropped."""
    if not share:
        return nn.Identity()
    return LockedDropout(share) if locked else nn.Dropout(share)
