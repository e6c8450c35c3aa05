"""A study for a notebook or a script: runs as a frame, curves, best learning rates, scaling laws."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.columns import export_columns, shown_columns, varying_columns
from analysis.export.result_table import ResultTable
from analysis.notebook.answers import BestRates, Curves, PowerFit
from analysis.notebook.command_runner import CommandRun
from analysis.reading import study as reading
from analysis.reading.curves import curve
from analysis.reading.filters import only
from analysis.run_table import summary, table_of
from experiment_utils.errors import UserError


def read_study(
    *studies: str | Path, where: str | Sequence[str] = (), pattern: str | None = None, rows: bool = False
) -> StudyView:
    """Read the runs of one or several studies, or runs of other programs.

    Args:
        studies: Folders of studies or runs, names below `runs_dir`, CSVs, or logs of other programs.
        where: Conditions such as `"model=64d"` or `["lr<0.01", "state!=done"]` that runs must meet.
        pattern: Facts in the names of runs of other programs, such as `"{model}_lr_{log10_lr}.csv"`.
        rows: Each row of a CSV is a run.

    Raises:
        UserError: a study does not exist, none of its runs can be read, or no run meets the conditions.
    """
    given = [str(one) for one in studies]
    conditions = [where] if isinstance(where, str) else list(where)
    study = reading.read_study(given, pattern=pattern, rows=rows)
    if not study.runs:
        raise UserError(f"{study.path}: no run there can be read: {study.notes()[0]}")
    words = [*given, *(word for one in conditions for word in ("--where", one))]
    words += ["--pattern", pattern] if pattern is not None else []
    return StudyView(only(study, conditions), (*words, *(["--rows"] if rows else [])))


@dataclass(frozen=True)
class StudyView:
    """Runs of a study, with the answers of `python -m analysis`."""

    study: reading.Study
    words: tuple[str, ...]
    """Arguments of a command about the same runs."""

    @property
    def table(self) -> ResultTable:
        """A row for each run, with the columns of `table --csv`."""
        return table_of(self.study.runs, export_columns(self.study))

    @property
    def runs(self) -> Any:
        """`table` as a DataFrame of pandas or polars, if one is installed."""
        return self.table.frame_or_self()

    @property
    def notes(self) -> list[str]:
        """Duplicates, folders that were skipped and why, versions of the code."""
        return self.study.notes()

    def curves(self, y: str = "val_loss", x: str | None = None) -> Curves:
        """Curves of all runs, the points without a value left out.

        Args:
            y: Column, such as train_loss.
            x: Column; None: tokens, or step of runs of other programs.

        Raises:
            UserError: no run has such a curve.
        """
        over = self.study.column(x or ("tokens" if self.study.is_ours else "step"))
        of = self.study.column(y)
        runs = self.study.once()
        settings = varying_columns(runs) if self.study.is_ours else sorted(self.study.named_facts)
        settings = [name for name in settings if len({repr(run.value(name)) for run in runs}) > 1]
        rows = []
        for run in runs:
            try:
                found = curve(run, [over, of])
            except UserError:  # `left_out` of the answer has it
                continue
            known = found[of] == found[of]
            about = [run.name, *(run.value(name) for name in settings)]
            points = zip(found[over][known].tolist(), found[of][known].tolist(), strict=True)
            rows += [[*about, *point] for point in points]
        command = CommandRun("curves", (*self.words, "--x", over, "--y", of))
        if not rows:
            _ = command.drawn  # raises the error of the command
        return Curves(command, ResultTable(["run", *settings, over, of], rows))

    def best_lr(
        self, y: str | None = None, *, lr: str | None = None, size: str | None = None,
        at_tokens: str | int | None = None, any_data: bool = False,
    ) -> BestRates:  # fmt: skip
        """Best learning rate of each size, with its 95% interval and the law over width.

        Args:
            y: The loss (val_loss).
            lr: Column of the learning rate (lr).
            size: Column that names a size (model).
            at_tokens: Losses at this number of tokens, or `"common"`: the last number that all runs reached.
            any_data: Compare losses on different data.

        Raises:
            UserError: fewer than three rates, or losses that do not compare.
        """
        words = _flags(any_data=any_data, y=y, lr=lr, size=size, at_tokens=at_tokens)
        return BestRates(CommandRun("best-lr", (*self.words, *words)))

    def fit_power(
        self, x: str | None = None, y: str | None = None, *, method: str | None = None,
        fix_e: float | None = None, at: Sequence[float] = (), draws: int | None = None,
        any_data: bool = False,
    ) -> PowerFit:  # fmt: skip
        """Scaling law L = E + A x^-alpha through the best setting of each size.

        Args:
            x: Column: flops (for runs of ours), tokens, non_embedding, ...
            y: The loss (val_loss).
            method: `"least-squares"` of the loss, or `"huber"` of its logarithm.
            fix_e: E if it is known.
            at: Values of x at which to predict the loss.
            draws: Draws of the bootstrap.
            any_data: Compare losses on different data.

        Raises:
            UserError: too few sizes, losses that do not compare, or losses that do not fall with x.
        """
        fix = None if fix_e is None else f"E={fix_e!r}"
        places = ",".join(map(repr, map(float, at))) or None
        words = _flags(any_data=any_data, x=x, y=y, method=method, fix=fix, at=places, draws=draws)
        return PowerFit(CommandRun("fit", (*self.words, *words)))

    def __repr__(self) -> str:
        return "\n".join([summary(self.study), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in repr(self).splitlines())
        return lines + table_of(self.study.runs, shown_columns(self.study))._repr_html_()


def _flags(*, any_data: bool, **options: object) -> list[str]:
    """Arguments of a command: options that are None are left out."""
    words = ["--any-data"] if any_data else []
    for name, value in options.items():
        words += [] if value is None else [f"--{name.replace('_', '-')}={value}"]
    return words
