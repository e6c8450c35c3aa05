"""`python -m memory COMMAND`: where the memory is, of this machine, a running job, or a run that died."""

from __future__ import annotations

import argparse
import importlib
import sys

from experiment_utils.exit_status import exit_status

COMMANDS: tuple[str, ...] = ("here", "run", "stacks", "watch", "explain", "attribute", "report", "compare")
"""Each is a module of memory/commands. Without a command: `here`."""


def parser() -> argparse.ArgumentParser:
    """What a user may type."""
    result = argparse.ArgumentParser(
        prog="python -m memory",
        description="Where the memory is, why a run died, and whether the next one fits. Without a command: "
        "`here`, whose options may be given at once (python -m memory --pid 4711).",
        epilog="exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted",
    )
    subparsers = result.add_subparsers(metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"memory.commands.{name}").add_parser(subparsers)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments = ["here", *arguments]

    def command() -> int:
        options = parser().parse_args(arguments)
        return int(options.run(options))

    return exit_status(command)


if __name__ == "__main__":
    sys.exit(main())
