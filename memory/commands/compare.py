"""`python -m memory compare RUN_A RUN_B`: two runs stage by stage."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from experiment_utils.arguments import find_run
from memory.commands.report import write_into

_EXAMPLES = """examples:
  python -m memory compare 1a2b3c4d 5e6f7a8b
  python -m memory compare runs/default/A runs/default/B --html --output .
  python -m memory compare A B --json | jq '.stages[] | {path, after: .after_bytes.difference}'
"""


def add_parser(subparsers: Any) -> None:
    """Add the command `compare`."""
    parser = subparsers.add_parser(
        "compare",
        help="two runs stage by stage, with what differs in their configs",
        description="Memory of the last attempts of two runs, stage by stage, by part and by process.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "run_a", metavar="RUN_A", help="folder, name under the runs, or beginning of the identity"
    )
    parser.add_argument("run_b", metavar="RUN_B")
    parser.add_argument(
        "--html", action="store_true", help="write memory-compared.html, both on one time axis"
    )
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder for the page; the current one by default",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the comparison, and write the page if the options ask for it."""
    from memory.report.comparison_report import lines_of, page_of
    from memory.report.data.comparison import Comparison
    from memory.report.data.history import read_history

    found = Comparison(*(read_history(find_run(name)) for name in (options.run_a, options.run_b)))
    names = f"{shlex.quote(options.run_a)} {shlex.quote(options.run_b)}"
    written = []
    if options.html:
        page = page_of(found, command=f"python -m memory compare {names} --html")
        written.append(write_into(options.output, "memory-compared.html", page.encode()))
    if options.json:
        print(json.dumps(found.to_json() | {"written": [str(path) for path in written]}, indent=2))
        return 0
    print("\n".join(lines_of(found)), end="\n\n")
    for path in written:
        print(f"wrote {path}")
    next_command = (
        f"report {shlex.quote(options.run_b)} --html" if options.html else f"compare {names} --html"
    )
    print(f"next: python -m memory {next_command}")
    return 0
