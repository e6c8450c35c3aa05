"""`python -m slurm COMMAND`: what became of a study's runs, and what to do about it."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from experiment_utils.exit_status import exit_status

COMMANDS: tuple[str, ...] = ("status", "why", "logs", "resubmit", "cancel", "clean", "doctor", "script")
"""Each is a module of slurm/commands with `add_parser(subparsers)`, which sets `run(options) -> int`."""


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """What a user may type, of these commands."""
    result = argparse.ArgumentParser(
        prog="python -m slurm",
        description="What became of a study's runs, on a cluster or on this machine; what to do about it. "
        "Without a command: `status`, of all studies.",
        epilog="exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted",
    )
    subparsers = result.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        importlib.import_module(f"slurm.commands.{name}").add_parser(subparsers)
    return result


def _parsed(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.Namespace:
    """Words may stand behind flags too: argparse gathers those of one `*` in one place alone."""
    options, more = parser.parse_known_args(given)
    name = next((name for name in ("rest", "runs") if hasattr(options, name)), None)
    unknown = more if name is None else [word for word in more if word.startswith("-")]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if name is not None:
        getattr(options, name).extend(more)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    return exit_status(lambda: _main(given or ["status"]))


def _main(given: list[str]) -> int:
    only = [name for name in given[:1] if name in COMMANDS]  # the others need not be loaded for it
    options = _parsed(parser(only or COMMANDS), given)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
