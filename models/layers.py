"""Layers whose first values are left to `models.initialization`."""

from __future__ import annotations

from torch import nn


class Linear(nn.Linear):
    """`y = x W^T`, (..., inputs) -> (..., outputs), without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Draw nothing: one place initializes, so that a seed does not depend on torch's defaults."""


class Embedding(nn.Embedding):
    """Rows by index: int64 (...) -> (..., width)."""

    def reset_parameters(self) -> None:
        """Draw nothing, as `Linear`."""
