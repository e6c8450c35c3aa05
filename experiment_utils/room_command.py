"""`python -m ROOM COMMAND`: the commands of a room are the modules of ROOM/commands.

Each has `add_parser(subparsers)`, which sets `run(options) -> int`.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from experiment_utils.exit_status import exit_status
from experiment_utils.modules import module_name
from experiment_utils.typed_here import wrap


class Parser(argparse.ArgumentParser):
    """A parser whose help fits the terminal: paragraphs are filled, examples and tables stay as they are."""

    def __init__(self, *names: Any, **options: Any) -> None:
        super().__init__(*names, **{"formatter_class": _Help, **options})


class _Help(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = list[str]()
        for line in text.splitlines():
            is_prose = line and not line.startswith((" ", "exit status"))
            if is_prose and lines and lines[-1] and not lines[-1].startswith(" "):
                lines[-1] += f" {line}"
            else:
                lines.append(line)
        return "\n".join(
            indent + part
            for line in lines
            for part in ([line] if line.startswith(" ") else wrap(line, width) or [""])
        )


EXIT_STATUS = "exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted"


def run_room(
    room: str,
    names: Sequence[str],
    given: Sequence[str],
    parse: Callable[..., argparse.Namespace] = argparse.ArgumentParser.parse_args,
    **texts: Any,
) -> int:
    """Run a command of a room and return its exit status. The modules of others are not loaded for it.

    texts: more arguments of `Parser`.
    """

    def command() -> int:
        parser = Parser(prog=f"python -m {room}", **{"epilog": EXIT_STATUS, **texts})
        subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
        for name in [name for name in given[:1] if name in names] or names:
            module = module_name(f"{room}.commands.{name.replace('-', '_')}")
            importlib.import_module(module).add_parser(subparsers)
        options = parse(parser, given)
        return int(options.run(options))

    return exit_status(command)
