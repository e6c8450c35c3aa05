"""The table of options in docs/models.md: choices and their meanings by key of `arch`."""

from __future__ import annotations

from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def _read_table(page: str) -> dict[str, dict[str, str]]:
    """A row with an empty first cell is another choice of the key above it."""
    found: dict[str, dict[str, str]] = {}
    lines = page.partition("| key | choice | what | source |\n")[2].partition("\n\n")[0].splitlines()
    name = ""
    for line in lines[1:]:
        key, choice, what, _ = (cell.strip(" `") for cell in line.strip("|").split(" |"))
        name = key.removeprefix("arch.") or name
        found.setdefault(name, {})[choice] = what
    return found


OPTIONS = _read_table(_PAGE.read_text(encoding="utf-8"))
