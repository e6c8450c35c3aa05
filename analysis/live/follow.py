"""A study that goes on, as rows and curves; what is unchanged since a reader last asked is not sent again."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from analysis.columns import cell, varying_columns
from analysis.reading import Run, Study
from analysis.report.curves import coloring, curve_of
from analysis.report.page import subtitle
from analysis.report.runs import order
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_bytes, format_count, format_duration
from memory.report.page import Cell, Column, Tone

_VARYING = 4
_NEAR = 0.9
_TONES: dict[str, Tone] = {
    "done": "good",
    "failed": "bad",
    "oom": "bad",
    "stalled": "bad",
    "node_failed": "bad",
}


@dataclass
class Followed:
    """A run as it was last seen. row: its place in the page, for good. changed: version of the study then."""

    row: int
    run: Run
    cells: list[Cell]
    curve: dict[str, Any] | None = None
    stamp: tuple[int, int] | None = None
    changed: int = 0


@dataclass
class Follower:
    """read: the study, anew. every_s: it is not read more often. x, y: of foreign CSVs."""

    read: Callable[[], Study]
    every_s: float = 10.0
    x: str | None = None
    y: str | None = None
    version: int = 0
    columns: list[Column] = field(default_factory=list)
    trouble: str | None = None
    study: Study | None = None
    _runs: dict[str, Followed] = field(default_factory=dict)
    _read_s: float = -math.inf
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refresh(self) -> None:
        """Read it, unless that was done a moment ago.

        Raises:
            UserError: it was never read, and cannot be.
        """
        with self._lock:
            if time.monotonic() - self._read_s < self.every_s:
                return
            try:
                study = self.read()
                self.trouble = None
            except UserError as error:
                if self.study is None:
                    raise
                self.trouble = error.render()
            else:
                self._take(study)
            self._read_s = time.monotonic()

    def _take(self, study: Study) -> None:
        self.study = study
        names = _names(study)
        columns = _columns(names)
        is_new = columns != self.columns
        self.columns, self.version = columns, self.version + 1
        for run in study.runs:
            known = self._runs.get(str(run.folder))
            cells = cells_of(run, names)
            if known is None:
                known = self._runs[str(run.folder)] = Followed(
                    len(self._runs), run, cells, changed=self.version
                )
            if is_new or cells != known.cells:
                known.cells, known.changed = cells, self.version
            known.run = run
            self._look(known, len(study.runs))
        there = {str(run.folder) for run in study.runs}
        for folder, known in self._runs.items():
            if folder not in there and known.cells[-1].text != "its folder is gone":
                known.cells[-1] = Cell("its folder is gone", tone="bad")
                known.changed = self.version

    def _look(self, known: Followed, of: int) -> None:
        try:
            status = known.run.curve_file.stat()
        except OSError:
            return
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp == known.stamp:
            return
        try:
            known.curve = curve_of(known.run, known.row, of=of, x=self.x, y=self.y)
        except UserError:
            known.curve = None
        known.stamp, known.changed = stamp, self.version

    def runs(self) -> list[Followed]:
        """In the order of their rows."""
        with self._lock:
            return list(self._runs.values())

    def curves(self) -> list[dict[str, Any]]:
        """Of all runs that have one."""
        return [one.curve for one in self.runs() if one.curve is not None]

    def colors(self) -> list[dict[str, Any]]:
        """Columns that curves are coloured by."""
        return coloring([one.run for one in self.runs() if one.curve is not None])

    def told(self, since: int) -> dict[str, Any]:
        """What changed after version `since`. Keys of JSON; all texts are plain."""
        changed = [one for one in self.runs() if one.changed > since]
        return {
            "version": self.version,
            "subtitle": subtitle(self.study) if self.study is not None else "",
            "trouble": self.trouble,
            "titles": [column.title for column in self.columns],
            "rows": [{"row": one.row, "cells": list(map(_plain, one.cells))} for one in changed],
            "curves": [one.curve for one in changed if one.curve is not None],
            "by": self.colors() if changed else None,
        }


def cells_of(run: Run, varying: list[str]) -> list[Cell]:
    """The row of a run: how far it is, how it does, how long it still takes, how near its limit it came."""
    step, steps = run.number("step"), run.number("steps")
    share = step / steps if step is not None and steps else None
    done = "-" if step is None else f"{step:,.0f}" + (f" of {steps:,.0f}" if steps else "")
    left_s = _left_s(run, step, steps)
    peak, limit = run.number("peak_bytes"), run.number("limit_bytes")
    near = peak / limit if peak and limit else None
    tone: Tone = "bad" if near and near >= _NEAR else ""
    speed = run.number("tokens_per_s")
    why = "" if run.counts or not run.reason else run.reason
    state = "diverged" if run.has_diverged else run.state or "-"
    return [
        Cell(run.name, run.name),
        *(Cell(cell(name, run.value(name)), order(run.value(name))) for name in varying),
        Cell(state, state, tone="bad" if run.has_diverged else _TONES.get(state, "")),
        Cell(done, share, bar=share),
        _loss(run, "train_loss"),
        _loss(run, "val_loss"),
        Cell("-" if not speed else format_count(round(speed)), speed),
        Cell("-" if left_s is None else format_duration(left_s), left_s),
        Cell("-" if not peak else format_bytes(peak), near, bar=near, tone=tone),
        Cell(why, why),
    ]  # fmt: skip


def _names(study: Study) -> list[str]:
    if study.is_ours:
        return varying_columns(study.runs)[:_VARYING]
    return sorted(study.named_facts)[:_VARYING]


def _columns(names: list[str]) -> list[Column]:
    numbers = ("lr", "seed")
    varying = [Column(name, is_number=name in numbers) for name in names]
    return [
        Column("run"), *varying, Column("state"), Column("steps", True), Column("train loss", True),
        Column("val loss", True), Column("tokens/s", True), Column("left", True), Column("memory", True),
        Column("why", is_long=True),
    ]  # fmt: skip


def _left_s(run: Run, step: float | None, steps: float | None) -> float | None:
    """Of training alone, at the pace so far; None where it does not go on."""
    seconds = run.number("seconds")
    if run.state not in ("running", "stalled") or not step or not steps or not seconds:
        return None
    return max(0.0, (steps - step) * seconds / step)


def _loss(run: Run, name: str) -> Cell:
    value = run.number(name)
    return Cell(cell(name, value), value if value is not None and math.isfinite(value) else None)


def _plain(one: Cell) -> dict[str, Any]:
    told: dict[str, Any] = {"text": one.text}
    if one.value is not None:
        told["value"] = one.value
    if one.tone:
        told["tone"] = one.tone
    if one.bar is not None:
        told["bar"] = min(1.0, max(0.0, one.bar))
    return told
