"""csv, long: a row for each number, so that runs of any series fit into one file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from analysis.export.run_facts import RunFacts
from analysis.export.series import Point
from experiment_utils import atomic_files

OF_A_NUMBER = ("step", "tokens", "time_s", "series", "value")


def write_header(file: IO[str], columns: Sequence[str]) -> None:
    """columns: facts of each run."""
    csv.writer(file, lineterminator="\n").writerow(("run", *columns, *OF_A_NUMBER))


class TidyRows:
    """The rows of one run, behind those of others. Numbers read back as they were; what is not known is
    blank.
    """

    def __init__(self, file: IO[str], facts: RunFacts, columns: Sequence[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._label = (facts.label, *(_field(facts.columns.get(name)) for name in columns))

    def add(self, points: Iterable[Point]) -> int:
        """Returns how many points there were."""
        count = 0
        for point in points:
            tokens = "" if point.tokens is None else f"{point.tokens:.0f}"
            where = (*self._label, point.step, tokens, f"{point.time_s:.3f}")
            self._writer.writerows((*where, name, value) for name, value in point.values.items())
            count += 1
        return count


class TidyFile:
    """series.csv of one running run: each attempt writes it again, then appends."""

    after = 0

    def __init__(self, facts: RunFacts, place: Path) -> None:
        self._path, columns = place / "series.csv", tuple(facts.columns)
        with atomic_files.atomic_file(self._path, "w") as file:
            write_header(file, columns)
        self._file = open(self._path, "a", encoding="utf-8", newline="")  # noqa: SIM115
        self._rows = TidyRows(self._file, facts, columns)

    @property
    def destination(self) -> str:
        return str(self._path)

    def add(self, points: Iterable[Point]) -> int:
        """Returns how many points there were."""
        count = self._rows.add(points)
        self._file.flush()
        return count

    def end(self, state: str | None, results: Any) -> None:
        """Nothing more comes of this attempt."""
        self._file.close()


def _field(value: Any) -> Any:
    return "" if value is None else value
