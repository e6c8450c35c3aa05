"""`python -m memory attribute RUN`: who held the memory of a run that had `memory.attribute=true`."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from experiment_utils.arguments import find_run
from experiment_utils.errors import UserError
from experiment_utils.json_values import mapping, unsigned
from experiment_utils.run_folder import RunFolder
from memory.attribute import Attribution, lines
from memory.attribute.allocators import memray_sites

FILE = "memory.attribution.json"
_NOT_AS_WRITTEN = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""What comes of values of another kind than were written."""
EXAMPLES = """examples:
  python experiments.py model=64d memory.attribute=true    # a run that writes it down
  python -m memory attribute RUN                           # at the peak, or the last that there is
  python -m memory attribute RUN --when finish --json
  python -m memory attribute RUN --memray memray.bin       # with lines of Python code, of `memray run -o`
"""


def add_parser(subparsers: Any) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "attribute",
        help="who held the memory: tensors by module, arrays, mapped files, allocators",
        description="Who held the memory of a run: tensors by module and size, NumPy arrays, large objects, "
        "mapped files, allocators, and what is left.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "run_folder", metavar="RUN", help="path of a run, its name, or its identity's beginning"
    )
    parser.add_argument("--when", help="first_step, peak or finish; else the one with the most memory")
    parser.add_argument("--rows", type=int, default=10, help="rows of each list (default: 10)")
    parser.add_argument(
        "--memray", type=Path, metavar="FILE", help="a recording of memray, whose lines are told"
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Raises:
    UserError: there is no such run, it wrote nothing down, or not at that moment.
    """
    folder = find_run(options.run_folder)
    found = _chosen(folder, options.when)
    if options.memray is not None:
        found.sites = memray_sites(options.memray)
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
        return 0
    try:
        told = lines(found, max(1, options.rows))
    except _NOT_AS_WRITTEN:
        raise _damaged(folder) from None
    print("\n".join(told))
    print(f"\nnext: python -m memory attribute {shlex.quote(str(folder))} --json")
    return 0


def _chosen(folder: Path, when: str | None) -> Attribution:
    file = RunFolder(folder).file(FILE)
    if file.error is not None:
        raise UserError(
            f"{folder} has no {FILE}: the run did not note who holds its memory. "
            "Run it with memory.attribute=true",
            code="no-attribution",
        )
    try:
        all_found = [Attribution.of_json(one) for one in file.value["attributions"]]
    except _NOT_AS_WRITTEN:
        raise _damaged(folder) from None
    if not all_found:
        raise _damaged(folder)
    if when is None:
        return max(all_found, key=lambda one: unsigned(one.anon_bytes) or 0)
    moments = [mapping(one.facts).get("when") for one in all_found]
    if when in moments:
        return all_found[moments.index(when)]
    there = ", ".join(map(str, moments))
    raise UserError(
        f"--when {when}: {folder / FILE} has none of that moment; there are: {there}", code="no-such-moment"
    )


def _damaged(folder: Path) -> UserError:
    return UserError(
        f"{folder / FILE} is damaged. Run it again with memory.attribute=true", code="damaged-attribution"
    )
