"""Validation losses of the members of a stack, in one pass over the held-out windows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from data_loading.dataset.protocol import IGNORED_LABEL
from training.devices.device_batches import on_device
from training.evaluation.evaluate import Evaluation, HeldOut, evaluation_windows

if TYPE_CHECKING:
    from models.stacked import StackedModel
    from training.run.prepared_run import Started


def can_evaluate_together(members: Sequence[Started]) -> bool:
    """Whether one pass is faster and only losses are measured: other measurements inspect one model.

    On a CPU the members do not fit into its caches together: 8 runs of 32d took 1.6 times as long.
    """
    run = members[0].run
    training = run.config.training
    return run.device.kind != "cpu" and not (training.eval_by_position or training.dead_units)


def evaluate_together(members: Sequence[Started], stack: StackedModel) -> list[list[Evaluation]]:
    """Evaluate each member with its evaluated weights, which can be an average.

    Args:
        members: members of the stack, in its order.

    Returns:
        For each member, the evaluations of its held-out sets.
    """
    from training.step.weight_average import evaluated

    with ExitStack() as averaged:
        for member in members:
            averaged.enter_context(evaluated(member.model, member.run.average))
        by_set = [_evaluate(members, stack, one) for one in members[0].val_sets]
    return [list(of_member) for of_member in zip(*by_set, strict=True)]


def _evaluate(members: Sequence[Started], stack: StackedModel, held_out: HeldOut) -> list[Evaluation]:
    """Evaluate each member on one held-out set, with the numbers of `evaluate`."""
    import torch

    started, run = time.monotonic(), members[0].run
    dataset, device, training = held_out.dataset, run.device, run.config.training
    windows = evaluation_windows(len(dataset), training.eval_tokens, training.seq_len)
    table = None if held_out.bytes_per_id is None else torch.from_numpy(held_out.bytes_per_id)
    totals = torch.zeros(stack.size, dtype=torch.float64, device=device.torch_device)
    tokens, text_bytes, size = 0, 0, run.plan.budget.micro_batch
    stack.eval()
    with torch.no_grad(), device.autocast():
        for first in range(0, windows, size):
            batch = dataset.__getitems__(range(first, min(first + size, windows)))
            counted = batch["labels"] != IGNORED_LABEL
            tokens += int(counted.sum())
            if table is not None:
                text_bytes += int(table[batch["labels"][counted]].sum())
            of_all = {name: one.repeat(stack.size, 1) for name, one in on_device(batch, device).items()}
            positions = of_all.get("position_ids")
            losses = stack(of_all["input_ids"], of_all["labels"], positions, run.loss_chunk, "sum")
            totals += losses.double()
    stack.train()
    seconds = (time.monotonic() - started) / stack.size
    bytes_per_token = text_bytes / tokens if text_bytes else None
    return [Evaluation(total / tokens, tokens, seconds, bytes_per_token) for total in totals.tolist()]
