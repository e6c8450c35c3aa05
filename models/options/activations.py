"""Activations of the feed-forward part and their costs. No torch: functions are in `models.layers`.

An activation of ours is one entry here, its function there, and a choice of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ActivationCosts:
    """Costs in matrices of (d_model, ffn_hidden), and in tensors of the hidden width."""

    matrices: int
    """A gated unit has three, a plain one two."""
    kept: int
    """Tensors kept for the backward pass: gate and up, the activated gate, and their product; or what the
    activation saves, and its result. The gradient of relu is computed from its result, of others from their
    input."""
    gradients: int
    """Gradients and their operands that exist together in the backward pass."""


ACTIVATIONS = {
    "swiglu": ActivationCosts(matrices=3, kept=4, gradients=2),
    "geglu": ActivationCosts(matrices=3, kept=4, gradients=2),
    "gelu": ActivationCosts(matrices=2, kept=2, gradients=1),
    "gelu_exact": ActivationCosts(matrices=2, kept=2, gradients=1),
    "relu": ActivationCosts(matrices=2, kept=1, gradients=2),
    "relu2": ActivationCosts(matrices=2, kept=2, gradients=3),
    "silu": ActivationCosts(matrices=2, kept=2, gradients=1),
}

OF_OWN = ActivationCosts(matrices=2, kept=4, gradients=3)
"""Taken for an activation of the user's: a function of one tensor, with a few temporaries."""


def activation_costs(name: str) -> ActivationCosts:
    """Costs of an activation of ours, or of the user's."""
    return ACTIVATIONS.get(name, OF_OWN)
