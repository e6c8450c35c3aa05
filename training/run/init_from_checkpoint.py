"""Begin a run from another run's checkpoint instead of initial weights."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from experiment_utils import atomic_files
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted
from training.attempt.run_files import update_run
from training.checkpoint.checkpoints import Checkpoint, CorruptError, load
from training.checkpoint.train_state import restore_optimizer, resume, trained_weights
from training.distributed.parallel import like
from training.step.weight_average import average_of

if TYPE_CHECKING:
    from data_loading import Loader, StreamLoader
    from models import LanguageModel
    from training.distributed.loader import PartOfStream
    from training.plan.restore_source import Origin
    from training.run.loop import Run

log = logging.getLogger("training")
TAKEN_OVER = ("metrics.csv", "sources.csv", "evals.jsonl")


@dataclass(frozen=True)
class Matched:
    """Parameter names: same name and shape, only in the model, only in the checkpoint, other shape."""

    matched: list[str]
    missing: list[str]
    unexpected: list[str]
    other_shape: list[str]

    @property
    def is_whole(self) -> bool:
        return not (self.missing or self.unexpected or self.other_shape)

    def words(self) -> str:
        parts = [counted(len(self.matched), "parameter") + " alike"]
        for title, names in (
            ("of another shape", self.other_shape),
            ("not in the checkpoint", self.missing),
            ("not in the model", self.unexpected),
        ):
            if names:
                more = f" and {len(names) - 6} more" if len(names) > 6 else ""
                parts.append(f"{len(names)} {title}: {', '.join(names[:6])}{more}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        return {
            "matched": len(self.matched),
            "missing": self.missing,
            "unexpected": self.unexpected,
            "other_shape": self.other_shape,
        }


def matched(model: LanguageModel, weights: dict[str, torch.Tensor]) -> Matched:
    """Compare the parameters of a model with those of a checkpoint."""
    own = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    saved = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    both = [name for name in own if name in saved]
    return Matched(
        [name for name in both if own[name] == saved[name]],
        [name for name in own if name not in saved],
        [name for name in saved if name not in own],
        [f"{name} {saved[name]} -> {own[name]}" for name in both if own[name] != saved[name]],
    )


def begin(
    run: Run,
    origin: Origin,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
    loader: Loader | StreamLoader | PartOfStream,
) -> None:
    """Load what restore.what names; log the matching parameters and record them in run.json.

    Raises:
        UserError: the checkpoint is missing or damaged, is not the one of the plan, or has other parameters
            with restore.strict=true.
    """
    try:
        checkpoint = load(Path(origin.checkpoint))
    except CorruptError as error:
        raise UserError(
            Problem("restore.from", f"{origin.checkpoint} can no longer be read: {error}")
        ) from error
    found = matched(model, checkpoint.weights)
    if not found.is_whole and run.config.restore.strict:
        weights = "" if origin.what == "weights" else "restore.what=weights "
        how = f"To take what is alike: {weights}restore.strict=false"
        raise UserError(Problem("restore.from", f"it is of another model: {found.words()}. {how}"))
    if origin.what == "run":
        resume(run, checkpoint, model, optimizer, loader)
        _take_over(run, Path(origin.checkpoint).parents[1])
    else:
        _begin_at_step_0(run, origin, checkpoint, found, model, optimizer)
    log.info("beginning with %s: %s", origin.line(), found.words())
    if run.ranks.is_first:
        restored = {**vars(origin), **found.to_json()}
        update_run(run.folder, restored=restored)


def _begin_at_step_0(
    run: Run,
    origin: Origin,
    checkpoint: Checkpoint,
    found: Matched,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Load the evaluated weights, or with the optimizer's moments the trained ones; steps count from 0."""
    weights = checkpoint.weights if origin.what == "weights" else trained_weights(checkpoint)
    now = model.state_dict()
    model.load_state_dict({**now, **{name: like(weights[name], now[name]) for name in found.matched}})
    if origin.what == "optimizer":
        restore_optimizer(checkpoint, optimizer)
    run.average = average_of(model, optimizer, run.config)


def _take_over(run: Run, trunk: Path) -> None:
    """Copy the records of a branch's earlier steps; opening the files removes later rows."""
    if not run.ranks.is_first:
        return
    for name in TAKEN_OVER:
        if (trunk / name).is_file():
            atomic_files.write_text(run.folder / name, (trunk / name).read_text(encoding="utf-8"))
