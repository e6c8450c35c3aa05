"""Lines by room, and the lists of what each room may still break.

python -m tests.rules lines                 show lines by room next to their goals
python -m tests.rules update                rewrite tests/rules/allowed/ after something was fixed or moved
python -m tests.rules update --allow-more   also when a rule is broken more often: say why in the commit
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.rules.allowed import read_allowed, update

ROOT = Path(__file__).resolve().parents[2]

GOALS = {
    ("data_loading",): 22_000,
    ("memory",): 14_000,
    ("slurm",): 10_500,
    ("analysis",): 9_000,
    ("training", "models", "conf", "core", "highwater", "hydra_plugins"): 17_500,
    ("experiment_utils",): 1_500,
    ("tests",): 60_000,
    ("benchmarks",): 6_000,
}
"""Rooms -> most lines of Python that they should have together. `core`: the files of the top level."""


def lines_of(root: Path, room: str) -> int:
    """Lines of Python in a room."""
    files = root.glob("*.py") if room == "core" else (root / room).rglob("*.py")
    return sum(file.read_bytes().count(b"\n") for file in files)


def print_lines(root: Path) -> None:
    print(f"{'rooms':<45}{'lines':>8}{'goal':>8}{'over':>8}  rules broken")
    for rooms, goal in GOALS.items():
        lines = sum(lines_of(root, room) for room in rooms)
        over = f"{lines - goal:,}" if lines > goal else "-"
        broken = sum(sum(read_allowed(room).values()) for room in rooms)
        print(f"{', '.join(rooms):<45}{lines:>8,}{goal:>8,}{over:>8}  {broken or '-'}")


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.rules", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("command", choices=["lines", "update"])
    parser.add_argument("--allow-more", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "lines":
        print_lines(ROOT)
        return 0
    grown = update(ROOT, allow_more=arguments.allow_more)
    print(*grown, sep="\n", end="\n" * bool(grown))
    if not grown or arguments.allow_more:
        return 0
    print("error: lists of these rooms would grow and are unchanged. `pytest tests/rules` shows each place.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
