"""`python -m memory watch [RUN | --pid N | --job ID]`: memory as it is now, until the run ends."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import time
from importlib.util import find_spec
from typing import Any

from experiment_utils.arguments import find_run, root_of
from experiment_utils.errors import UserError
from memory.show import watch_lines
from memory.show.running_runs import running
from memory.show.watch_view import Source, View, of_job, of_process, of_run

EXAMPLES = """\
examples:
  python -m memory watch                         # the newest of your runs that run, else this Slurm job
  python -m memory watch 1a2b3c4d                # a run, on whatever node: its folder alone is read
  python -m memory watch --pid 4242              # any process with its children, on this host
  srun --overlap --jobid=77 python -m memory watch --job 77
  python -m memory watch mem --once --json       # one answer, for a script

In a terminal the picture moves; elsewhere, and with NO_COLOR, each look is a line."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "watch",
        help="memory of a run, a process or a job, live",
        description="Memory of a run, a process or a job as it is now, until it ends: what cannot be given "
        "back against the limit, its parts, the processes, the stage, how fast it grows.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "run_folder",
        nargs="?",
        metavar="RUN",
        help="path, name below runs_dir, or beginning of an identity; without any of these the newest of "
        "your runs that run, else this Slurm job",
    )
    what.add_argument("--pid", type=int, metavar="N", help="a process and its descendants")
    what.add_argument("--job", metavar="ID", help="a Slurm job's processes on this node")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between looks (1)")
    parser.add_argument("--once", action="store_true", help="one look")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Look until it ends, or somebody has seen enough.

    Raises:
        UserError: there is nothing of that name here.
    """
    if not 0.05 <= options.interval <= 3600:
        raise UserError(
            f"--interval {options.interval:g}: expected 0.05 to 3600 seconds", code="bad-interval"
        )
    source, folder = _source(options)
    first = source()
    if first.sample is None and first.ended is not None:
        raise UserError(f"{first.ended}: {_instead(options)}", code="nothing-to-watch")
    moves = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and not (options.once or options.json)
    last = (_moving if moves and _has_rich() else _lines)(source, first, options)
    if last.ended is not None and not options.json:
        print(last.ended, flush=True)
        if folder:
            print(f"Why, or how near it came: python -m memory explain {shlex.quote(folder)}", flush=True)
    return 0


def _source(options: argparse.Namespace) -> tuple[Source, str | None]:
    if options.pid is not None:
        return of_process(options.pid), None
    if options.job is not None:
        return of_job(options.job), None
    if options.run_folder is None:
        return _unnamed(options)
    folder = find_run(options.run_folder)
    return of_run(folder), str(folder)


def _unnamed(options: argparse.Namespace) -> tuple[Source, str | None]:
    """What is meant where nothing is named, told on standard error."""
    found = running()
    job = os.environ.get("SLURM_JOB_ID")
    if found:
        more = "" if len(found) == 1 else f", the newest of {len(found)} that run"
        print(f"watching {shlex.quote(str(found[0]))}{more}", file=sys.stderr)
        return of_run(found[0]), str(found[0])
    if job:
        print(f"no run of yours runs under {root_of()}: watching this job, {job}", file=sys.stderr)
        options.job = job  # what is said where it is not here
        return of_job(job), None
    raise UserError(
        f"no run of yours runs under {root_of()}, and this is no Slurm job: "
        "expected RUN, --pid N or --job ID",
        code="no-run-to-watch",
    )


def _instead(options: argparse.Namespace) -> str:
    if options.pid is not None:
        return "expected the number of a process that runs on this host, as ps shows it"
    if options.job is not None:
        again = f"srun --overlap --jobid={options.job} python -m memory watch --job {options.job}"
        return f"expected a job that runs on this node. On its node: {again}"
    return "expected a run with memory.supervise=true, the default, or one of `python -m memory run`"


def _has_rich() -> bool:
    return find_spec("rich") is not None


def _lines(source: Source, view: View, options: argparse.Namespace) -> View:
    while True:
        if options.json:
            print(json.dumps(watch_lines.to_json(view), ensure_ascii=False), flush=True)
        else:
            print(watch_lines.line(view), flush=True)
        if options.once or view.ended is not None:
            return view
        time.sleep(options.interval)
        view = source()


def _moving(source: Source, view: View, options: argparse.Namespace) -> View:
    from rich.live import Live

    live: Any
    with Live(watch_lines.drawing(view), auto_refresh=False) as live:
        while view.ended is None:
            time.sleep(options.interval)
            view = source()
            live.update(watch_lines.drawing(view), refresh=True)
    return view
