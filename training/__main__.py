"""`python -m training COMMAND`: measure, sample from or export a trained model."""

from __future__ import annotations

import sys

from experiment_utils.room_command import run_room

COMMANDS = ("eval", "sample", "export")
"""Each is a module of training/commands with `add_parser(subparsers)`, which sets `run(options) -> int`."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    return run_room(
        "training",
        COMMANDS,
        given,
        description="Measure, sample from or export a trained model. RUN is a path, a name under runs_dir, "
        "or a unique beginning of an identity.",
    )


if __name__ == "__main__":
    sys.exit(main())
