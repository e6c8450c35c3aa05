"""Outcomes of submitted runs, by the states of `slurm.status`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.json_values import at_path, is_number
from slurm.launch.outcome import Outcome
from slurm.status import study_states
from training.attempt.run_files import read_run

_EXIT_CODES = {"done": 0, "cancelled": 130}


def outcomes_of(study: Path, runs: Sequence[str]) -> list[Outcome]:
    """Outcomes of runs of a study, in their order; one squeue and one sacct for all of them."""
    found = study_states(study, folders=[study / run for run in runs])
    return [
        Outcome(
            entry.folder,
            _EXIT_CODES.get(entry.state, 1),
            entry.state,
            _val_loss(entry.folder) if entry.state == "done" else None,
            entry.reason,
            0.0,
        )
        for entry in found
    ]


def _val_loss(folder: Path) -> float | None:
    """Final validation loss, nats a token; None if it is not recorded."""
    try:
        found = at_path(read_run(folder), "results.val_loss")
    except UserError:
        return None
    return found if is_number(found) else None
