"""Gradients of a step: clipped by the norm of all, with that of each, by which bad ones are named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from training.distributed.parallel import clip

if TYPE_CHECKING:
    import torch
    from torch import nn

_NAMED = 3


def clipped(parameters: Iterable[nn.Parameter], limit: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Clip to a global norm, as torch's `clip_grad_norm_`, bit for bit and in the same time.

    Returns the norm before, over all ranks, and the norms it is made of, one for each parameter; None where
    some parameter has no gradient, or ranks have parts of them.
    """
    import torch

    parameters = list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    kinds = {(type(gradient), gradient.device, gradient.dtype) for gradient in gradients}
    if len(gradients) < len(parameters) or len(kinds) != 1 or hasattr(gradients[0], "full_tensor"):
        return clip(parameters, limit), None
    with torch.no_grad():
        of_each = torch.stack(torch._foreach_norm(gradients, 2.0))
        total = torch.linalg.vector_norm(of_each, 2.0)
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, total)
    return total, of_each


def where_not_finite(names: Sequence[str], of_each: Sequence[float] | None) -> str:
    """A sentence on which gradients are not finite, those nearest to the loss first: there it began.

    names: of the parameters, from the input on, of whose gradients the norms are.
    """
    if of_each is None or len(of_each) != len(names):
        return ""
    bad = [name for name, norm in zip(names, of_each, strict=True) if not math.isfinite(norm)]
    if not bad:
        return "Each gradient by itself is finite, the sum of their squares is not. "
    first = ", ".join(reversed(bad[-_NAMED:]))
    return (
        f"In the backward pass {len(bad)} of {len(names)} parameters got a gradient that is not finite, "
        f"nearest to the loss: {first}. "
    )
