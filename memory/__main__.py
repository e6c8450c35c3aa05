"""`python -m memory COMMAND`: where the memory is, of this machine, a running job, or a run that died."""

from __future__ import annotations

import sys

from experiment_utils.room_command import run_room

COMMANDS: tuple[str, ...] = ("here", "run", "stacks", "watch", "explain", "attribute", "report", "compare")
"""Each is a module of memory/commands. Without a command: `here`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given or (given[0].startswith("-") and given[0] not in ("-h", "--help")):
        given = ["here", *given]
    return run_room(
        "memory",
        COMMANDS,
        given,
        description="Where the memory is, why a run died, and whether the next one fits. Without a command: "
        "`here`, whose options may be given at once (python -m memory --pid 4711).",
    )


if __name__ == "__main__":
    sys.exit(main())
