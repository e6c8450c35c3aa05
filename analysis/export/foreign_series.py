"""A run of another program as a series: its rows in order, its columns of numbers."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.export.run_facts import RunFacts
from analysis.export.series import Point
from analysis.reading.csv_table import Table
from analysis.reading.foreign_formats import read_table
from analysis.reading.run import Run
from experiment_utils.json_values import csv_number

_STEPS = ("step", "Step", "_step", "global_step", "iteration", "iter")
_TOKENS = "tokens"


def facts_of_csv(run: Run, label: str, named: frozenset[str]) -> RunFacts:
    """Facts of a run of another program. named: columns that set its runs apart."""
    facts = {name: run.values.get(name) for name in sorted(named)}
    return RunFacts(label, run.folder, columns=facts, config=facts)


def points_of_foreign(run: Run, x: str | None) -> Iterator[Point]:
    """Points of a run of another program, with the time of its file.

    Args:
        run: The run.
        x: Column that counts steps; None: one that is called so. Rows are counted from 1 if it has none, or
            if it does not count in whole numbers (`epoch` 0.5).

    Raises:
        OSError: it cannot be read.
    """
    time_s = run.curve_file.stat().st_mtime
    table = read_table(run.curve_file, run.part)
    counts = x or next((name for name in _STEPS if name in table.columns), None)
    counts = counts if counts in table.columns and _counts_steps(table, counts) else None
    for at, row in enumerate(table.rows, 1):
        fields = dict(zip(table.columns, row, strict=True))
        numbers = {name: found for name, text in fields.items() if (found := csv_number(text)) is not None}
        step = numbers.pop(counts, None) if counts else at
        if step is None or step != step:
            continue
        yield Point(int(step), time_s, numbers.get(_TOKENS), numbers)


def _counts_steps(table: Table, column: str) -> bool:
    """Whether all numbers of that column are whole."""
    known = (number for text in table.column(column) if (number := csv_number(text)) is not None)
    return all(number != number or number.is_integer() for number in known)
