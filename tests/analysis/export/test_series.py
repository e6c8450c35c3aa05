"""The points of a run: every row once, in order, with what belongs to its step, also while it is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from analysis.export.clock import WallClock
from analysis.export.series import Series
from analysis.export.tail_file import GrowingCsv, GrowingFile
from experiment_utils import atomic_files

COLUMNS = "step,tokens,train_loss,val_loss,lr,grad_norm,flops,seconds,tokens_per_s,mfu\n"


def row(step: int, loss: float = 2.0, seconds: float | None = None) -> str:
    return (
        f"{step},{64 * step},{loss},,0.1,1.5,{1e6 * step},{step / 10 if seconds is None else seconds},640,\n"
    )


def lines_of(file: GrowingFile) -> list[str]:
    return [line for _, line in file.lines()]


def test_lines_come_once_and_only_when_they_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    file = GrowingFile(path)
    assert lines_of(file) == []
    path.write_text("a\nb\nhal")
    assert list(file.lines()) == [(True, "a"), (False, "b")]
    assert lines_of(file) == []
    with open(path, "a") as more:
        more.write("f\r\nc\n")
    assert lines_of(file) == ["half", "c"]


def test_a_line_longer_than_a_block_is_one(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("x" * 3_000_000 + "\nb\n")
    assert [len(line) for line in lines_of(GrowingFile(tmp_path / "rows"))] == [3_000_000, 1]


def test_a_file_that_was_replaced_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,x\n1,1\n2,2\n3,3\n")
    file = GrowingCsv(path)
    assert [found["step"] for found in file.rows()] == ["1", "2", "3"]
    atomic_files.write_text(path, "step,x\n1,1\n2,2\n")  # as a resume cuts it back
    with open(path, "a") as more:
        more.write("3,3\n4,4\n5,5\n")
    assert [found["step"] for found in file.rows()] == ["1", "2", "3", "4", "5"]


def test_rows_become_points_as_they_come(tmp_path: Path) -> None:
    series = Series(tmp_path)
    assert list(series.new(is_over=False)) == []
    (tmp_path / "metrics.csv").write_text(COLUMNS + row(1) + row(2))
    (tmp_path / "evals.jsonl").write_text(
        json.dumps({"step": 2, "source": "val", "loss": 1.5, "perplexity": 4.5, "bits_per_byte": None}) + "\n"
        + json.dumps({"step": 2, "source": "val", "loss": 9.0, "extra": True}) + "\n"
    )  # fmt: skip
    first, second = series.new(is_over=False)
    assert (first.step, first.tokens, first.values["train_loss"]) == (1, 64.0, 2.0)
    assert "val_loss" not in first.values
    assert "mfu" not in first.values
    assert second.values["val_loss"] == 1.5
    assert second.values["perplexity"] == 4.5
    assert "bits_per_byte" not in second.values
    with open(tmp_path / "metrics.csv", "a") as more:
        more.write(row(3, math.nan) + "4,25")
    (third,) = series.new(is_over=True)
    assert third.step == 3
    assert math.isnan(third.values["train_loss"])


def test_a_resumed_run_gives_no_step_twice(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text(COLUMNS + "".join(map(row, range(1, 8))))
    series = Series(tmp_path)
    steps = [point.step for point in series.new(is_over=False)]
    atomic_files.write_text(path, COLUMNS + "".join(map(row, range(1, 5))))
    steps += [point.step for point in series.new(is_over=False)]
    with open(path, "a") as more:
        more.write("".join(map(row, range(5, 11))))
    steps += [point.step for point in series.new(is_over=True)]
    assert steps == list(range(1, 11))


def test_what_the_reader_has_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(COLUMNS + "".join(map(row, range(1, 8))))
    assert [point.step for point in Series(tmp_path, after=5).new(is_over=True)] == [6, 7]


def test_every_nth_step_with_the_first_the_last_and_the_evaluated(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(COLUMNS + "".join(map(row, range(1, 24))))
    (tmp_path / "evals.jsonl").write_text(json.dumps({"step": 13, "source": "val", "loss": 1.5}) + "\n")
    series = Series(tmp_path, every=10)
    assert [point.step for point in series.new(is_over=False)] == [1, 10, 13, 20]
    assert [point.step for point in series.new(is_over=True)] == [23]


def test_sources_of_a_mixture_stand_beside_the_mean_and_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(COLUMNS + row(1) + row(2))
    header = "step,source,tokens,train_loss\n"
    (tmp_path / "sources.csv").write_text(header + "1,web,48,2.5\n1,code,16,\n")
    (tmp_path / "evals.jsonl").write_text(
        "".join(json.dumps({"step": 1, "source": name, "loss": loss}) + "\n"
                for name, loss in (("val/web", 2.25), ("val/code", 1.25), ("val", 2.0)))
    )  # fmt: skip
    series = Series(tmp_path)
    (first,) = series.new(is_over=False)
    assert first.values["train_loss/web"] == 2.5
    assert "train_loss/code" not in first.values
    assert first.values["tokens/code"] == 16
    assert (first.values["val_loss"], first.values["val_loss/web"], first.values["val_loss/code"]) == (
        2.0, 2.25, 1.25,
    )  # fmt: skip
    with open(tmp_path / "sources.csv", "a") as more:
        more.write("2,web,96,2.0\n2,code,32,1.0\n")
    (second,) = series.new(is_over=False)
    assert (second.step, second.values["train_loss/code"]) == (2, 1.0)


def begin(stage: str, step: int, time_s: float, held: int = 0, **more: Any) -> dict[str, Any]:
    snapshot = {"unreclaimable_bytes": held}
    return {"event": "begin", "stage": stage, "facts": {"step": step}, "time_s": time_s,
            "depth": 0, "snapshot": snapshot} | more  # fmt: skip


def test_times_are_those_of_the_stage_and_the_seconds_since() -> None:
    clock = WallClock([{"started_s": 900.0, "resumed_from_step": 0}], 0.0)
    for record in (begin("first_step", 0, 1000.0), begin("train", 1, 1010.0), begin("evaluate", 3, 1050.0),
                   begin("train", 3, 1100.0)):  # fmt: skip
        clock.add(record)
    seconds = {1: 2.0, 2: 2.5, 3: 3.0, 4: 3.5, 5: 4.0}
    assert [clock.time_of(step, at) for step, at in seconds.items()] == [
        1002.0,
        1010.5,
        1011.0,
        1100.5,
        1101.0,
    ]


def test_times_of_an_attempt_that_was_undone_are_not_taken() -> None:
    clock = WallClock(None, 0.0)
    for record in (begin("first_step", 0, 1000.0), begin("train", 1, 1001.0), begin("train", 4, 1040.0),
                   begin("first_step", 2, 2000.0), begin("train", 3, 2002.0)):  # fmt: skip
        clock.add(record)
    assert [clock.time_of(step, float(step)) for step in range(1, 6)] == [
        1001.0,
        1002.0,
        2001.0,
        2003.0,
        2004.0,
    ]


def test_without_stages_attempts_tell_the_time_and_else_the_file() -> None:
    attempts = [{"started_s": 500.0, "resumed_from_step": 0}, {"started_s": 800.0, "resumed_from_step": 2}]
    clock = WallClock(attempts, 0.0)
    assert [clock.time_of(step, float(step)) for step in (1, 2, 3, 4)] == [501.0, 502.0, 801.0, 802.0]
    assert WallClock(None, 77.0).time_of(1, 1.0) == 78.0


def test_memory_stands_at_the_next_step_after_it_was_measured(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(COLUMNS + row(1, seconds=1) + row(2, seconds=2) + row(3, seconds=3))
    records = [begin("first_step", 0, 1000.0, 10), begin("train", 1, 1001.5, 20)]
    (tmp_path / "memory.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    points = list(Series(tmp_path).new(is_over=True))
    assert [point.values.get("unreclaimable_bytes") for point in points] == [10, 20, None]
    assert [point.time_s for point in points] == [1001.0, 1002.5, 1003.5]


@pytest.mark.parametrize(
    "damage", ["", "step\n", "no,header\n1,2\n", "\x00\x01\n" * 5, COLUMNS + "1,2\n,,\nx\n"]
)
def test_nothing_that_a_file_holds_raises(tmp_path: Path, damage: str) -> None:
    for name in ("metrics.csv", "sources.csv", "evals.jsonl", "memory.jsonl"):
        (tmp_path / name).write_text(damage)
    assert list(Series(tmp_path, "no attempts").new(is_over=True)) == []


def test_all_of_a_made_run(done_run: Any, new_run: Callable[..., Any]) -> None:
    points = list(Series(done_run.path).new(is_over=True))
    assert [point.step for point in points] == list(range(1, 501))
    assert sum("val_loss" in point.values for point in points) == 10
    assert all(later.time_s > point.time_s for point, later in pairwise(points))
