"""Compare the counts of a plan, which are formulas, with the model that is built.

The tests hold the formulas for every model in `models/`. A difference is therefore a model that a user
changed or added.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiment_utils.quantities import format_count
from models.options.counts import BACKWARD_OVER_FORWARD
from models.options.family_keys import is_own
from training.attempt.run_files import update_run
from training.plan.optimizer_memory import checkpoint_bytes
from training.plan.run_plan import max_positions

if TYPE_CHECKING:
    from models import LanguageModel
    from training.run.loop import Run

log = logging.getLogger("training")

FLOPS_TOLERANCE = 0.01
"""Largest relative difference of the formula from torch's counter, which counts small products too."""


@dataclass(frozen=True)
class Counts:
    """Counts of a model that scaling laws and tables use."""

    parameters: int
    non_embedding: int
    """Parameters in the matrices of the blocks."""
    flops_per_token: float
    """FLOPs of one training step, forward and backward, per token."""


def check_counts(run: Run, model: LanguageModel) -> None:
    """Compare the plan's counts with the model. If they differ, log it and use the counts of the model."""
    plan = run.plan
    if is_own(run.config.arch):  # its counts are of the model
        return
    planned = Counts(plan.parameters, plan.non_embedding, plan.flops_per_token)
    built = counts_of(model, run.config.training.seq_len, planned)
    if built == planned:
        return
    found = "; ".join(
        f"{name.replace('_', ' ')} {format_count(is_now)}, by the formula {format_count(was)}"
        for name, is_now in vars(built).items()
        if (was := getattr(planned, name)) != is_now
    )
    log.warning(
        "the model is not that of the formulas in models/options/counts.py: %s. run.json, metrics.csv and "
        "tables have the counts of the model. The plan%s went by the formulas",
        found,
        " and its memory estimate"
        if run.config.training.tokens_per_param is None
        else ", its memory estimate and its budget (training.tokens_per_param)",
    )
    size = checkpoint_bytes(
        run.config, plan.vocab_size, max_positions(run.config.arch, run.config.training.seq_len),
        total=built.parameters, non_embedding=built.non_embedding,
    )  # fmt: skip
    run.plan = dataclasses.replace(plan, **vars(built), checkpoint_bytes=size)
    if run.ranks.is_first:
        update_run(run.folder, **vars(built), total_flops=run.plan.total_flops, checkpoint_bytes=size)


def counts_of(model: LanguageModel, seq_len: int, planned: Counts) -> Counts:
    """Counts of a built model.

    FLOPs are counted only if the number of parameters is not the planned one, or a module is from outside
    `models/` and torch: counting imports 800 modules of torch (3 s, 70 MB). Otherwise the planned ones are
    returned, also if the count is within 1% of them or fails, as it does for experts and recurrent layers.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    non_embedding = sum(matrix.numel() for matrix in model.blocks.parameters() if matrix.ndim >= 2)
    flops = planned.flops_per_token
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    if (parameters, non_embedding) != (planned.parameters, planned.non_embedding) or (
        packages - {"models", "torch"}
    ):
        counted = count_flops_per_token(model, seq_len)
        if counted is not None and not math.isclose(counted, flops, rel_tol=FLOPS_TOLERANCE):
            flops = counted
    return Counts(parameters, non_embedding, flops)


def count_flops_per_token(model: LanguageModel, seq_len: int) -> float | None:
    """FLOPs per token of a forward and a backward pass over one window, counted by torch on shapes alone.

    Returns:
        None if the model cannot run on shapes alone.
    """
    import torch
    from torch.func import functional_call
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    shapes = {name: tensor.to("meta") for name, tensor in (*model.named_parameters(), *model.named_buffers())}
    ids = torch.zeros((1, seq_len), dtype=torch.int64, device="meta")
    was_training = model.training
    model.eval()  # what is dropped would be drawn
    counter = FlopCounterMode(display=False)
    try:
        # Attention as products that the counter knows.
        with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):
            functional_call(model, shapes, (ids,), tie_weights=True)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    finally:
        model.train(was_training)
    return (1 + BACKWARD_OVER_FORWARD) * counter.get_total_flops() / seq_len
