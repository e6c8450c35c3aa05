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

EXIT_STATUS = "exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted"


def run_room(
    room: str,
    names: Sequence[str],
    given: Sequence[str],
    parse: Callable[..., argparse.Namespace] = argparse.ArgumentParser.parse_args,
    **texts: Any,
) -> int:
    """Run a command of a room and return its exit status. The modules of others are not loaded for it.

    texts: more arguments of `ArgumentParser`.
    """

    def command() -> int:
        parser = argparse.ArgumentParser(prog=f"python -m {room}", **{"epilog": EXIT_STATUS, **texts})
        subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
        for name in [name for name in given[:1] if name in names] or names:
            module = module_name(f"{room}.commands.{name.replace('-', '_')}")
            importlib.import_module(module).add_parser(subparsers)
        options = parse(parser, given)
        return int(options.run(options))

    return exit_status(command)
