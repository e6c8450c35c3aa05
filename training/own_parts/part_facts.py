"""Facts of the user's own parts that a plan needs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Facts:
    """Facts of the parts of a configuration. All 0 where it has no model, or no optimizer, of the user's."""

    parameters: int = 0
    non_embedding: int = 0
    """Parameters in matrices other than embeddings and `head`."""
    flops_per_token: float = 0.0
    """FLOPs of forward and backward in one training step, per token."""
    head_flops_per_token: float = 0.0
    saved_bytes: int = 0
    """Bytes that autograd saves for the backward pass whatever the batch."""
    saved_bytes_per_window: int = 0
    """Bytes that it saves for each window more, logits included."""
    has_head: bool = False
    """Whether forward returns hidden states."""
    is_counted: bool = True
    """Whether torch's counter could count the FLOPs; otherwise they are 6 a parameter."""
    state_numbers: float = 0.0
    """fp32 numbers that the optimizer keeps for each parameter."""
