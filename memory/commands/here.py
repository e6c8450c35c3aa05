"""`python -m memory`: this machine and this job on one screen; `--pid N`: a process and its descendants."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time

from experiment_utils.errors import UserError
from memory.files.procfs import exists
from memory.record.stage_line import duration
from memory.show.here_lines import lines
from memory.show.machine_details import Details, read_details
from memory.show.screen import wrapped

EXAMPLES = """\
examples:
  python -m memory                 the limit that counts, what holds the memory, what is left
  python -m memory --pid 4711      the same of a process and its descendants
  python -m memory --json          all of it for a program; docs/memory-here.md explains each key
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """`here`; it is also what runs without a command."""
    parser = subparsers.add_parser(
        "here",
        help="this machine and this job: limit, use, page cache, processes, GPUs (without a command: this)",
        description="Where the memory is, now: the limit that counts and where it stands, what cannot be "
        "given back, and who holds it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pid", type=int, metavar="N", help="a process and its descendants")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the screen")
    parser.add_argument(
        "--pss",
        action="store_true",
        default=None,
        help="resident memory with shared pages divided, also where that takes long (18 ms per GB mapped)",
    )
    parser.add_argument(
        "--all", action="store_true", help="every process and every file, not the largest alone"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it. Raises UserError where there is no such process."""
    if options.pid is not None and not _lives(options.pid):
        raise UserError(
            f"--pid {options.pid}: no such process here. Expected the id of a living process, as in "
            "`ps -u $USER`; of one that has ended, ask `python -m memory explain RUN`",
            code="no-such-process",
        )
    details = read_details(options.pid, pss=options.pss)
    if options.json:
        print(json.dumps(details.to_json(), indent=2))
        return 0
    told = [*lines(details, every=options.all), "", f"next: {_next(details, options.pid)}"]
    if sys.stdout.isatty():
        columns = shutil.get_terminal_size().columns
        told = [short for line in told for short in wrapped(line, columns)]
    print("\n".join(told))
    return 0


def _lives(pid: int) -> bool:
    if exists("/proc/self"):
        return exists(f"/proc/{pid}")
    try:
        if pid > 0:  # others are groups of processes
            os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return pid > 0


def _next(details: Details, pid: int | None) -> str:
    if pid is not None:
        return f"python -m memory watch --pid {pid}"
    if details.slurm is not None:
        left = ""
        if details.slurm.end_time_s is not None:
            left = f"   (it ends in {duration(max(0.0, details.slurm.end_time_s - time.time()))})"
        return f"python -m memory watch --job {details.slurm.id_on_node}{left}"
    return "python -m memory run --output DIR -- COMMAND   (samples any command, and tells why it ended)"
