"""The runs of a study as a table: text, CSV, JSON, Markdown, Parquet."""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from analysis.columns import cell, is_right, plain, titles
from analysis.export.result_table import ResultTable, csv_field
from analysis.reading.study import Run, Study, versions_of
from experiment_utils.display import table
from experiment_utils.extras import check_installed
from experiment_utils.json_values import is_number
from experiment_utils.quantities import counted

_LEAST_IMPORTANT = (
    "best_val_loss", "train_loss", "step", "tokens_per_s", "seconds", "peak_bytes", "tokens",
)  # fmt: skip
"""Columns that go until the table fits a terminal, in order."""
_ANY_WIDTH = 10_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def summary(study: Study) -> str:
    """`lr_sweep: 12 runs: 10 done, 1 oom, 1 failed`."""
    states = Counter(run.state for run in study.runs if run.state)
    counts_text = ", ".join(f"{count} {state}" for state, count in states.most_common())
    lost = sum(run.has_diverged for run in study.runs)
    counts_text += f"; {lost} diverged" if lost else ""
    return f"{study.path}: {counted(len(study.runs), study.noun)}" + (
        f": {counts_text}" if counts_text else ""
    )


def ordered(runs: Sequence[Run], name: str | None, *, is_falling: bool = False) -> list[Run]:
    """Runs sorted by a column, the smallest first, those without a value last."""
    if name is None:
        return list(runs)[:: -1 if is_falling else 1]
    known = [run for run in runs if _sortable(run.value(name)) is not None]
    numbers = all(is_number(run.value(name)) for run in known)
    known.sort(key=lambda run: run.value(name) if numbers else str(run.value(name)), reverse=is_falling)
    return known + [run for run in runs if _sortable(run.value(name)) is None]


def _sortable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def lines(runs: Sequence[Run], columns: Sequence[str], *, is_cut: bool = True) -> list[str]:
    """A header and a row a run, aligned. is_cut: for a terminal, columns that do not fit are left out."""
    right = [place for place, column in enumerate(columns) if is_right([run.value(column) for run in runs])]
    cells = [[_in_one_line(column, run) for column in columns] for run in runs]
    width = None if is_cut else _ANY_WIDTH
    return table(titles(runs, columns), cells, right=right, least=_LEAST_IMPORTANT, columns=width)


def failures(runs: Sequence[Run]) -> list[str]:
    """A line for each run whose losses are not those of a whole run."""
    return [f"{run.name}: {run.why_not}" for run in runs if not run.counts]


def as_json(study: Study, runs: Sequence[Run], columns: Sequence[str]) -> dict[str, Any]:
    """JSON object of the table: keys are added, never renamed; numbers that are not finite are null."""
    return {
        "version": 1,
        "study": study.path,
        "counts": dict(Counter(run.state for run in runs if run.state)),
        "runs": [{column: plain(run.value(column)) for column in columns} for run in runs],
        "skipped": [{"folder": str(path), "why": why} for path, why in study.skipped],
        "duplicates": [
            {"identity": identity, "folders": [str(run.folder) for run in same]}
            for identity, same in study.duplicates.items()
        ],
        "damaged": [{"run": run.name, "lines": list(run.damage)} for run in runs if run.damage],
        "code": versions_of(runs).to_json(),
    }


def as_csv(runs: Sequence[Run], columns: Sequence[str]) -> str:
    """CSV with numbers in full and blanks for what is not known."""
    return str(table_of(runs, columns).to_csv())


def table_of(runs: Sequence[Run], columns: Sequence[str]) -> ResultTable:
    """A row for each run."""
    return ResultTable(columns, [[run.value(column) for column in columns] for run in runs])


def as_markdown(runs: Sequence[Run], columns: Sequence[str]) -> str:
    """A table of GitHub's kind."""
    right = [is_right([run.value(column) for run in runs]) for column in columns]
    rows = [[_in_one_line(column, run).replace("|", "\\|") for column in columns] for run in runs]
    marks = ["---:" if of_numbers else "---" for of_numbers in right]
    heads = titles(runs, columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, marks, *rows]) + "\n"


def as_parquet(runs: Sequence[Run], columns: Sequence[str]) -> bytes:
    """One row group; a column is of numbers if all of its values are, else of texts (`auto` and 8).

    Raises:
        UserError: pyarrow is not installed.
    """
    check_installed("pyarrow", "parquet", "--parquet")
    import pyarrow
    import pyarrow.parquet

    made = {}
    for column in columns:
        values = [run.value(column) for run in runs]
        if is_right(values) and not any(isinstance(value, bool) for value in values):
            whole = all(isinstance(value, int) for value in values if value is not None)
            made[column] = values if whole else [None if value is None else float(value) for value in values]
        else:
            made[column] = [None if value is None else str(csv_field(value)) for value in values]
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(made), file)
    return file.getvalue()


def _in_one_line(column: str, run: Run) -> str:
    """Text without line ends and control characters, which notes can have."""
    return _CONTROL.sub(" ", cell(column, run.value(column)))
