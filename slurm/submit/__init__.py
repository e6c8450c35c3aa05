"""Submitting runs that outlive the command, and what is done with a submission afterwards.

    runs.SubmittedRuns --plans--> batch.submit --phases: intents on the disk--> send.send --> sbatch
                                       |                                  local_process: a process here
                                 reconciling: what a dead submitter left
    slurm.tokens ------tasks of a token set------> phases

Importing the package loads nothing: parts of it are run as programs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.submit.batch import Order, Submitted, submit
    from slurm.submit.phases import study_lock
    from slurm.submit.reconciling import reconcile
    from slurm.submit.runs import SubmittedRuns
    from slurm.submit.waiting import WaitInterrupted

__all__ = ["Order", "Submitted", "SubmittedRuns", "WaitInterrupted", "reconcile", "study_lock", "submit"]

_PLACES = {
    "Order": "batch",
    "Submitted": "batch",
    "SubmittedRuns": "runs",
    "WaitInterrupted": "waiting",
    "reconcile": "reconciling",
    "study_lock": "phases",
    "submit": "batch",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"slurm.submit.{_PLACES[name]}"), name)
