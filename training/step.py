"""One optimizer step: micro-batches accumulated, gradient clipped, weights moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_loading.spans import IGNORED_LABEL
from training.distributed.parallel import Parallel
from training.distributed.ranks import Ranks
from training.gradients import clipped

if TYPE_CHECKING:
    import torch
    from torch import nn

    from models import LanguageModel
    from training.device import Device
    from training.row_states import RowStates

    Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class StepResult:
    """Scalars still on the device: reading them waits for it.

    loss: mean of the step, nats a token. grad_norm: of all parameters, before clipping. by_source: of a
    mixture, fp64 (2, sources): sum of the losses of each source's labels, and how many they are.
    norms: of the gradient of each parameter, where they are known. is_skipped: the weights were not moved.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor
    by_source: torch.Tensor | None = None
    norms: torch.Tensor | None = None
    is_skipped: bool = False

    def is_finite(self) -> bool:
        """Whether a run can go on from it."""
        return self.is_skipped or bool(self.loss.isfinite() & self.grad_norm.isfinite())


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
    sources: int = 0,
    parallel: Parallel | None = None,
    noise: Callable[[Iterable[nn.Parameter]], None] | None = None,
    row_states: RowStates | None = None,
    refuses: Callable[[torch.Tensor, torch.Tensor], bool] | None = None,
) -> StepResult:
    """Read `accumulation` micro-batches of equal size, each (micro_batch, seq_len), and take one step.

    The gradient is that of the mean loss over all labels of the step, so the accumulation changes memory,
    not the mathematics. sources: of a mixture, whose batches have `source`; 0: the data are one set.
    parallel: the same model on several ranks, each of which reads `accumulation` micro-batches of its own;
    what is returned is of all of them. noise: adds to the gradients, after they were clipped. row_states:
    what the rows of a recurrent model begin with; they go on where the step is taken. refuses:
    whether a step of this loss and gradient norm is not to be taken.
    """
    import torch

    from training.optimizers.groups import set_lr

    parallel = parallel or Parallel(model)
    ranks = parallel.ranks
    total = torch.zeros((), device=device.torch_device)
    by_source = (
        torch.zeros((2, sources), dtype=torch.float64, device=device.torch_device) if sources else None
    )
    for number, (batch, divisor) in enumerate(with_divisors(batches, accumulation, ranks)):
        # Shifted windows come as (micro_batch, seq_len // shift, shift); these models read them flat.
        input_ids, labels = (device.put(batch[name].flatten(1)) for name in ("input_ids", "labels"))
        of_tokens = None if by_source is None else torch.empty(labels.shape, device=labels.device)
        reduction = "mean" if divisor else "sum"  # of no label at all, where the others wait for this rank
        if row_states is not None:
            model.memory = row_states.of_next(batch)
        with parallel.backward_of(number, accumulation):
            with device.autocast():
                positions = positions_of(batch, device)
                loss = parallel(input_ids, labels, positions, loss_chunk, reduction, of_tokens)
                loss = loss / (divisor or 1.0)
            loss.backward()
        total += loss.detach()
        if by_source is not None and of_tokens is not None:
            by_source += sums_by_source(of_tokens, labels, device.put(batch["source"]), sources)
    model.memory = None
    if not ranks.is_alone:
        ranks.sum_(total, *([] if by_source is None else [by_source]))
        total /= ranks.size
    grad_norm, norms = clipped(model.parameters(), float("inf") if grad_clip is None else grad_clip)
    if refuses is not None and refuses(total, grad_norm):
        optimizer.zero_grad(set_to_none=True)
        return StepResult(total, grad_norm, by_source, norms, is_skipped=True)
    if row_states is not None:
        row_states.end_step()
    if noise is not None:
        noise(model.parameters())
    set_lr(optimizer.param_groups, lr)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return StepResult(total, grad_norm, by_source, norms)


def positions_of(batch: Batch, device: Device) -> torch.Tensor | None:
    """Those that begin anew with each document, where documents are masked."""
    found = batch.get("position_ids")
    return None if found is None else device.put(found)


def sums_by_source(
    of_tokens: torch.Tensor, labels: torch.Tensor, source: torch.Tensor, sources: int
) -> torch.Tensor:
    """Losses (batch, seq) and labels that count, summed for each source: fp64 (2, sources).

    By a product and not by adding at indices, which on a GPU happens in any order.
    """
    import torch

    rows = torch.stack([of_tokens.double().sum(1), (labels != IGNORED_LABEL).double().sum(1)])
    return rows @ torch.nn.functional.one_hot(source, sources).double()


def with_divisors(batches: Iterator[Batch], accumulation: int, ranks: Ranks) -> Iterator[tuple[Batch, float]]:
    """Micro-batches of a step, and by what the mean of each is divided to be its part of the step's mean.

    Where labels are left out, across the borders of documents, their number is known when all are read. Of
    several ranks, whose gradients are averaged, the step is that of all; 0.0: this one has no label.
    """
    first = next(batches)
    if "position_ids" not in first:
        yield first, accumulation
        for _ in range(accumulation - 1):
            yield next(batches), accumulation
        return
    step = [first, *(next(batches) for _ in range(accumulation - 1))]
    counts = [int((batch["labels"] != IGNORED_LABEL).sum()) for batch in step]
    in_step = ranks.total(sum(counts))
    for batch, count in zip(step, counts, strict=True):
        if count:
            yield batch, in_step / (count * ranks.size)
        elif not ranks.is_alone:
            yield batch, 0.0
