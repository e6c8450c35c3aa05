"""Layers whose first values are left to `models.initialization`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Linear(nn.Linear):
    """`y = x W^T + b`, (..., inputs) -> (..., outputs).

    parts: outputs of each of the matrices that lie in this one, which are initialized as matrices of their
        own; one where not given.
    """

    def __init__(
        self, inputs: int, outputs: int, *, bias: bool = False, parts: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.parts = parts or (outputs,)

    def reset_parameters(self) -> None:
        """Draw nothing: one place initializes, so that a seed does not depend on torch's defaults."""

    def begin_bias(self) -> None:
        """First values of the biases, where there are some."""
        self.bias.zero_()


class ExpertLinear(nn.Module):
    """A matrix for each expert: weight (experts, outputs, inputs), without bias. parts: as of `Linear`."""

    def __init__(
        self, experts: int, inputs: int, outputs: int, *, parts: tuple[int, ...] | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.parts = parts or (outputs,)

    def forward(
        self, tokens: Sequence[Tensor] | Tensor, ends: Tensor | None = None
    ) -> Sequence[Tensor] | Tensor:
        """(tokens, inputs) -> (tokens, outputs), each token by the matrix of its expert.

        Args:
            tokens: those of each expert; with `ends` one tensor, sorted by expert.
            ends: int32 (experts,), the tokens up to the last one of each expert. Products are in bf16 then,
                and the device is not asked how many tokens each expert has.
        """
        if ends is not None:
            assert isinstance(tokens, Tensor)
            return self._grouped(tokens, ends)
        # unbind and not [expert], whose gradient is a tensor of all experts for each of them.
        return [
            nn.functional.linear(x, matrix) for x, matrix in zip(tokens, self.weight.unbind(), strict=True)
        ]

    def _grouped(self, tokens: Tensor, ends: Tensor) -> Tensor:
        return torch._grouped_mm(tokens.bfloat16(), self.weight.bfloat16().mT, offs=ends)


class Embedding(nn.Embedding):
    """Rows by index: int64 (...) -> (..., width)."""

    def reset_parameters(self) -> None:
        """Draw nothing, as `Linear`."""
