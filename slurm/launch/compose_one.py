"""The one run that a command line asks for, read as `experiments.py` reads it."""

from __future__ import annotations

from conf import Config
from experiment_utils.errors import UserError


def compose(argv: list[str]) -> Config:
    """The one configuration that is asked for, as `experiments.py` reads it.

    Raises:
        UserError: everything that is wrong with it; or it is a sweep.
    """
    from conf.between_keys.rules import RULES, Rule
    from conf.command_line.arguments import read_arguments
    from conf.command_line.request import read_request
    from conf.composing.compose import Composer
    from models.options.shape import shape_problems

    arguments = read_arguments(argv)
    if arguments.multirun:
        sweep = arguments.command(arguments.overrides, multirun=True)
        raise UserError(f"a sweep is submitted from a shell: {sweep} hydra/launcher=slurm")
    searchpath = [override for override in arguments.overrides if override.startswith("hydra.searchpath=")]
    shapes = Rule(("model", "arch"), lambda config: shape_problems(config.model, config.arch))
    request = read_request(
        arguments.overrides,
        Composer(arguments.config_dir, arguments.config_name, searchpath),
        multirun=False,
        rules=(*RULES, shapes),
        command=arguments.command(arguments.overrides, multirun=True),
    )
    return request.runs[0].config
