"""Rollback after a spike (`training.on_spike=rollback`): weights of the last point, later batches.

Points are the steps that are multiples of `training.rollback_every`, and those with an evaluation, so that no
evaluation is ever undone. Each has a checkpoint on the disk, which is kept until the next point, and which a
rollback reads. A copy in memory would be lost with the process, and a killed run would then continue
differently from an undisturbed one.

The count of steps never decreases. The updates of the steps since the point are undone, and the next step
reads the batch after the spike, as if all of them had been left out. Their rows stay in metrics.csv, and
`rollbacks.jsonl` lists them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from experiment_utils import atomic_files
from training.attempt.run_files import RUN_FOLDER_VERSION
from training.checkpoint.checkpoints import CorruptError
from training.step.spike_guard import Diverged, RollbackGuard

if TYPE_CHECKING:
    import torch

    from models import LanguageModel
    from training.checkpoint.async_writer import BackgroundCheckpoints
    from training.checkpoint.checkpoints import Checkpoints
    from training.run.loop import Run

log = logging.getLogger("training")

FILE = "rollbacks.jsonl"


def note_point(run: Run) -> None:
    """Make this step the rollback point, if it is due and was not refused."""
    guard = run.guard
    if not isinstance(guard, RollbackGuard) or guard.refused_step == run.step:
        return
    if run.step % run.config.training.rollback_every == 0 or run.step in run.plan.evaluations:
        guard.reach(run.step)


def goes_back(run: Run) -> bool:
    """Whether the last step requests a rollback."""
    return isinstance(run.guard, RollbackGuard) and run.guard.asked is not None


def roll_back(
    run: Run,
    saving: BackgroundCheckpoints,
    checkpoints: Checkpoints,
    model: LanguageModel,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Restore weights, moments, average and states of rows of the point; the data position stays.

    Raises:
        Diverged: the checkpoint of the point is missing or damaged.
        OSError: it could not be written.
    """
    from training.checkpoint.train_state import restore
    from training.report.metrics import append_records

    guard = run.guard
    assert isinstance(guard, RollbackGuard)
    assert guard.point is not None
    point, why = guard.point, guard.asked
    run.ranks.share(saving.wait)  # rank 0 writes what all of them read
    try:
        checkpoint = checkpoints.of_step(point)
    except CorruptError as error:
        raise Diverged(f"step {run.step:,}: {why}. There is no checkpoint to return to: {error}") from error
    restore(checkpoint, model, optimizer, None, run.average)
    if run.row_states is not None:
        run.row_states.load(checkpoint)
    guard.go_back(checkpoint.state["guard"], run.step)
    atomic_files.point("rollback:restored")
    if run.ranks.is_first:
        record = {
            "version": RUN_FOLDER_VERSION,
            "step": run.step,
            "to_step": point,
            "undone": [point + 1, run.step],
            "why": why,
        }
        append_records(run.folder / FILE, record)
    log.warning(
        "step %s: %s. Back to the weights of step %s, continuing with the batches after the spike",
        f"{run.step:,}",
        why,
        f"{point:,}",
    )
