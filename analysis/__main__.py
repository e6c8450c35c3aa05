"""`python -m analysis COMMAND`: from run folders to answers. `python -m analysis STUDY` is its page."""

from __future__ import annotations

import sys

from experiment_utils.room_command import run_room

COMMANDS: tuple[str, ...] = (
    "page",
    "table",
    "fit",
    "best-lr",
    "compare",
    "curves",
    "memory",
    "report",
    "live",
    "export",
    "stale",
)
"""Each is a module of analysis/commands with `add_parser(subparsers)`, which sets `run(options) -> int`."""

EPILOG = """\
examples:
  python -m analysis runs/lr_sweep
  python -m analysis table lr_sweep --where model=64d --sort val_loss
  python -m analysis report lr_sweep

STUDY is a path or a name below runs_dir; all but `page` also take a folder of CSVs of other programs.
exit status: 0 done, 1 our failure, 2 the input cannot be used, 130 interrupted"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given and given[0] not in (*COMMANDS, "-h", "--help"):
        given = ["page", *given]
    return run_room(
        "analysis",
        COMMANDS,
        given,
        description="Which run is best, how loss scales, what to run next, whether to trust it. Without a "
        "command: `page`, the table of a study's runs as a sweep ends with it.",
        epilog=EPILOG,
    )


if __name__ == "__main__":
    sys.exit(main())
