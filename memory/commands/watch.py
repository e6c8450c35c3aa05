"""`python -m memory watch [RUN | --pid N | --job ID]`: memory as it is now, until the run ends."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from experiment_utils.arguments import find_run, root_of
from experiment_utils.display import can_rewrite
from experiment_utils.errors import UserError
from experiment_utils.typed_here import wrap
from memory.show.find_live import running
from memory.show.screen import draw
from memory.show.watch_lines import line, to_json, watch_screen
from memory.show.watch_view import Source, View, watch_job, watch_process, watch_run

if TYPE_CHECKING:
    from rich.text import Text

EXAMPLES = """\
examples:
  python -m memory watch                         # the newest of your runs that run, else this Slurm job
  python -m memory watch 1a2b3c4d                # a run, on whatever node: its folder alone is read
  python -m memory watch --pid 4242              # any process with its children, on this host
  srun --overlap --jobid=77 python -m memory watch --job 77
  python -m memory watch mem --once --json       # one answer, for a script

In a terminal the screen is refreshed; elsewhere, and with NO_COLOR, each look is a line."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "watch",
        help="memory of a run, a process or a job, live",
        description="Memory of a run, a process or a job as it is now, until it ends: what cannot be given "
        "back against the limit, its parts, the processes, the stage, how fast it grows.",
        epilog=EXAMPLES,
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
    """Look until the run ends or the user has seen enough.

    Raises:
        UserError: there is no such run, process or job here.
    """
    if not 0.05 <= options.interval <= 3600:
        raise UserError(
            f"--interval {options.interval:g}: expected 0.05 to 3600 seconds", code="bad-interval"
        )
    source, folder = _source(options)
    view = source()
    if view.sample is None and view.ended is not None:
        raise UserError(view.ended, code="nothing-to-watch")
    is_plain = options.once or options.json or os.environ.get("NO_COLOR") or not can_rewrite(sys.stdout)
    if is_plain:
        view = _look(source, view, options, _print_json if options.json else _print)
    else:
        from rich.live import Live

        with Live(auto_refresh=False, vertical_overflow="crop") as live:
            view = _look(source, view, options, lambda one: live.update(_text(one), refresh=True))
    if view.ended is not None and not options.json:
        print(view.ended, flush=True)
        if folder:
            print(f"Why, or how near it came: python -m memory explain {shlex.quote(folder)}", flush=True)
    return 0


def _source(options: argparse.Namespace) -> tuple[Source, str | None]:
    """The source, and the folder of the run if it is one."""
    if options.pid is not None:
        return watch_process(options.pid), None
    if options.job is not None:
        return watch_job(options.job), None
    if options.run_folder is not None:
        folder = find_run(options.run_folder)
        return watch_run(folder), str(folder)
    found = running()
    if found:
        more = "" if len(found) == 1 else f", the newest of {len(found)} that run"
        print(f"watching {shlex.quote(str(found[0]))}{more}", file=sys.stderr)
        return watch_run(found[0]), str(found[0])
    job = os.environ.get("SLURM_JOB_ID")
    if job:
        print(f"no run of yours runs under {root_of()}: watching this job, {job}", file=sys.stderr)
        return watch_job(job), None
    raise UserError(
        f"no run of yours runs under {root_of()}, and this is no Slurm job: "
        "expected RUN, --pid N or --job ID",
        code="no-run-to-watch",
    )


def _look(source: Source, view: View, options: argparse.Namespace, show: Callable[[View], None]) -> View:
    """Show each view until the end; returns the last."""
    show(view)
    while view.ended is None and not options.once:
        time.sleep(options.interval)
        view = source()
        show(view)
    return view


def _print(view: View) -> None:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    print("\n".join(wrap(line(view), columns, subsequent_indent="    ")), flush=True)


def _print_json(view: View) -> None:
    print(json.dumps(to_json(view), ensure_ascii=False), flush=True)


def _text(view: View) -> Text:
    from rich.text import Text

    columns, height = shutil.get_terminal_size()
    drawn = draw(watch_screen(view), columns=columns, height=height - 1)
    return Text("\n").join(Text(text, style) for text, style in drawn)
