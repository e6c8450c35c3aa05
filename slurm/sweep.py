"""A sweep through Hydra, so that any sweeper and launcher of it can be chosen."""

from __future__ import annotations

from collections.abc import Iterable

from conf import UserError
from conf.compose import Composer
from conf.hydra_parts import first_line, prepare_hydra, search_path
from conf.request import Request
from conf.rules import Rule
from slurm.local import Interrupted, LocalRuns, RunFailed


def run_sweep(
    request: Request, composer: Composer, rules: Iterable[Rule], *, quiet: bool = False
) -> LocalRuns:
    """Hand the checked request to Hydra's sweeper and launcher; returns when all runs have ended.

    Raises:
        UserError: what is wrong with a run in view of its data, or what Hydra says of its own part.
    """
    from hydra._internal.hydra import Hydra
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException

    prepare_hydra()
    runs = LocalRuns(request, composer, rules, quiet=quiet)
    hydra = Hydra.create_main_hydra2("experiments", search_path(composer.config_dir))
    try:
        hydra.multirun(composer.config_name, task_function=runs, overrides=request.arguments)
    except Interrupted as stopped:
        runs.interrupted = stopped
    except RunFailed:
        pass  # a sweeper that wants every result gave up; `outcomes` tell the rest
    except HydraException as error:
        raise UserError(first_line(error)) from error
    finally:
        GlobalHydra.instance().clear()
    return runs
