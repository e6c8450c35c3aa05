"""`python -m data_loading list`: datasets known by name, and token sets below Datasets/."""

from __future__ import annotations

import argparse
import json
from typing import Any

from experiment_utils.display import table

EXAMPLES = """\
examples:
  python -m data_loading list
  python -m data_loading list --json

Train on a dataset known by name with dataset=NAME: from its files below Datasets/ if they exist, else
streamed from the hub.
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to those of `python -m data_loading`."""
    parser = subparsers.add_parser(
        "list",
        help="datasets known by name, and the token sets below Datasets/",
        description="List the datasets known by name, and the token sets below Datasets/.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the list; returns the exit status."""
    from data_loading.find.catalogue import found_sets, list_datasets

    described, sets = list_datasets(), found_sets()
    if arguments.json:
        found = {
            "datasets": [one.to_json() for one in described],
            "token_sets": [one.to_json() for one in sets],
        }
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return 0
    rows: list[tuple[str, ...]] = [("name", "tokenizer", "streaming", "size", "here", "what")]
    for one in described:
        here = "-" if not one.found else _counted(one.tokens) if one.tokens is not None else "as text"
        streaming = "yes" if one.streaming else "no"
        rows.append((one.name, one.tokenizer, streaming, one.size or "-", here, one.what))
    print("\n".join(table(rows[0], rows[1:])))
    if sets:
        rows = [("token set", "tokens", "documents", "tokenizer")]
        for found_set in sets:
            counts = (_number(found_set.tokens), _number(found_set.documents))
            rows.append((found_set.path, *counts, found_set.tokenizer or "unknown"))
        print("\n" + "\n".join(table(rows[0], rows[1:])))
        for found_set in sets:
            if found_set.problem:
                print(f"{found_set.path} cannot be used: {found_set.problem}")
    return 0


def _counted(tokens: int) -> str:
    from experiment_utils.quantities import format_count

    return f"{format_count(tokens)} tokens"


def _number(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"
