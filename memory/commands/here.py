"""`python -m memory`: this machine and this job on one screen; `--pid N`: a process and its descendants."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time

from experiment_utils.errors import UserError
from memory.measure.process import read_process
from memory.record.stage_line import duration
from memory.show.here_screen import here_screen
from memory.show.machine_details import Details, read_details
from memory.show.screen import draw

EXAMPLES = """\
examples:
  python -m memory                 the limit that counts, what holds the memory, what is left
  python -m memory --pid 4711      the same of a process and its descendants
  python -m memory --json          all of it for a program; docs/memory.md explains each key
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command, which also runs without its name."""
    parser = subparsers.add_parser(
        "here",
        help="this machine and this job: limit, use, page cache, processes, GPUs (without a command: this)",
        description="Where the memory is now: the limit that counts, what cannot be given back, and which "
        "processes hold it.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--pid", type=int, metavar="N", help="a process and its descendants")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument(
        "--pss",
        action="store_true",
        default=None,
        help="resident memory with shared pages divided, also where that takes long (18 ms per GB mapped)",
    )
    parser.add_argument(
        "--all", action="store_true", help="every process, limit and file, not only what fits the terminal"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure and print.

    Raises:
        UserError: the process does not exist.
    """
    if options.pid is not None and read_process(options.pid) is None:
        raise UserError(
            f"--pid {options.pid}: no such process here. Expected the id of a living process, as in "
            "`ps -u $USER`; for one that has ended, type `python -m memory explain RUN`",
            code="no-such-process",
        )
    details = read_details(options.pid, pss=options.pss)
    if options.json:
        print(json.dumps(details.to_json(), indent=2))
        return 0
    columns, height = shutil.get_terminal_size() if sys.stdout.isatty() else (None, None)
    screen = here_screen(details, f"next: {_next(details, options.pid)}")
    # one line is left for the shell's prompt
    lines = draw(screen, columns=columns, height=height and height - 1, everything=options.all)
    print("\n".join(text for text, _ in lines))
    return 0


def _next(details: Details, pid: int | None) -> str:
    if pid is not None:
        return f"python -m memory watch --pid {pid}"
    if details.slurm is not None:
        end_s = details.slurm.end_time_s
        left = "" if end_s is None else f"   (it ends in {duration(max(0.0, end_s - time.time()))})"
        return f"python -m memory watch --job {details.slurm.id_on_node}{left}"
    return "python -m memory run --output DIR -- COMMAND"
