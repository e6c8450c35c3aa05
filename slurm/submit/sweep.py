"""A sweep through Hydra, so that any sweeper and launcher of it can be chosen."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable

from conf.between_keys.rules import Rule
from conf.command_line.request import Request
from conf.composing.compose import Composer
from conf.composing.hydra_setup import first_line, prepare_hydra, search_path
from experiment_utils.errors import UserError
from slurm.launch.hydra_task import RequestedRuns, RunFailed
from slurm.submit.foreground import Interrupted
from slurm.submit.submit_runs import SubmittedRuns


def submit_sweep(
    request: Request, composer: Composer, rules: Iterable[Rule], *, quiet: bool = False, command: str = ""
) -> SubmittedRuns:
    """Submit what was requested, one run or a sweep; in the foreground and with `wait=true` return when all
    of it has ended.

    command: as it was typed.

    Raises:
        UserError: what is wrong with a run; nothing was submitted.
        WaitInterrupted: Ctrl-C while waiting; the jobs go on.
    """
    runs = SubmittedRuns(request, composer, rules, quiet=quiet, command=command)
    try:
        if request.multirun:
            _hand_over(runs, request, composer)
        else:
            runs.launch(runs.job_overrides())
    except Interrupted as stopped:
        runs.stopped_with = stopped.exit_code
    runs.send_the_end()
    return runs


def _hand_over(runs: RequestedRuns, request: Request, composer: Composer) -> None:
    from hydra._internal.hydra import Hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    prepare_hydra(own_parts=True)
    hydra = Hydra.create_main_hydra2("experiments", search_path(composer.config_dir))
    try:
        hydra.multirun(composer.config_name, task_function=runs, overrides=request.arguments)
    except RunFailed:
        pass  # a sweeper that wants every result gave up; `outcomes` tell the rest
    except HydraException as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            traceback.print_exc()
        raise UserError(first_line(error)) from error
    finally:
        GlobalHydra.instance().clear()
