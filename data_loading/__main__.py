"""`python -m data_loading COMMAND`: what there is, what is in it, how fast it is read, copies of it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from conf import UserError

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
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UserError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
