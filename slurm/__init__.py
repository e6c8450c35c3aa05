"""Starting runs, each in a process of its own: on this machine, or as jobs of Slurm.

    experiments.py --one run--> local.run_one --> core.py RUN_FOLDER
                   --sweep----> sweep.run_sweep --Hydra--> hydra_plugins --> local.LocalRuns --> core.py ...
                   --submit---> sweep.submit_sweep --Hydra--> submit.SubmittedRuns --> sbatch
    a job of Slurm ------------> in_job.start --> core.py RUN_FOLDER

    pretokenize_dataset.py --slurm--> tokens.command --> sbatch;  in_job.tokens --> pretokenize_dataset.py

Importing the package loads nothing: the process that stands beside each job's run is to stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slurm.local import LocalRuns, run_one
    from slurm.outcome import Outcome
    from slurm.sweep import run_sweep, submit_sweep

__all__ = ["LocalRuns", "Outcome", "run_one", "run_sweep", "submit_sweep"]

_PLACES = {
    "LocalRuns": "local",
    "Outcome": "outcome",
    "run_one": "local",
    "run_sweep": "sweep",
    "submit_sweep": "sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"slurm.{_PLACES[name]}"), name)
