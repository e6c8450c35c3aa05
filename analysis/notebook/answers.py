"""Answers of `curves`, `best-lr` and `fit` as objects: fields to compute with, and a page for a notebook."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, NamedTuple

from analysis.export.result_table import ResultTable
from analysis.notebook.command_runner import CommandRun


class Estimate(NamedTuple):
    """A number with its 95% interval; None where the data do not determine it."""

    value: float | None
    low: float | None
    high: float | None


class Answer:
    """Answer of a command, printed as in a terminal."""

    def __init__(self, command: CommandRun, table: ResultTable) -> None:
        self._command = command
        self.table = table

    @property
    def frame(self) -> Any:
        """`table` as a DataFrame of pandas or polars, if one is installed."""
        return self.table.frame_or_self()

    def to_csv(self, path: str | Path | None = None) -> str | None:
        """CSV of `table`: the text, or None if it goes to `path`."""
        return self.table.to_csv(path)

    def __repr__(self) -> str:
        return self._command.text


class Curves(Answer):
    """Curves of the runs of a study; `table` has a row for each point: run, settings, x, y."""

    @property
    def left_out(self) -> list[str]:
        """A line for each run without a curve."""
        return list(self._command.drawn[0]["left_out"])

    def __repr__(self) -> str:
        x, y = self.table.columns[-2:]
        return f"{y} over {x}: {len(set(self.table['run']))} runs, {len(self.table)} points"

    def _repr_html_(self) -> str:
        lines = [repr(self), *(f"left out: {line}" for line in self.left_out)]
        return self._command.drawn[1] + "".join(f"<p>{html.escape(line)}</p>" for line in lines)


class BestRates(Answer):
    """Best learning rate of each size; `table` has a row for each size."""

    def __init__(self, command: CommandRun) -> None:
        self.sizes: list[dict[str, Any]] = command.result
        """An object for each size, as in --json of `python -m analysis best-lr`."""
        columns = ("model", "setup", "best_lr", "low", "high", "width", "inside", "why_not")
        super().__init__(command, ResultTable.of(columns, self.sizes))

    @property
    def law(self) -> dict[str, Any] | None:
        """`best_lr = factor * width ** exponent` of the first setup; None with fewer than three widths."""
        return next((size["law"] for size in self.sizes if size["law"]), None)

    def _repr_html_(self) -> str:
        below = self._command.text.split("\n\n")[2:]
        return f"{self.table._repr_html_()}<pre>{html.escape(chr(10).join(below))}</pre>"


class PowerFit(Answer):
    """L = E + A x^-alpha through the sizes of a study; `table` has a row for each size."""

    def __init__(self, command: CommandRun) -> None:
        found = self.result = command.result
        """The object that `python -m analysis fit --json` prints."""
        self.E, self.A, self.alpha, self.r2 = (
            Estimate(found[name]["value"], found[name]["low"], found[name]["high"])
            for name in ("E", "A", "alpha", "r2")
        )
        """Parameters and share of explained variance; `E.value` is None if the data do not identify it."""
        self.predictions: list[dict[str, Any]] = found["foretold"]
        """Loss with its interval at each x of `at`, or at ten times the largest x."""
        columns = ("run", "x", "y", "fitted", "residual", "seeds")
        super().__init__(command, ResultTable.of(columns, found["points"]))

    def _repr_html_(self) -> str:
        return f"{self._command.drawn[1]}<pre>{html.escape(self._command.text)}</pre>"
