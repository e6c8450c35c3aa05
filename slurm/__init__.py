"""Starting runs: on this machine, each in a process of its own.

    experiments.py --one run--> local.run_one --> core.py RUN_FOLDER
                   --sweep----> sweep.run_sweep --Hydra--> hydra_plugins --> local.LocalRuns --> core.py ...

Importing the package loads neither Hydra nor torch.
"""

from slurm.local import LocalRuns, Outcome, run_one
from slurm.sweep import run_sweep

__all__ = ["LocalRuns", "Outcome", "run_one", "run_sweep"]
