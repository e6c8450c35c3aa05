"""What the sections of docs/figures.md are made with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from benchmarks.environment import RESULTS


def read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def section(title: str, name: str, found: dict[str, Any], text: str, rows: str, script: str = "") -> str:
    machine = found["machine"]
    cpu = f"{machine['cpu']}, {machine['cores']} cores"
    source = (
        f"`{script or f'benchmarks/{name}.py'}`, {found['date']}, {cpu}, torch {found['versions']['torch']}, "
        f"Python {found['versions']['python']}."
    )
    return "\n\n".join(part for part in (f"## {title}", text, rows, source) if part) + "\n"


Goal = tuple[str, str, str, bool | None]
"""What, measured, wanted, whether it is met; None: not measured."""


def goals(rows: Iterable[Goal]) -> str:
    """Table of goals, each of which is met or not."""
    words = {True: "yes", False: "no", None: "not measured"}
    return table(
        ("goal", "measured", "wanted", "met"),
        [(what, measured, wanted, words[is_met]) for what, measured, wanted, is_met in rows],
    )


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
