"""`python -m memory report RUN`: by stage, over time, by process; as text, JSON, PNG and one HTML page."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from experiment_utils.arguments import find_run
from experiment_utils.atomic_files import write_bytes
from experiment_utils.errors import UserError

_EXAMPLES = """examples:
  python -m memory report runs/default/32d-lr0.003-seed0-1a2b3c4d
  python -m memory report 1a2b3c4d --html          the beginning of its identity is enough
  python -m memory report RUN --html --png --output ~/figures
  python -m memory report RUN --json | jq '.attempts[-1].tracks[0].peak'
"""


def add_parser(subparsers: Any) -> None:
    """Add the command `report`."""
    parser = subparsers.add_parser(
        "report",
        help="memory of a run by stage, over time, by process; --html for a page, --png for a picture",
        description="Memory of a run, or of a command under `memory run`, whatever state it is in.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "run_name", metavar="RUN", help="folder, name under the runs, or beginning of the identity"
    )
    parser.add_argument("--html", action="store_true", help="write memory.html, one self-contained page")
    parser.add_argument(
        "--png", action="store_true", help="write memory.png, and by process and rank if there are several"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--attempt", type=int, help="number of the attempt; the last one by default")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="folder for files; the run's folder by default"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report, and write the files that the options ask for."""
    from memory.report.data.history import read_history
    from memory.report.data.run_json import run_json
    from memory.report.plain_text import encodable
    from memory.report.run_report import lines_of, page_of, pictures

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
    shown, target = shlex.quote(options.run_name), folder if options.output is None else options.output
    files: dict[str, bytes] = {}
    if options.html:
        files["memory.html"] = page_of(history, command=f"python -m memory report {shown} --html").encode()
    if options.png:
        files |= pictures(history, chosen)
    written = [write_into(target, name, content) for name, content in files.items()]
    if options.json:
        print(json.dumps(run_json(history) | {"written": [str(path) for path in written]}, indent=2))
        return 0
    print(encodable("\n".join(lines_of(history, chosen)), sys.stdout.encoding), end="\n\n")
    for path in written:
        print(f"wrote {path}")
    print(f"next: python -m memory {'explain ' + shown if options.html else f'report {shown} --html'}")
    return 0


def write_into(folder: Path, name: str, content: bytes) -> Path:
    """Write a file into a folder, which is made if it does not exist.

    Raises:
        UserError: it cannot be written.
    """
    path = folder.expanduser() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(str(path), content)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Write it elsewhere with --output FOLDER",
            code="output-not-writable",
        ) from error
    return path
