"""Samples of text that runs took while they trained (`logging.sample_every`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from analysis.reading import Run, Study
from experiment_utils.json_values import integer
from experiment_utils.run_folder import RunFolder
from memory.report.page import Cell, Column, Page

FILE = "samples.jsonl"
_OF_A_RUN, _RUNS = 8, 50
_CHARACTERS = 400


def add_samples(page: Page, study: Study, best: Run | None) -> None:
    """Samples of one run over its steps, and the last sample of each run; nothing if no run took any.

    Args:
        best: the run that is shown over its steps, if it took samples; else the first one that did.
    """
    found = {run.name: taken for run in study.runs if run.is_ours and (taken := samples_of(run))}
    if not found:
        return
    page.heading("Samples of text", "one prompt, continued with the same seed")
    shown = best.name if best is not None and best.name in found else next(iter(found))
    taken = found[shown]
    every = -(-len(taken) // _OF_A_RUN)
    _add_table(
        page,
        [("", one) for one in taken[::-1][::every][::-1]],
        caption=f"{shown}, after: {_short(taken[-1].get('prompt'))}",
    )
    if len(found) > 1:
        with page.folded(f"The last sample of {len(found)} runs"):
            _add_table(page, [(name, taken[-1]) for name, taken in list(found.items())[:_RUNS]])
            if len(found) > _RUNS:
                page.text(f"and {len(found) - _RUNS} more", "note")


def samples_of(run: Run) -> list[dict[str, Any]]:
    """Records of samples.jsonl that can be shown, in the order of their steps."""
    records = RunFolder(run.folder).json_lines(FILE)
    known = [
        one for one in records if integer(one.get("step")) is not None and isinstance(one.get("text"), str)
    ]
    return sorted(known, key=lambda one: one["step"])


def _add_table(page: Page, rows: Sequence[tuple[str, dict[str, Any]]], caption: str = "") -> None:
    """A row for each sample. rows: (run, record); without a run if the caption names it."""
    columns = [Column("run"), Column("step", True), Column("text")]
    cells: list[list[str | Cell]] = [
        [name, Cell(f"{one['step']:,}", one["step"]), _short(one["text"])] for name, one in rows
    ]
    first = 1 if caption else 0
    page.table(columns[first:], [row[first:] for row in cells], caption=caption)


def _short(text: object) -> str:
    """A text in one line of a table."""
    line = " ".join(str(text or "").split())
    return line if len(line) <= _CHARACTERS else f"{line[: _CHARACTERS - 3]}..."
