"""Compose the one run that a command line asks for, by the rules of all rooms."""

from __future__ import annotations

from conf import Config
from conf.between_keys.rules import RULES, Rule
from experiment_utils.errors import UserError


def all_rules() -> tuple[Rule, ...]:
    """The rules of the configuration, with those that other rooms add."""
    from models.options.shape import shape_problems

    return (*RULES, Rule(("model", "arch"), lambda config: shape_problems(config.model, config.arch)))


def compose(argv: list[str]) -> Config:
    """The one configuration that is asked for, as `experiments.py` reads it.

    Raises:
        UserError: everything that is wrong with it; or it is a sweep.
    """
    from conf.command_line.arguments import read_arguments
    from conf.command_line.request import read_request
    from conf.composing.compose import Composer

    arguments = read_arguments(argv)
    command = arguments.command(arguments.overrides, multirun=True)
    if arguments.multirun:
        raise UserError(f"a sweep is submitted from a shell: {command} hydra/launcher=slurm")
    searchpath = [override for override in arguments.overrides if override.startswith("hydra.searchpath=")]
    composer = Composer(arguments.config_dir, arguments.config_name, searchpath)
    request = read_request(arguments.overrides, composer, multirun=False, rules=all_rules(), command=command)
    return request.runs[0].config
