"""The points of one run: what its rows, evaluations and memory records say of each step, in order."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from analysis.export.clock import WallClock
from analysis.export.tail_file import GrowingCsv, GrowingRecords
from experiment_utils.json_values import at_path, csv_number, finite, integer, is_number
from experiment_utils.run_folder import RunFolder
from experiment_utils.safe_read import changed_s

_OF_A_ROW = ("train_loss", "val_loss", "lr", "grad_norm", "flops", "seconds", "tokens_per_s", "mfu")
_OF_AN_EVALUATION = {"loss": "val_loss", "perplexity": "perplexity", "bits_per_byte": "bits_per_byte"}


@dataclass(frozen=True)
class Point:
    """A step. time_s: Unix time of its end. values: series to number, which may be nan; names are those of
    docs/run-folder.md, with `/SOURCE` behind them where they are of one source of a mixture.
    """

    step: int
    time_s: float
    tokens: float | None
    values: Mapping[str, float]


class Series:
    """Points of the run of a folder, as they come. after: the step that the reader has already.

    every: steps from one point to the next; the first, the last, and those with an evaluation are
    always there.
    """

    def __init__(self, folder: Path, attempts: Any = None, *, after: int = 0, every: int = 1) -> None:
        self._metrics = GrowingCsv(folder / "metrics.csv")
        self._sources_path = folder / "sources.csv"
        self._sources = GrowingCsv(self._sources_path)
        self._evals = GrowingRecords(folder / "evals.jsonl")
        self._earlier = [
            GrowingRecords(place / "memory.jsonl") for place in RunFolder(folder).attempt_folders()
        ]
        self._memory = GrowingRecords(folder / "memory.jsonl")
        self._clock = WallClock(attempts, changed_s(folder / "metrics.csv"))
        self._own = tuple(RunFolder(folder).own_metrics)
        self._after, self._every = after, every
        self._held: list[dict[str, str]] = []
        self._ahead: dict[str, str] | None = None
        self._of_evals: dict[int, dict[str, float]] = {}
        self._unreclaimable: deque[tuple[float, float]] = deque()
        self._passed: Point | None = None
        self._carried: dict[str, float] = {}

    def new(self, *, is_over: bool) -> Iterator[Point]:
        """Points that came since the last call. is_over: no more will come, so the rest is returned."""
        # An evaluation is written before the row of its step, the rows of its sources right behind it:
        # so the rows that are there now come first, and those whose sources lack still wait.
        rows = chain(self._held, self._metrics.rows())
        self._held = []
        self._read_records()
        is_mixture, sources = self._sources_path.exists(), self._sources.rows()
        for row in rows:
            step = _step(row)
            if step is None:
                continue
            of_sources = self._sources_of(step, sources)
            if is_mixture and not of_sources and not is_over and step > self._after:
                self._held = [row, *rows]
                return
            time_s = self._clock.time_of(step, csv_number(row.get("seconds")) or 0.0)
            if step <= self._after:  # the reader has it; or the run went on from an earlier step
                continue
            self._after = step
            names = (*_OF_A_ROW, *self._own)
            values = {name: found for name in names if (found := csv_number(row.get(name))) is not None}
            values |= of_sources | self._of_evals.pop(step, {})
            self._carried |= self._memory_at(time_s)
            point = Point(step, time_s, csv_number(row.get("tokens")), values)
            is_due = step == 1 or step % self._every == 0 or "val_loss" in values or _is_lost(values)
            self._passed = None if is_due else point
            if is_due:
                yield self._with_carried(point)
        if is_over and self._passed is not None:
            yield self._with_carried(self._passed)
            self._passed = None

    def _with_carried(self, point: Point) -> Point:
        carried, self._carried = self._carried, {}
        return replace(point, values={**point.values, **carried})

    def _read_records(self) -> None:
        for record in self._evals.records():
            step, source = record.get("step"), str(record.get("source", "val"))
            if not isinstance(step, int) or record.get("extra"):
                continue
            behind = source.partition("/")[1] + source.partition("/")[2]
            own = {name: name for name in self._own} if behind else {}
            for key, name in (_OF_AN_EVALUATION | own).items():
                if is_number(record.get(key)):
                    self._of_evals.setdefault(step, {})[name + behind] = float(record[key])
        of_earlier, self._earlier = self._earlier, []
        for record in chain(*(one.records() for one in of_earlier), self._memory.records()):
            self._clock.add(record)
            held, time_s = (
                integer(at_path(record, "snapshot.unreclaimable_bytes")),
                finite(record.get("time_s")),
            )
            if held is not None and time_s is not None:
                self._unreclaimable.append((time_s, float(held)))

    def _memory_at(self, time_s: float) -> dict[str, float]:
        """The last measurement, if it is new."""
        found = {}
        while self._unreclaimable and self._unreclaimable[0][0] <= time_s:
            found = {"unreclaimable_bytes": self._unreclaimable.popleft()[1]}
        return found

    def _sources_of(self, step: int, rows: Iterator[dict[str, str]]) -> dict[str, float]:
        found: dict[str, float] = {}
        while True:
            row, self._ahead = self._ahead or next(rows, None), None
            if row is None:
                return found
            if (at := _step(row) or 0) > step:
                self._ahead = row
                return found
            if at == step:
                for name in ("train_loss", "tokens"):
                    if (value := csv_number(row.get(name))) is not None:
                        found[f"{name}/{row.get('source')}"] = value


def _is_lost(values: Mapping[str, float]) -> bool:
    return not all(map(math.isfinite, values.values()))


def _step(row: Mapping[str, str]) -> int | None:
    text = row.get("step", "")
    return int(text) if text.isdecimal() else None
