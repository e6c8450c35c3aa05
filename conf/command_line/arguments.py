"""The command line of `experiments.py`: flags apart from overrides, read before Hydra is imported."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn

from conf.schema import Config
from conf.suggestions import nearest
from experiment_utils.errors import Problem, UserError

CONFIG_NAME = "config"
SETTINGS = {field.name: field.type for field in fields(Config)}
"""Groups and keys at the top of the configuration, and their types."""
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


@dataclass(frozen=True)
class Arguments:
    """overrides: everything that is no flag. topics: what --help is asked about. to_hydra: the command
    is one of Hydra's own (--info, --hydra-help, ...) and goes to it as it stands."""

    overrides: list[str]
    multirun: bool
    json: bool
    help: bool
    topics: list[str]
    version: bool
    show: str | None
    package: str | None
    config_dir: Path | None
    config_name: str
    to_hydra: bool

    def command(self, overrides: list[str], *, multirun: bool) -> str:
        """The command that asks for these overrides, from the same files."""
        flags = ["-m"] if multirun else []
        if self.config_dir is not None:
            flags += ["--config-dir", str(self.config_dir)]
        if self.config_name != CONFIG_NAME:
            flags += ["--config-name", self.config_name]
        return shlex.join(["python", "experiments.py", *flags, *overrides])


def read_arguments(argv: list[str]) -> Arguments:
    """Split flags from overrides; they may stand in any order.

    Raises:
        UserError: a flag that there is not, or one without its value.
    """
    found = _parser().parse_intermixed_args(argv)
    asked = [argument.removesuffix("=?") for argument in found.overrides if argument.endswith("=?")]
    wants_help = found.help or bool(asked)
    topics = (
        [one.partition("=")[0].lstrip("+~") for one in found.overrides if not one.startswith("plugins=")]
        if found.help
        else asked
    )
    return Arguments(
        overrides=found.overrides,
        multirun=found.multirun,
        json=found.json,
        help=wants_help,
        topics=topics,
        version=found.version,
        show=found.cfg,
        package=found.package,
        config_dir=Path(found.config_dir) if found.config_dir else None,
        config_name=found.config_name or CONFIG_NAME,
        to_hydra=bool(
            found.hydra_help or found.shell_completion or found.info or found.cfg in ("hydra", "all")
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flags in (
        ("--help", "-h"),
        ("--version",),
        ("--json",),
        ("--multirun", "-m"),
        ("--run", "-r"),
        ("--resolve",),
        ("--hydra-help",),
        ("--shell-completion", "-sc"),
    ):
        parser.add_argument(*flags, action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=INFO)
    parser.add_argument("--package", "-p")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("overrides", nargs="*")
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown == message:
            raise UserError(message)
        flags = [flag for action in self._actions for flag in action.option_strings]
        raise UserError(
            *(
                Problem(argument, "no such flag" + _did_you_mean(argument, flags))
                for argument in unknown.split()
                if argument.startswith("-")
            )
        )


def _did_you_mean(argument: str, flags: list[str]) -> str:
    if "=" in argument:
        return f"; settings are written without dashes: {argument.lstrip('-')}"
    word = argument.lstrip("-")
    if word in SETTINGS:
        value = "true" if SETTINGS[word] == "bool" else "..."
        return f"; settings are written without dashes: {word}={value}"
    close = nearest(argument, flags, count=1)
    return f"; nearest: {close[0]}" if close else ""
