"""Units of the feed-forward parts that are silent for every token of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from models.layers.experts import Experts
from models.layers.feedforward import FeedForward

SILENT = 1e-3
"""Share of its layer's largest value that a dead unit never exceeds: relu gives 0, others come near it."""


class Units:
    """Largest absolute value of each unit, by layer."""

    def __init__(self) -> None:
        self._largest: dict[str, Tensor] = {}

    def see(self, layer: str, values: Tensor | list[Tensor]) -> None:
        """Take in activations (..., units) of some tokens; of experts, those of each."""
        parts = values if isinstance(values, list) else [values]
        rows = [
            part.detach().abs().flatten(0, -2).amax(0) if part.numel() else part.new_zeros(part.shape[-1])
            for part in parts
        ]
        found = torch.cat(rows).float()
        before = self._largest.get(layer)
        self._largest[layer] = found if before is None else torch.maximum(before, found)

    def shares(self) -> dict[str, float]:
        """Layer -> share of its units that are dead."""
        return {
            layer: round((largest <= SILENT * largest.max()).float().mean().item(), 6)
            for layer, largest in self._largest.items()
        }


@contextmanager
def watched(model: nn.Module, *, is_on: bool) -> Iterator[Units]:
    """Watch the input of the second product of every feed-forward part, within the block."""
    units, hooks = Units(), []
    if is_on:
        for name, module in model.named_modules():
            if isinstance(module, FeedForward | Experts):

                def look(_: nn.Module, inputs: tuple[Any, ...], layer: str = name) -> None:
                    units.see(layer, inputs[0])

                hooks.append(module.output.register_forward_pre_hook(look))
    try:
        yield units
    finally:
        for hook in hooks:
            hook.remove()


def words(shares: dict[str, float]) -> str:
    """`dead units: blocks.0.feed_forward 12%, blocks.3.feed_forward 1%`; empty if no unit is dead."""
    dead = [f"{layer} {share:.1%}" for layer, share in shares.items() if share]
    return f"dead units: {', '.join(dead)}" if dead else ""
