"""The recurrence of a minGRU for all positions at once: a scan in chunks, and its gradient by another."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor


def scan(keep: Tensor, new: Tensor) -> Tensor:
    """`h_t = keep_t * h_(t-1) + new_t` from h = 0, (batch, seq, width) each.

    Chunks of about sqrt(seq) positions go side by side, one position after the other; then each takes what
    the chunk before it ended with, as much of it as was kept. So operations grow with sqrt(seq) and their
    work with seq; nothing is divided and no logarithm taken.
    """
    batch, seq, width = new.shape
    size = max(1, math.isqrt(seq - 1) + 1)
    chunks = -(-seq // size)
    padding = (0, 0, 0, chunks * size - seq)
    keep = torch.nn.functional.pad(keep, padding).view(batch, chunks, size, width)
    states = torch.nn.functional.pad(new, padding).view(batch, chunks, size, width).clone()
    kept = keep.clone()
    for place in range(1, size):
        states[:, :, place].addcmul_(keep[:, :, place], states[:, :, place - 1])
        kept[:, :, place].mul_(kept[:, :, place - 1])
    for chunk in range(1, chunks):
        states[:, chunk].addcmul_(kept[:, chunk], states[:, chunk - 1, -1:])
    return states.view(batch, chunks * size, width)[:, :seq]


def candidate(x: Tensor) -> Tensor:
    """`x + 0.5` above 0 and `sigmoid(x)` below, positive everywhere (Feng et al., arXiv:2410.01201, B.2)."""
    return torch.where(x >= 0, x + 0.5, x.sigmoid())


class MinGruStates(torch.autograd.Function):
    """Gates to states, keeping only these two: all between them is computed again on the way back."""

    @staticmethod
    def forward(context: Any, gates: Tensor, begins: Tensor | None, before: Tensor | None) -> Tensor:
        """gates: (batch, seq, 2 width), of the share that is new and of the candidate, as products give them.

        begins: bool (batch, seq), where nothing is kept. before: the state (batch, width) that the first one
        goes on from, which gets no gradient. Returns states in fp32 (or fp64, as gates are).
        """
        keep, new = _kept_and_new(gates, begins)[:2]
        if before is not None:
            new[:, 0].addcmul_(keep[:, 0], before)
        states = scan(keep, new).contiguous()
        context.save_for_backward(gates, states, begins, before)
        return states

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        gates, states, begins, before = context.saved_tensors
        keep, _, share, value = _kept_and_new(gates, begins)
        # What a state is worth: by itself, and by the share of it that the next one keeps.
        nothing = torch.zeros_like(keep[:, :1])
        later = torch.cat([keep[:, 1:], nothing], 1)
        of_new = scan(later.flip(1), gradients[0].flip(1)).flip(1)
        first = nothing if before is None else before[:, None]
        of_keep = of_new * torch.cat([first, states[:, :-1]], 1)
        if begins is not None:
            of_keep = of_keep.masked_fill(begins[..., None], 0.0)
        of_share = (of_new * value - of_keep) * share * (1 - share)
        inputs = gates.chunk(2, -1)[1].to(states.dtype)
        below = inputs.sigmoid()
        of_value = of_new * share * torch.where(inputs >= 0, 1.0, below * (1 - below))
        return torch.cat([of_share, of_value], -1).to(gates.dtype), None, None


def _kept_and_new(gates: Tensor, begins: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What is kept of a state and what is added; of that the share, and the candidate."""
    wide = gates if gates.dtype == torch.float64 else gates.float()
    of_share, of_value = wide.chunk(2, -1)
    share, value = of_share.sigmoid(), candidate(of_value)
    keep = 1 - share
    if begins is not None:
        keep = keep.masked_fill(begins[..., None], 0.0)
    return keep, share * value, share, value


def min_gru_states(gates: Tensor, begins: Tensor | None = None, before: Tensor | None = None) -> Tensor:
    """`h_t = (1 - z_t) h_(t-1) + z_t g(v_t)` of `MinGruStates`, outside of autocast."""
    with torch.autocast(gates.device.type, enabled=False):
        states: Tensor = MinGruStates.apply(gates, begins, before)
    return states
