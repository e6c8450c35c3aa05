"""`python -m data_loading COMMAND`: what there is, what is in it, how fast it is read, copies of it."""

from __future__ import annotations

import argparse
import importlib
import sys

from experiment_utils.exit_status import exit_status

COMMANDS = ("list", "show", "materialize", "bench", "mirror")
"""Each is a module of data_loading/commands with `add_parser(subparsers)` and `run(arguments) -> int`."""


def parser() -> argparse.ArgumentParser:
    """What a user may type."""
    result = argparse.ArgumentParser(
        prog="python -m data_loading",
        description="Datasets: which there are, and what a run would read of one.",
        epilog="exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted",
    )
    subparsers = result.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"data_loading.commands.{name}").add_parser(subparsers)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return exit_status(lambda: _main(arguments))


def _main(arguments: list[str] | None) -> int:
    options = parser().parse_args(arguments)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
