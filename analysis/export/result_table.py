"""A table of results as a plain object: for CSV, for frames of pandas or polars, and for a notebook."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analysis.columns import cell, is_right
from experiment_utils.display import table
from experiment_utils.extras import check_installed

_MOST_ROWS = 60


@dataclass(frozen=True)
class ResultTable:
    """Rows of values under names. Iterating gives a dict for each row; `table["lr"]` is a column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, columns: Sequence[str], records: Iterable[Mapping[str, Any]]) -> ResultTable:
        """Table with these keys of each record."""
        return cls(columns, [[record[name] for name in columns] for record in records])

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        return self.to_dict()[column]

    def to_dict(self) -> dict[str, list[Any]]:
        """Column to its values."""
        return {name: [row[place] for row in self.rows] for place, name in enumerate(self.columns)}

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """CSV with numbers in full and blanks for missing values: the text, or None if it goes to `path`."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([[csv_field(value) for value in row] for row in self.rows])
        if path is None:
            return file.getvalue()
        Path(path).write_text(file.getvalue(), encoding="utf-8")
        return None

    def to_frame(self) -> Any:
        """DataFrame of pandas or, if only that is installed, of polars.

        Raises:
            UserError: neither is installed; names the extra that installs pandas.
        """
        if find_spec("polars") is not None and find_spec("pandas") is None:
            import polars

            return polars.DataFrame(self.to_dict(), strict=False)
        check_installed("pandas", "pandas", "a frame")
        import pandas

        return pandas.DataFrame(self.to_dict(), columns=list(self.columns))

    def frame_or_self(self) -> Any:
        """DataFrame as of `to_frame`, this table if neither pandas nor polars is installed."""
        return self.to_frame() if find_spec("pandas") or find_spec("polars") else self

    def __repr__(self) -> str:
        right = [place for place, name in enumerate(self.columns) if is_right(self[name])]
        return "\n".join(table(self.columns, self._shown(), right=right))

    def _repr_html_(self) -> str:
        titles = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        rows = "".join(
            f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in row)}</tr>" for row in self._shown()
        )
        more = f"<p>and {len(self) - _MOST_ROWS} more rows</p>" if len(self) > _MOST_ROWS else ""
        return f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>{more}"

    def _shown(self) -> list[list[str]]:
        return [
            [cell(name, value) for name, value in zip(self.columns, row, strict=True)]
            for row in self.rows[:_MOST_ROWS]
        ]


def csv_field(value: Any) -> Any:
    """A value as a CSV has it: lists joined by commas, `true` and `false`, blank for None."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else value
