"""`python -m memory report RUN`: by stage, over time, by process; as text, JSON, PNG and one HTML page."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from experiment_utils.arguments import find_run
from experiment_utils.errors import UserError

_EXAMPLES = """examples:
  python -m memory report runs/default/32d-lr0.003-seed0-1a2b3c4d
  python -m memory report 1a2b3c4d --html          the beginning of its identity is enough
  python -m memory report RUN --html --png --output ~/figures
  python -m memory report RUN --json | jq '.attempts[-1].tracks[0].peak'
"""


def add_parser(subparsers: Any) -> None:
    """`report`."""
    parser = subparsers.add_parser(
        "report",
        help="memory of a run by stage, over time, by process; --html for a page, --png for a picture",
        description="Memory of a run, or of a command under `memory run`, whatever state it is in.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run_name", metavar="RUN", help="folder, name under the runs, or beginning of the identity"
    )
    parser.add_argument("--html", action="store_true", help="write memory.html, one self-contained page")
    parser.add_argument(
        "--png",
        action="store_true",
        help="write memory.png for a paper, and by process and rank where there are several",
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--attempt", type=int, help="the attempt to tell; the last one by default")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where files go; the run's folder by default"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report, and write what was asked for."""
    from memory.report.history import read_history
    from memory.report.summary import summary
    from memory.report.terminal import lines_of

    folder = find_run(options.run_name)
    history = read_history(folder)
    chosen = history.last
    if options.attempt is not None:
        numbers = [attempt.number for attempt in history.attempts]
        if options.attempt not in numbers:
            raise UserError(
                f"--attempt {options.attempt}: expected one of {', '.join(map(str, numbers))}",
                code="no-such-attempt",
            )
        chosen = history.attempts[numbers.index(options.attempt)]
    written = write_files(options, folder, history, chosen)
    if options.json:
        print(json.dumps(summary(history) | {"written": [str(path) for path in written]}, indent=2))
        return 0
    print("\n".join(lines_of(history, attempt=chosen)))
    print()
    for path in written:
        print(f"wrote {path}")
    shown = shlex.quote(options.run_name)
    if not options.html:
        print(f"next: python -m memory report {shown} --html   (one page to look at)")
    else:
        print(f"next: python -m memory explain {shown}")
    return 0


def write_files(options: argparse.Namespace, folder: Path, history: Any, chosen: Any) -> list[Path]:
    """The page and the picture, as far as they were asked for."""
    from memory.report.files import write_into
    from memory.report.html import page_of

    target = folder if options.output is None else options.output
    written = []
    if options.html:
        page = page_of(history, command=f"python -m memory report {shlex.quote(options.run_name)} --html")
        written.append(write_into(target, "memory.html", page.encode()))
    if options.png:
        from memory.report.figure import picture
        from memory.report.small_figures import pictures

        drawn = {"memory.png": picture(history, chosen)} | pictures(history, chosen)
        written += [write_into(target, name, content) for name, content in drawn.items()]
    return written
