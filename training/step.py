"""One optimizer step: micro-batches accumulated, gradient clipped, weights moved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_loading.spans import IGNORED_LABEL

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

    The gradient is that of the mean loss over all labels of the step, so the accumulation changes memory,
    not the mathematics.
    """
    import torch

    from models import lm_loss

    total = torch.zeros((), device=device.torch_device)
    for batch, divisor in _with_divisors(batches, accumulation):
        # Shifted windows come as (micro_batch, seq_len // shift, shift); these models read them flat.
        input_ids, labels = (device.put(batch[name].flatten(1)) for name in ("input_ids", "labels"))
        with device.autocast():
            hidden = model.hidden(input_ids, positions_of(batch, device))
            loss = lm_loss(hidden, model.output_weight, labels, chunk=loss_chunk) / divisor
        loss.backward()
        total += loss.detach()
    limit = float("inf") if grad_clip is None else grad_clip
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(total, grad_norm)


def positions_of(batch: Batch, device: Device) -> torch.Tensor | None:
    """Those that begin anew with each document, where documents are masked."""
    found = batch.get("position_ids")
    return None if found is None else device.put(found)


def _with_divisors(batches: Iterator[Batch], accumulation: int) -> Iterator[tuple[Batch, float]]:
    """Micro-batches of a step, and by what the mean of each is divided to be its part of the step's mean.

    Where labels are left out, across the borders of documents, their number is known when all are read.
    """
    first = next(batches)
    if "position_ids" not in first:
        yield first, accumulation
        for _ in range(accumulation - 1):
            yield next(batches), accumulation
        return
    step = [first, *(next(batches) for _ in range(accumulation - 1))]
    counts = [int((batch["labels"] != IGNORED_LABEL).sum()) for batch in step]
    for batch, count in zip(step, counts, strict=True):
        if count:
            yield batch, sum(counts) / count
