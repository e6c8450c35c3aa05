"""Sentences that tests pin outside golden texts, counted by folder: `python -m tests.sentences`.

A sentence is a string of two or more words that is compared, that `in` looks for, or that `match=` has; a
`match=` of a variable counts as one. Neither the key of a subscript (`parts["page tables"] == 4096`) nor a
command line (`python -m slurm status`) is one: both are interfaces. tests/sentences.json limits them by
folder; to lower its limits: `python -m tests.sentences --lower`.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
LIMITS = TESTS / "sentences.json"
_WORDS = re.compile(r"[A-Za-z]{2,}[,.:;]?(?: |\\ )+(?:[a-z]|[A-Z][a-z])[A-Za-z]+")
_COMMAND = re.compile(r"(?:python |--[a-z])")
_LOOKS = {"startswith", "endswith", "count", "index", "find", "search", "fullmatch", "findall", "finditer"}


def sentences(tree: ast.AST) -> list[int]:
    """Lines of the sentences that a test file pins."""
    places = [place for node in ast.walk(tree) for place in _compared(node)]
    found = {constant for place in places for constant in _constants(place) if _is_sentence(constant.value)}
    matches = [node.value for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "match"]
    variables = [match for match in matches if not any(_constants(match))]
    return sorted(node.lineno for node in [*found, *variables])


def _is_sentence(text: str) -> bool:
    return _WORDS.search(text) is not None and not _COMMAND.match(text.strip())


def _compared(node: ast.AST) -> Iterator[ast.AST]:
    """Expressions that may hold a pinned sentence."""
    if isinstance(node, ast.Compare):
        yield from [node.left, *node.comparators]
    elif isinstance(node, ast.Call):
        yield from [keyword.value for keyword in node.keywords if keyword.arg == "match"]
        if isinstance(node.func, ast.Attribute) and node.func.attr in _LOOKS:
            yield from node.args


def _constants(node: ast.AST) -> Iterator[ast.Constant]:
    """Strings of an expression, without arguments of a call and keys of a subscript in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    elif isinstance(node, ast.Call):
        yield from _constants(node.func)
    elif isinstance(node, ast.Subscript):
        yield from _constants(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _constants(child)


def count() -> Counter[str]:
    """Sentences by folder of tests; those of files at the top are under `.`."""
    found: Counter[str] = Counter()
    for file in TESTS.rglob("*.py"):
        parts = file.relative_to(TESTS).parts
        found["." if len(parts) == 1 else parts[0]] += len(sentences(ast.parse(file.read_text())))
    return +found


def main() -> None:
    """Print the table; with --lower write the limits that went down."""
    found, limits = count(), json.loads(LIMITS.read_text()) if LIMITS.exists() else dict(count())
    for folder in sorted({*found, *limits}):
        print(f"{folder:20} {found[folder]:6,} of {limits.get(folder, 0):6,}")
    print(f"{'in all':20} {found.total():6,} of {sum(limits.values()):6,}")
    if "--lower" in sys.argv:
        lower = {folder: min(limit, found[folder]) for folder, limit in sorted(limits.items())}
        LIMITS.write_text(json.dumps(lower, indent=2) + "\n")


if __name__ == "__main__":
    main()
