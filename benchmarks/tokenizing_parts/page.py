"""What the sections of docs/figures.md are made with."""

from __future__ import annotations

import json
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


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
