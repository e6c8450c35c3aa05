"""Rows wait on the device until a flush; a loss that is no number ends the run and names the step."""

from __future__ import annotations

import csv
import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import torch

from experiment_utils.display import ProgressLine
from training.devices.step_clock import HostMark, StepTime
from training.plan.run_plan import Plan
from training.report.metrics import MetricsFile
from training.report.progress import MOST_OVERFLOWS, NonFinite, Progress
from training.report.progress_line import MOVING, AboveMovingLine, narrowed
from training.step.train_step import StepResult

PLAN = cast(
    Plan,
    SimpleNamespace(budget=SimpleNamespace(batch_tokens=100, steps=10), flops_per_token=6.0, parameters=1),
)


def result(loss: float, norm: float = 1.0) -> StepResult:
    return StepResult(torch.tensor(loss), torch.tensor(norm))


def at(seconds: float) -> StepTime:
    mark = HostMark()
    return StepTime(seconds, mark, mark)


def start(path: Path, seconds: float = 0.0) -> Progress:
    return Progress(PLAN, MetricsFile(path, 0), seconds=seconds, peak_flops=6000.0)


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_rows_carry_totals_and_rates(tmp_path: Path) -> None:
    progress = start(tmp_path / "metrics.csv", seconds=5.0)
    progress.add(3, result(2.5), lr=0.1, ended=at(5.5))
    progress.add(4, result(2.0), lr=0.2, ended=at(6.0))
    assert read(tmp_path / "metrics.csv") == []
    progress.flush(val_loss=2.25)
    first, last = read(tmp_path / "metrics.csv")
    assert (first["step"], first["tokens"], first["train_loss"], first["val_loss"]) == ("3", "300", "2.5", "")
    assert (last["step"], last["val_loss"], last["lr"], last["flops"]) == ("4", "2.25", "0.2", "2400.0")
    assert (last["tokens_per_s"], last["mfu"]) == ("200.0", "0.2")
    assert "step      4/10 | loss 2.0000 | val 2.2500 | lr 2.00e-01" in progress.line()
    assert re.search(r" \| 200 tok/s \| MFU 20% \| memory [\d.]+ [MG]B \| 3\.0 s .*$", progress.line())


def test_without_a_known_peak_its_share_stays_empty(tmp_path: Path) -> None:
    progress = Progress(PLAN, MetricsFile(tmp_path / "metrics.csv", 0), seconds=0.0, peak_flops=None)
    progress.add(1, result(2.5), lr=0.1, ended=at(0.5))
    progress.flush()
    assert read(tmp_path / "metrics.csv")[0]["mfu"] == ""


@pytest.mark.parametrize(("loss", "norm"), [(float("nan"), 1.0), (float("inf"), 1.0), (2.0, float("inf"))])
def test_a_number_that_is_none_ends_the_run_at_its_step(tmp_path: Path, loss: float, norm: float) -> None:
    progress = start(tmp_path / "metrics.csv")
    progress.add(1, result(2.0), lr=0.1, ended=at(1.0))
    progress.add(2, result(loss, norm), lr=0.1, ended=at(2.0))
    progress.add(3, result(2.0), lr=0.1, ended=at(3.0))
    with pytest.raises(NonFinite, match=r"step 2: .*optimizer\.lr"):
        progress.flush()
    assert [row["step"] for row in read(tmp_path / "metrics.csv")] == ["1", "2"]


def test_a_check_finds_it_before_an_evaluation(tmp_path: Path) -> None:
    progress = start(tmp_path / "metrics.csv")
    progress.add(1, result(2.0), lr=0.1, ended=at(1.0))
    progress.check()
    assert read(tmp_path / "metrics.csv") == []
    progress.add(2, result(float("nan")), lr=0.1, ended=at(2.0))
    with pytest.raises(NonFinite, match="step 2"):
        progress.check()


def test_time_to_go_leaves_out_the_first_step_of_an_attempt(tmp_path: Path) -> None:
    """It takes longer: memory is new, kernels are looked for or compiled."""
    progress = start(tmp_path / "metrics.csv")
    progress.add(1, result(2.0), lr=0.1, ended=at(9.0))
    progress.flush()
    assert " s " not in progress.line()
    progress.add(2, result(2.0), lr=0.1, ended=at(10.0))
    progress.flush()
    assert "| 8.0 s " in progress.line()


def test_lines_are_logged_seldom_and_move_on_a_terminal_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("training.report.progress.time.monotonic", lambda: now[0])
    moved: list[str] = []

    class Terminal(AboveMovingLine):
        def emit(self, record: logging.LogRecord) -> None:
            moved.append(record.getMessage())

    caplog.set_level(logging.INFO)
    progress = start(tmp_path / "metrics.csv")
    terminal = Terminal(sys.stdout, ProgressLine(sys.stdout))
    for step, (seconds, has_terminal) in enumerate(
        [(0.0, False), (3.0, False), (3.0, True), (3.5, True), (4.2, True), (5.0, True)], start=1
    ):
        now[0] = 100.0 + seconds
        (MOVING.addHandler if has_terminal else MOVING.removeHandler)(terminal)
        progress.add(step, result(2.0), lr=0.1, ended=at(float(step)))
        progress.tell(5.0)
    MOVING.removeHandler(terminal)
    assert [line.split()[1] for line in moved] == ["3/10", "5/10"]
    logged = [record for record in caplog.records if record.name == "training"]
    assert [record.getMessage().split()[1] for record in logged] == ["1/10", "6/10"]
    assert all(record.__dict__["moves"] for record in logged)


def test_a_narrow_terminal_gets_whole_parts_of_a_line() -> None:
    line = "step    157/500 | loss 2.3755 | lr 1e-03 | grad 0.34 | 160,064 tok/s | memory 283 MB | 2.2 s"
    assert narrowed(line, 200) == line
    assert narrowed(line, 54) == "step    157/500 | loss 2.3755 | 160,064 tok/s | 2.2 s"
    assert narrowed(line, 39) == "step    157/500 | loss 2.3755 | 2.2 s"
    assert narrowed(line, 33) == "step    157/500 | loss 2.3755"
    assert narrowed(line, 20) == "step    157/500"


def scaled(loss: float, norm: float) -> StepResult:
    return StepResult(torch.tensor(loss), torch.tensor(norm), is_scaled=True)


def test_gradients_that_overflow_in_fp16_are_logged_and_no_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    progress = start(tmp_path / "metrics.csv")
    for step, norm in enumerate([float("inf"), float("nan"), 1.0], 1):
        progress.add(step, scaled(2.0, norm), lr=0.1, ended=at(float(step)))
    progress.check()
    with caplog.at_level(logging.INFO):
        progress.flush()
    assert "step 1, 2:" in caplog.text
    assert [row["grad_norm"] for row in read(tmp_path / "metrics.csv")] == ["inf", "nan", "1.0"]


@pytest.mark.parametrize(
    ("results", "last"),
    [([(float("nan"), 1.0)], 1), ([(2.0, float("inf"))] * (MOST_OVERFLOWS + 1), MOST_OVERFLOWS + 1)],
)
def test_fp16_ends_with_a_loss_that_is_none_or_overflows_without_end(
    results: list[tuple[float, float]], last: int, tmp_path: Path
) -> None:
    progress = start(tmp_path / "metrics.csv")
    for step, (loss, norm) in enumerate(results, 1):
        progress.add(step, scaled(loss, norm), lr=0.1, ended=at(float(step)))
    with pytest.raises(NonFinite, match=f"step {last}:"):
        progress.flush()
