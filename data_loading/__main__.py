"""`python -m data_loading COMMAND`: what a user may do with token sets from a shell."""

from __future__ import annotations

import argparse
import sys

from conf import UserError
from data_loading import mirror_command

COMMANDS = {"mirror": mirror_command}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m data_loading", description="Token sets from a shell.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        command.add_parser(subparsers)
    given = parser.parse_args(arguments)
    try:
        return COMMANDS[given.command].run(given)
    except UserError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: type the same command again to go on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
