"""A CSV of another program as a series: its rows in order, its columns of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from analysis.export.run_facts import RunFacts
from analysis.export.series import Point
from analysis.reading.dialect import dialect_of
from analysis.reading.study import Run
from experiment_utils.json_values import csv_number

_STEPS = ("step", "global_step", "iteration", "iter")
_TOKENS = "tokens"


def facts_of_csv(run: Run, label: str, named: frozenset[str]) -> RunFacts:
    """named: columns that the file names tell."""
    facts = {name: run.values.get(name) for name in sorted(named)}
    return RunFacts(label, run.folder, columns=facts, config=facts)


def points_of_csv(path: Path, x: str | None) -> Iterator[Point]:
    """x: the column that counts steps; else one that is called so. Where it does not count in whole numbers
    (`epoch` 0.5), and where there is none, rows are counted from 1.

    The time of all is that of the file, which is all that is known of it.

    Raises:
        OSError: it cannot be read.
    """
    time_s = path.stat().st_mtime
    names = next(_rows(path), [])
    counts = x or next((name for name in _STEPS if name in names), None)
    counts = counts if counts in names and _counts_steps(path, names.index(counts)) else None
    for at, row in enumerate(_rows(path)):
        if at == 0:
            continue
        fields = dict(zip(names, row, strict=True))
        numbers = {name: found for name, text in fields.items() if (found := csv_number(text)) is not None}
        step = numbers.pop(counts, None) if counts else at
        if step is None or step != step:
            continue
        yield Point(int(step), time_s, numbers.get(_TOKENS), numbers)


def _rows(path: Path) -> Iterator[list[str]]:
    """Its fields, the header's first; rows that are not whole are passed over."""
    with open(path, encoding="utf-8-sig", errors="replace", newline="\n") as file:
        header, first = file.readline(), file.readline()
        dialect = dialect_of(header, first)
        names = dialect.fields(header)
        yield names
        rows = (dialect.fields(line) for line in (first, *file) if line.strip())
        yield from (row for row in rows if len(row) == len(names))


def _counts_steps(path: Path, place: int) -> bool:
    """Whether all numbers of that column are whole."""
    rows = _rows(path)
    next(rows)
    known = (number for row in rows if (number := csv_number(row[place])) is not None)
    return all(number != number or number.is_integer() for number in known)
