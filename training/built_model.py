"""Counts of a plan, which are formulas, compared with the model that is built, as an attempt begins."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiment_utils.errors import UserError
from experiment_utils.quantities import format_count
from models.counts import BACKWARD_OVER_FORWARD
from training.attempt.code_version import code_version
from training.attempt.run_files import update_run
from training.optimizer_state import checkpoint_bytes
from training.plan import max_positions

if TYPE_CHECKING:
    from models import LanguageModel
    from training.loop import Run

log = logging.getLogger("training")

_FLOPS_APART = 0.01
"""Largest relative difference of the formula from torch's counter, which sees small products besides."""

DESCRIBED = "eccd2273cd633da0"
"""`hash_of_models()` of the code that the formulas describe. A test holds it, and says its new value."""


@dataclass(frozen=True)
class Counts:
    """Facts of a model that scaling laws and tables are made of."""

    parameters: int
    non_embedding: int
    """Numbers in the matrices of the blocks."""
    flops_per_token: float
    """Of one training step, forward and backward."""


def check_counts(run: Run, model: LanguageModel) -> None:
    """Compare the plan's counts with the model; another model's own counts replace those of the plan.

    Raises:
        UserError: they differ, and the model is of unedited code: a formula is wrong.
    """
    plan = run.plan
    planned = Counts(plan.parameters, plan.non_embedding, plan.flops_per_token)
    built = counts_of(model, run.config.training.seq_len, planned)
    if _agree(planned, built):
        return
    found = "; ".join(
        f"{name.replace('_', ' ')} {format_count(is_now)}, by the formula {format_count(was)}"
        for name, is_now in vars(built).items()
        if (was := getattr(planned, name)) != is_now
    )
    if _is_ours(model):
        raise UserError(
            f"models/counts.py does not describe the model that models/ builds: {found}. Correct the "
            "formula, which plans, memory estimates and tables go by"
        )
    log.warning(
        "the model is not that of the formulas in models/counts.py: %s. run.json, metrics.csv and tables "
        "have the counts of the model. The plan%s went by the formulas",
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
    """Those of a model. What torch cannot count on shapes alone, as of experts, is taken from `planned`."""
    flops = _flops_per_token(model, seq_len)
    return Counts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        non_embedding=sum(matrix.numel() for matrix in model.blocks.parameters() if matrix.ndim >= 2),
        flops_per_token=planned.flops_per_token if flops is None else flops,
    )


def _flops_per_token(model: LanguageModel, seq_len: int) -> float | None:
    """Of a forward and a backward pass over a window, counted on shapes alone; None if that is impossible."""
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


def _agree(planned: Counts, built: Counts) -> bool:
    return (planned.parameters, planned.non_embedding) == (built.parameters, built.non_embedding) and (
        math.isclose(planned.flops_per_token, built.flops_per_token, rel_tol=_FLOPS_APART)
    )


def _is_ours(model: LanguageModel) -> bool:
    """Whether it is built by models/ as the formulas describe it; a user's edits may be committed ones."""
    packages = {type(module).__module__.partition(".")[0] for module in model.modules()}
    return packages <= {"models", "torch"} and hash_of_models() == DESCRIBED


def hash_of_models() -> str:
    """Of the code in models/, the formulas left out."""
    files = code_version().files
    found = {path: files[path] for path in files if path.startswith("models/") and path != "models/counts.py"}
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:16]
