"""`python -m training COMMAND`: what a trained model says, and how good it is, on any tokens."""

from __future__ import annotations

import argparse
import importlib
import sys

from experiment_utils.exit_status import exit_status

COMMANDS = ("eval", "sample", "export")
"""Each is a module of training/commands with `add_parser(subparsers)`, which sets `run(options) -> int`."""


def parser() -> argparse.ArgumentParser:
    """What a user may type."""
    result = argparse.ArgumentParser(
        prog="python -m training",
        description="What a trained model says, and how good it is. RUN is a path, a name under runs_dir, or "
        "a unique beginning of an identity.",
        epilog="exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted",
    )
    subparsers = result.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"training.commands.{name}").add_parser(subparsers)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    return exit_status(lambda: _main(sys.argv[1:] if arguments is None else arguments))


def _main(given: list[str]) -> int:
    options = parser().parse_args(given)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
