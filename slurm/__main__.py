"""`python -m slurm COMMAND`: what became of a study's runs, and what to do about it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from experiment_utils.room_command import run_room

COMMANDS: tuple[str, ...] = (
    "status",
    "watch",
    "why",
    "logs",
    "resubmit",
    "cancel",
    "clean",
    "doctor",
    "script",
)
"""Each is a module of slurm/commands with `add_parser(subparsers)`, which sets `run(options) -> int`."""


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
    return run_room(
        "slurm",
        COMMANDS,
        given or ["status"],
        _parsed,
        description="What became of a study's runs, on a cluster or on this machine; what to do about it. "
        "Without a command: `status`, of all studies.",
    )


if __name__ == "__main__":
    sys.exit(main())
