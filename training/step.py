"""One optimizer step: micro-batches accumulated, gradient clipped, weights moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from models import LanguageModel
    from training.device import Device

    Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class StepResult:
    """Scalars still on the device: reading them waits for it.

    loss: mean of the step, nats a token. grad_norm: of all parameters, before clipping.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor

    def is_finite(self) -> bool:
        return bool(self.loss.isfinite() & self.grad_norm.isfinite())


def train_step(
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    *,
    accumulation: int,
    lr: float,
    grad_clip: float | None,
    loss_chunk: int,
    device: Device,
) -> StepResult:
    """Read `accumulation` micro-batches of equal size, each (micro_batch, seq_len), and take one step.

    The gradient is that of the mean loss over all of them, so the accumulation changes memory, not
    the mathematics.
    """
    import torch

    from models import lm_loss

    total = torch.zeros((), device=device.torch_device)
    for _ in range(accumulation):
        batch = next(batches)
        # Shifted windows come as (micro_batch, seq_len // shift, shift); these models read them flat.
        input_ids, labels = (device.put(batch[name].flatten(1)) for name in ("input_ids", "labels"))
        with device.autocast():
            hidden = model.hidden(input_ids)
            loss = lm_loss(hidden, model.output_weight, labels, chunk=loss_chunk) / accumulation
        loss.backward()
        total += loss.detach()
    limit = float("inf") if grad_clip is None else grad_clip
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(total, grad_norm)
