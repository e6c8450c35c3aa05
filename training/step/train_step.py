"""One optimizer step: micro-batches accumulated, gradient clipped, weights moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from data_loading.dataset.protocol import IGNORED_LABEL
from training.devices.device_batches import on_device
from training.distributed.parallel import Parallel
from training.step.gradients import clipped

if TYPE_CHECKING:
    import torch
    from torch import nn

    from models import LanguageModel
    from training.devices.device import Device
    from training.distributed.ranks import Ranks
    from training.step.recurrent_state import RowStates

    Batch = dict[str, torch.Tensor]


FP32_LR_ON = ("cuda",)
"""Devices whose learning rates are rounded to fp32, so that an eager step is the graphed one bit for bit."""


@dataclass(frozen=True)
class StepResult:
    """Scalars of a step that are still on the device: reading one waits for it.

    loss: mean of the step, nats a token. grad_norm: of all parameters, before clipping. by_source: of a
    mixture, fp64 (2, sources): sum of the losses of each source's labels, and how many they are.
    norms: of the gradient of each parameter, where they are known. is_skipped: the weights were not moved.
    is_scaled: in fp16, where they were not moved either if the norm is not finite.
    """

    loss: torch.Tensor
    grad_norm: torch.Tensor
    by_source: torch.Tensor | None = None
    norms: torch.Tensor | None = None
    is_skipped: bool = False
    is_scaled: bool = False
    own: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Metrics of the user's, by name: fp64 scalars."""


@dataclass
class Step:
    """The optimizer step of a run, built once: `take` reads its micro-batches and moves the weights.

    The gradient is that of the mean loss over all labels of the step, so the accumulation changes memory,
    not the mathematics.
    """

    model: LanguageModel
    optimizer: torch.optim.Optimizer
    device: Device
    accumulation: int
    """Micro-batches of a step, each (micro_batch, seq_len)."""
    loss_chunk: int
    """Tokens whose logits exist at once."""
    grad_clip: float | None
    """Largest global norm of the gradient; None: it is not clipped."""
    sources: int = 0
    """Sources of a mixture, whose batches have `source`; 0: the data are one set."""
    parallel: Parallel | None = None
    """The model on several ranks, each of which reads its own micro-batches; results are those of all."""
    row_states: RowStates | None = None
    """States that the rows of a recurrent model begin with; they advance where the step is taken."""
    seed: Callable[[int], None] | None = None
    """Seeds the random numbers of the step with this number."""
    noise: Callable[[Iterable[nn.Parameter], int], None] | None = None
    """Adds to the clipped gradients of the step with this number."""
    refuses: Callable[[torch.Tensor, torch.Tensor, int], bool] | None = None
    """Whether a step with this loss, gradient norm and number is left out."""
    scaler: torch.amp.GradScaler | None = None
    """Scales the loss of a run in fp16, and leaves out steps whose gradients overflow."""
    has_own_loss: bool = False
    """Whether the user's step computes the loss of a micro-batch."""
    watch: Callable[[StepResult, float, int], Mapping[str, torch.Tensor]] | None = None
    """Called after a step with its result, learning rate and number from 1; returns the user's metrics."""

    def __post_init__(self) -> None:
        self.parallel = self.parallel or Parallel(self.model)

    def take(self, batches: Iterator[Batch], lr: float, number: int = 0) -> StepResult:
        """Take the step with this number, from 0. An error leaves weights and moments as they were.

        Args:
            batches: `accumulation` of them are read.
            lr: learning rate of the step.
        """
        if self.seed is not None:
            self.seed(number)
        if self.row_states is not None:
            self.row_states.begin_step(number)
        try:
            result = self.apply(self.gradients(batches), lr, number)
            if self.watch is not None:
                result = replace(result, own=self.watch(result, lr, number + 1))
        finally:
            self.model.memory = None
            self.optimizer.zero_grad(set_to_none=True)
        return result

    def gradients(self, batches: Iterator[Batch]) -> StepResult:
        """Compute the clipped gradients of a step."""
        import torch

        assert self.parallel is not None
        device, ranks = self.device.torch_device, self.parallel.ranks
        total = torch.zeros((), device=device)
        by_source = (
            torch.zeros((2, self.sources), dtype=torch.float64, device=device) if self.sources else None
        )
        for number, (batch, divisor) in enumerate(with_divisors(batches, self.accumulation, ranks)):
            if self.row_states is not None:
                self.model.memory = self.row_states.of_next(batch)
            with self.parallel.backward_of(number, self.accumulation):
                self.add_gradients(on_device(batch, self.device), divisor, total, by_source)
        if not ranks.is_alone:
            ranks.sum_(total, *([] if by_source is None else [by_source]))
            total /= ranks.size
        grad_norm, norms = self.clip()
        return StepResult(total, grad_norm, by_source, norms, is_scaled=self.scaler is not None)

    def add_gradients(
        self, batch: Batch, divisor: float, total: torch.Tensor, by_source: torch.Tensor | None
    ) -> None:
        """Run forward and backward of a micro-batch on the device; add its loss to `total` and `by_source`.

        Args:
            divisor: of its mean loss; 0: no label of it counts.
        """
        import torch

        assert self.parallel is not None
        labels = batch["labels"]
        of_tokens = None if by_source is None else torch.empty(labels.shape, device=labels.device)
        reduction = "mean" if divisor else "sum"  # of no label at all, where the others wait for this rank
        with self.device.autocast():
            if self.has_own_loss and divisor:
                loss, recorded = self.parallel.own(batch)
            else:
                recorded = loss = self.parallel(
                    batch["input_ids"],
                    labels,
                    batch.get("position_ids"),
                    self.loss_chunk,
                    reduction,
                    of_tokens,
                )
            if divisor not in (0, 1):
                loss, recorded = loss / divisor, recorded / divisor
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        total += recorded.detach()
        if by_source is not None and of_tokens is not None:
            by_source += sums_by_source(of_tokens, labels, batch["source"], self.sources)

    def clip(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Clip the gradients; returns their norm before, and that of each parameter (see `clipped`)."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        limit = float("inf") if self.grad_clip is None else self.grad_clip
        return clipped(self.model.parameters(), limit)

    def apply(self, found: StepResult, lr: float, number: int) -> StepResult:
        """Move the weights by the gradients there are, unless the step is refused."""
        found = self.prepare(found, lr, number)
        if found.is_skipped:
            return found
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return found

    def prepare(self, found: StepResult, lr: float, number: int) -> StepResult:
        """Do all of `apply` but the optimizer's own step."""
        from training.optimizers.groups import set_lr

        if self.refuses is not None and self.refuses(found.loss, found.grad_norm, number + 1):
            return replace(found, is_skipped=True)
        if self.row_states is not None:
            self.row_states.end_step()
        if self.noise is not None:
            self.noise(self.model.parameters(), number)
        set_lr(self.optimizer.param_groups, lr, in_fp32=self.device.kind in FP32_LR_ON)
        return found


def sums_by_source(
    of_tokens: torch.Tensor, labels: torch.Tensor, source: torch.Tensor, sources: int
) -> torch.Tensor:
    """Losses (batch, seq) and labels that count, summed for each source: fp64 (2, sources).

    By a product and not by adding at indices, which on a GPU happens in any order.
    """
    import torch

    rows = torch.stack([of_tokens.double().sum(1), (labels != IGNORED_LABEL).double().sum(1)])
    return rows @ (source.unsqueeze(1) == torch.arange(sources, device=source.device)).double()


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
