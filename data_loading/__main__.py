"""`python -m data_loading COMMAND`: which datasets exist, what is in one, copies of it."""

from __future__ import annotations

import sys

from experiment_utils.room_command import run_room

COMMANDS = ("list", "show", "materialize", "mirror")
"""Each is a module of data_loading/commands with `add_parser(subparsers)` and `run(arguments) -> int`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["bench"]:
        print("bench was removed: run `python benchmarks/loading.py` in a checkout instead", file=sys.stderr)
        return 2
    return run_room(
        "data_loading",
        COMMANDS,
        given,
        description="List, show, make and copy datasets.",
    )


if __name__ == "__main__":
    sys.exit(main())
