"""One step of several runs: a batch of each, one forward and one backward pass, one update of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from conf.seeding import seeds as seeds_of
from data_loading.dataset.protocol import IGNORED_LABEL
from training.ensemble.graphed import GraphedPasses, graphs_for
from training.ensemble.member_log import about
from training.ensemble.update import StackedOptimizer, clip_each
from training.step.dropout_seed import drops, step_seed
from training.step.schedules import course_of
from training.step.spike_guard import Diverged
from training.step.train_step import StepResult, sums_by_source

if TYPE_CHECKING:
    import torch

    from training.run.prepared_run import Started
    from training.step.train_step import Batch


class EnsembleStep:
    """Steps of runs at the same step number, whose models are one stack until `release`.

    is_finite: whether the last step of all runs was finite, bool () on the device. stack: their models.
    """

    def __init__(self, members: Sequence[Started]) -> None:
        import torch

        from models.stacked import StackedModel

        self.members = list(members)
        self.is_finite = torch.ones((), dtype=torch.bool)
        self._lead = self.members[0].run
        self.stack = StackedModel([member.model for member in members])
        self._optimizer = StackedOptimizer([member.optimizer for member in members], self.stack)
        self._courses = [course_of(member.run.config, member.run.plan.budget) for member in members]
        self._seeds = [seeds_of(member.run.config)[0] for member in members]
        limits = [member.run.config.optimizer.grad_clip for member in members]
        self._limits = torch.tensor(
            [float("inf") if limit is None else limit for limit in limits],
            device=self._lead.device.torch_device,
        )
        device, sources = self._lead.device, len(self._lead.plan.sources)
        size = len(self.members)
        self._losses = torch.zeros(size, device=device.torch_device)
        self._by_source = torch.zeros((size, 2, sources), dtype=torch.float64, device=device.torch_device)
        self.passes = GraphedPasses(device, graphs_for(self._lead.config, device))

    def lrs(self) -> list[float]:
        """Learning rate of each member in the next step."""
        return [course.lr_at(self._lead.step) for course in self._courses]

    def release(self) -> None:
        """Give each member its own model again."""
        self.passes.release()
        self._optimizer.release()
        self.stack.release()

    def step(self) -> list[StepResult | Diverged]:
        """Take the next step of each member; returns its result, or the error that ends the member."""
        step = self._lead.step
        seeds = [step_seed(seed, step, 0) for seed in self._seeds] if drops(self._lead.config.arch) else None
        self.stack.begin_step(seeds)
        losses, by_source = self._backward()
        norms, of_each = clip_each(self.stack.gradients, self._limits)
        self.is_finite = (losses.isfinite() & norms.isfinite()).all()
        lrs = self.lrs()
        results = [
            self._prepared(number, step, StepResult(loss, norm, source, own_norms), lrs[number])
            for number, (loss, norm, source, own_norms) in enumerate(
                zip(losses, norms, by_source, of_each, strict=True)
            )
        ]
        moving = {
            number: lrs[number]
            for number, result in enumerate(results)
            if isinstance(result, StepResult) and not result.is_skipped
        }
        if moving:
            self._optimizer.step(moving)
        return results

    def _backward(self) -> tuple[torch.Tensor, Sequence[torch.Tensor | None]]:
        """Mean loss of each member over its step, fp32 (members,), and for a mixture the sums by source."""
        self._losses.zero_()
        self._by_source.zero_()
        for batch, divisors in self._batches():  # with graphs the divisor is a number, equal in each step
            self.passes.take(partial(self._add_gradients, divisors), batch)
        by_source = list(self._by_source.clone()) if self._lead.plan.sources else [None] * len(self.members)
        return self._losses.clone(), by_source

    def _add_gradients(self, divisors: float | torch.Tensor, batch: Batch) -> None:
        """Run forward and backward on a micro-batch of all members; add their losses."""
        import torch

        size, sources = len(self.members), len(self._lead.plan.sources)
        input_ids, labels, positions = batch["input_ids"], batch["labels"], batch.get("position_ids")
        of_tokens = torch.empty(labels.shape, device=labels.device) if sources else None
        reduction = "mean" if positions is None else "sum"
        with self._lead.device.autocast():
            losses = self.stack(input_ids, labels, positions, self._lead.loss_chunk, reduction, of_tokens)
        losses = losses / divisors
        losses.sum().backward()
        self._losses += losses.detach()
        if of_tokens is not None:
            of_members = of_tokens.chunk(size), labels.chunk(size), batch["source"].chunk(size)
            for own, losses_of, labels_of, source_of in zip(self._by_source, *of_members, strict=True):
                own += sums_by_source(losses_of, labels_of, source_of, sources)

    def _batches(self) -> Iterator[tuple[Batch, float | torch.Tensor]]:
        """Micro-batches of the step, rows of all members concatenated, with the divisors of their losses.

        Means are divided by the number of micro-batches. If labels are left out, losses are sums, divided by
        the labels of the whole step.
        """
        import torch

        accumulation, device = self._lead.plan.budget.accumulation, self._lead.device

        def following() -> Batch:
            each = [next(member.batches) for member in self.members]
            # Shifted windows are (micro_batch, seq_len // shift, shift), and the shift differs by member;
            # the models read them flat.
            flat = {"input_ids", "labels"}
            return {
                name: torch.cat([batch[name].flatten(1) if name in flat else batch[name] for batch in each])
                for name in each[0]
                if each[0][name].ndim
            }

        first = following()
        if "position_ids" not in first:
            yield first, float(accumulation)
            for _ in range(accumulation - 1):
                yield following(), float(accumulation)
            return
        step = [first, *(following() for _ in range(accumulation - 1))]
        counts = sum((batch["labels"] != IGNORED_LABEL).view(len(self.members), -1).sum(1) for batch in step)
        assert isinstance(counts, torch.Tensor)
        for batch in step:
            yield batch, device.put(counts.clamp(min=1))

    def _prepared(self, number: int, step: int, result: StepResult, lr: float) -> StepResult | Diverged:
        member = self.members[number]
        try:
            with about(member.run.folder.name):
                return member.step.prepare(result, lr, step)
        except Diverged as error:
            return error
