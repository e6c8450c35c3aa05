"""`python -m memory attribute RUN`: who held the memory of a run that had `memory.attribute=true`."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from experiment_utils.arguments import find_run
from experiment_utils.errors import UserError
from experiment_utils.json_values import mapping, unsigned
from experiment_utils.run_folder import RunFolder
from experiment_utils.typed_here import wrap
from memory.attribute import Attribution, lines

FILE = "memory.attribution.json"
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""Raised by values of another kind than were written."""
EXAMPLES = """examples:
  python experiments.py model=64d memory.attribute=true    # a run that records it
  python -m memory attribute RUN                           # the record with the most memory
  python -m memory attribute RUN --when finish --json
"""


def add_parser(subparsers: Any) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "attribute",
        help="who held the memory: tensors by module, arrays, large objects",
        description="Who held the memory of a run: tensors by use and module, NumPy arrays, large objects, "
        "and how much is left. Lines of code that hold the rest: memray run (pip install memray).",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "run_folder", metavar="RUN", help="path of a run, its name, or its identity's beginning"
    )
    parser.add_argument("--when", help="first_step, peak or finish; else the one with the most memory")
    parser.add_argument("--rows", type=int, default=10, help="rows of each list (default: 10)")
    parser.add_argument("--json", action="store_true", help="the answer as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one record of the run's file.

    Raises:
        UserError: no such run, or it has no such record.
    """
    folder = find_run(options.run_folder)
    file = RunFolder(folder).file(FILE)
    if file.error is not None:
        raise UserError(
            f"{folder} has no {FILE}: the run did not record who holds its memory. "
            "Run it with memory.attribute=true",
            code="no-attribution",
        )
    try:
        found = _chosen(
            folder, options.when, [Attribution.from_json(one) for one in file.value["attributions"]]
        )
        text = (
            json.dumps(found.to_json(), indent=2)
            if options.json
            else "\n".join(lines(found, max(1, options.rows)))
        )
    except _DAMAGE:
        raise UserError(
            f"{folder / FILE} is damaged. Run it again with memory.attribute=true", code="damaged-attribution"
        ) from None
    if sys.stdout.isatty() and not options.json:
        columns = shutil.get_terminal_size().columns
        wrapped = (wrap(one, columns, subsequent_indent=" " * 11) or [""] for one in text.splitlines())
        text = "\n".join(one for part in wrapped for one in part)
    print(text)
    if not options.json:
        print(f"\nnext: python -m memory attribute {shlex.quote(str(folder))} --json")
    return 0


def _chosen(folder: Path, when: str | None, known: list[Attribution]) -> Attribution:
    if when is None:
        return max(known, key=lambda one: unsigned(one.anon_bytes) or 0)
    moments = [mapping(one.facts).get("when") for one in known]
    if when in moments:
        return known[moments.index(when)]
    choices = ", ".join(map(str, moments))
    raise UserError(f"--when {when} is not in {folder / FILE}. Choices: {choices}", code="no-such-moment")
