"""Answers of `curves`, `best-lr` and `fit` as objects: fields to compute with, and a page for a notebook."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from analysis.export.result_table import ResultTable
from analysis.notebook.command_runner import CommandRun


class Estimate(NamedTuple):
    """A number with its 95% interval; None where the data do not determine it."""

    value: float | None
    low: float | None
    high: float | None


class Curves:
    """Curves of the runs of a study."""

    def __init__(self, command: CommandRun, table: ResultTable) -> None:
        self._command = command
        self.table = table
        """A row for each point: run, settings, x, y."""

    @property
    def frame(self) -> Any:
        """`table` as a DataFrame of pandas or polars, if one is installed."""
        return self.table.frame_or_self()

    @property
    def left_out(self) -> list[str]:
        """A line for each run without a curve."""
        return list(self._command.drawn[0]["left_out"])

    def to_csv(self, path: Any = None) -> str | None:
        """CSV of `table`: the text, or None if it goes to `path`."""
        return self.table.to_csv(path)

    def __repr__(self) -> str:
        x, y = self.table.columns[-2:]
        return f"{y} over {x}: {len(set(self.table['run']))} runs, {len(self.table)} points"

    def _repr_html_(self) -> str:
        return f"{self._command.drawn[1]}{_list(self.left_out)}<p>{html.escape(repr(self))}</p>"


class BestRates:
    """Best learning rate of each size, as `python -m analysis best-lr` finds it."""

    def __init__(self, command: CommandRun) -> None:
        self._command = command
        self.sizes: list[dict[str, Any]] = command.result
        """An object for each size, as in its --json."""

    @cached_property
    def table(self) -> ResultTable:
        """A row for each size: model, setup, best_lr, low, high, width, inside, why_not."""
        columns = ("model", "setup", "best_lr", "low", "high", "width", "inside", "why_not")
        return ResultTable(columns, [[size[name] for name in columns] for size in self.sizes])

    @property
    def frame(self) -> Any:
        """`table` as a DataFrame of pandas or polars, if one is installed."""
        return self.table.frame_or_self()

    @property
    def law(self) -> dict[str, Any] | None:
        """`best_lr = factor * width ** exponent` of the first setup; None with fewer than three widths."""
        return next((size["law"] for size in self.sizes if size["law"]), None)

    def __repr__(self) -> str:
        return self._command.text

    def _repr_html_(self) -> str:
        below = self._command.text.split("\n\n")[2:]
        return self.table._repr_html_() + _page("\n\n".join(below))


@dataclass(frozen=True)
class PowerFit:
    """L = E + A x^-alpha through the sizes of a study, as `python -m analysis fit` finds it."""

    command: CommandRun

    def _estimate(self, name: str) -> Estimate:
        found = self.command.result[name]
        return Estimate(found["value"], found["low"], found["high"])

    @property
    def E(self) -> Estimate:  # noqa: N802 - the name in the formula
        """Loss that no size goes below; its value is None if the data do not identify it."""
        return self._estimate("E")

    @property
    def A(self) -> Estimate:  # noqa: N802
        """Scale of the falling part."""
        return self._estimate("A")

    @property
    def alpha(self) -> Estimate:
        """Exponent of the falling part."""
        return self._estimate("alpha")

    @property
    def r2(self) -> Estimate:
        """Share of the variance of the losses that the law explains."""
        return self._estimate("r2")

    @property
    def predictions(self) -> list[dict[str, Any]]:
        """Loss with its interval at each x of `at`, or at ten times the largest x."""
        return list(self.command.result["foretold"])

    @property
    def table(self) -> ResultTable:
        """A row for each size: run, x, y, fitted, residual, seeds."""
        columns = ("run", "x", "y", "fitted", "residual", "seeds")
        points = self.command.result["points"]
        return ResultTable(columns, [[point[name] for name in columns] for point in points])

    @property
    def frame(self) -> Any:
        """`table` as a DataFrame of pandas or polars, if one is installed."""
        return self.table.frame_or_self()

    def __repr__(self) -> str:
        return self.command.text

    def _repr_html_(self) -> str:
        return self.command.drawn[1] + _page(self.command.text)


def _page(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _list(lines: Sequence[str]) -> str:
    return f"<p>left out: {html.escape('; '.join(lines))}</p>" if lines else ""
