"""`highwater.run`, `plan` and `sweep`: the commands of `python experiments.py` as functions.

They take the same overrides, print nothing but warnings, and return what the commands report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conf.command_line.arguments import read_arguments
from conf.command_line.request import Request, read_request
from conf.composing.compose import Composer
from experiment_utils.errors import UserError

if TYPE_CHECKING:
    from slurm.launch.outcome import Outcome
    from training.plan.run_plan import Plan


def run(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> Outcome:
    """Train one configuration in a process of its own and wait for it.

    Args:
        overrides: as typed: `["model=32d", "optimizer.lr=1e-3"]`.
        config_dir: folder with group files of your own.

    Returns:
        State, exit code, validation loss and folder of the run; a run that is finished is not run again.

    Raises:
        UserError: the configuration or its data cannot be used; names every problem.
    """
    from slurm.launch.work_through import run_one

    request, _ = _request(overrides, config_dir, multirun=False)
    return run_one(request.runs[0].config, quiet=True)


def plan(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> list[Plan]:
    """Plan every combination: the runs and what they cost. Nothing is run or tokenized.

    Returns:
        A plan for each run: `["model=32d,64d"]` gives two.

    Raises:
        UserError: as `run`.
    """
    from slurm.plans.sweep_plans import plan_all

    request, _ = _request(overrides, config_dir, multirun=True)
    return plan_all([one.config for one in request.runs], tokenize=False)


def sweep(overrides: Sequence[str], config_dir: str | Path | None = None) -> list[Outcome]:
    """Train every combination on this machine and wait for all.

    Args:
        overrides: `["model=32d,64d", "seed=0,1", "hydra.launcher.jobs=2"]`.

    Returns:
        The outcomes, in the order of the sweep.

    Raises:
        UserError: as `run`; also for a launcher that submits, which `python experiments.py` is for.
    """
    from slurm.launch.compose_one import all_rules
    from slurm.submit.sweep import submit_sweep

    request, composer = _request(overrides, config_dir, multirun=True)
    if request.launcher.submits:
        raise UserError("highwater.sweep runs on this machine: submit with `highwater sweep`")
    runs = submit_sweep(request, composer, all_rules(), quiet=True, command="highwater.sweep")
    return [runs.outcomes[folder] for folder in runs.folders]


def _request(
    overrides: Sequence[str], config_dir: str | Path | None, *, multirun: bool
) -> tuple[Request, Composer]:
    from slurm.launch.compose_one import all_rules

    flags = ["--config-dir", str(config_dir)] if config_dir is not None else []
    arguments = read_arguments([*flags, *overrides])
    composer = Composer(arguments.config_dir, arguments.config_name)
    request = read_request(
        arguments.overrides,
        composer,
        multirun=multirun,
        rules=all_rules(),
        command=arguments.command(arguments.overrides, multirun=multirun),
    )
    return request, composer
