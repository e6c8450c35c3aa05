"""`python -m analysis COMMAND`: from run folders to answers. `python -m analysis STUDY` is its page."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from experiment_utils.exit_status import exit_status

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


def parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """What a user may type, of these commands."""
    result = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Which run is best, how loss scales, what to run next, whether to trust it. Without a "
        "command: `page`, the table of a study's runs as a sweep ends with it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = result.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        module = importlib.import_module(f"analysis.commands.{name.replace('-', '_')}")
        module.add_parser(subparsers)
    return result


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    return exit_status(lambda: _main(given))


def _main(given: list[str]) -> int:
    if given and given[0] not in (*COMMANDS, "-h", "--help"):
        given = ["page", *given]
    only = [name for name in given[:1] if name in COMMANDS]  # the others need not be loaded for it
    options = parser(only or COMMANDS).parse_args(given)
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
