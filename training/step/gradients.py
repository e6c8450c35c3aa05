"""Gradients of a step: clipped by the norm of all, with that of each, by which bad ones are named."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

_NAMED = 3


def clipped(parameters: Iterable[nn.Parameter], limit: float) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Clip to a global norm, as torch's `clip_grad_norm_`, bit for bit, without a wait for the device.

    Where ranks have parts of the gradients (FSDP2), one all-reduce of the parts' norms gives those of all.

    Returns the norm before, over all ranks, and the norms it is made of, one for each parameter; None where
    some parameter has no gradient.
    """
    import torch
    from torch import Tensor

    parameters = list(parameters)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    # DTensors of FSDP2; isinstance would load torch.distributed for every run.
    own = [gradient.to_local() if hasattr(gradient, "to_local") else gradient for gradient in gradients]
    with torch.no_grad():
        of_each = torch.stack(torch._foreach_norm(own, 2.0))
        if own[0] is not gradients[0]:
            of_each = _over_ranks(of_each, gradients[0])
        total: Tensor = torch.linalg.vector_norm(of_each, 2.0)
        torch._foreach_mul_(own, (limit / (total + 1e-6)).clamp(max=1.0))
    return total, of_each if len(gradients) == len(parameters) else None


def _over_ranks(norms: torch.Tensor, gradient: Any) -> torch.Tensor:
    """Norms of whole tensors from those of this rank's parts. gradient: one of them, a DTensor."""
    import torch.distributed as dist

    squares = norms**2
    dist.all_reduce(squares, group=gradient.device_mesh.get_group())
    return squares**0.5


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
