"""`python -m memory compare RUN_A RUN_B`: two runs stage by stage."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from experiment_utils.arguments import find_run

_EXAMPLES = """examples:
  python -m memory compare 1a2b3c4d 5e6f7a8b
  python -m memory compare runs/default/A runs/default/B --html --output .
  python -m memory compare A B --json | jq '.stages[] | {path, after: .after_bytes.difference}'
"""


def add_parser(subparsers: Any) -> None:
    """`compare`."""
    parser = subparsers.add_parser(
        "compare",
        help="two runs stage by stage, with what differs in their configs",
        description="Memory of the last attempts of two runs, stage by stage, by part and by process.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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
        help="where the page goes; by default where you stand",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the comparison, and write the page if it was asked for."""
    from memory.report.compare import compared, to_json
    from memory.report.compare_views import lines_of, page_of
    from memory.report.files import write_into
    from memory.report.history import read_history

    a, b = (read_history(find_run(name)) for name in (options.run_a, options.run_b))
    found = compared(a, b)
    names = f"{shlex.quote(options.run_a)} {shlex.quote(options.run_b)}"
    written = []
    if options.html:
        page = page_of(found, command=f"python -m memory compare {names} --html")
        written.append(write_into(options.output, "memory-compared.html", page.encode()))
    if options.json:
        print(json.dumps(to_json(found) | {"written": [str(path) for path in written]}, indent=2))
        return 0
    print("\n".join(lines_of(found)))
    print()
    for path in written:
        print(f"wrote {path}")
    if options.html:
        print(f"next: python -m memory report {shlex.quote(options.run_b)} --html")
    else:
        print(f"next: python -m memory compare {names} --html   (both on one time axis)")
    return 0
