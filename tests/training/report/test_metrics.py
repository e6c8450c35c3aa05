"""metrics.csv reads back exactly and is cut back to a checkpoint without holes or doubles."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_text import Golden
from training.report.metrics import COLUMNS, MetricsFile, Row, RowsFile, append_records, cut_records


def row(step: int, **changes: float) -> Row:
    values = {
        "step": step, "tokens": step * 4096, "train_loss": 5.0 / step, "val_loss": None, "lr": 1e-3,
        "grad_norm": 0.1, "flops": 1e9 * step, "seconds": step / 3, "tokens_per_s": 1e5, "mfu": 0.2,
    }  # fmt: skip
    return Row(**(values | changes))  # type: ignore[arg-type]


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, last_step: int) -> None:
    metrics = MetricsFile(path, 0)
    metrics.append([row(step) for step in range(1, last_step + 1)])
    metrics.close()


def test_header_is_the_contract(tmp_path: Path) -> None:
    MetricsFile(tmp_path / "metrics.csv", 0).close()
    assert (tmp_path / "metrics.csv").read_text() == (
        "step,tokens,train_loss,val_loss,lr,grad_norm,flops,seconds,tokens_per_s,mfu\n"
    )


@given(loss=st.floats(), norm=st.floats(allow_nan=False))
def test_floats_read_back_as_the_same_number(
    tmp_path_factory: pytest.TempPathFactory, loss: float, norm: float
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.csv"
    metrics = MetricsFile(path, 0)
    metrics.append([row(1, train_loss=loss, grad_norm=norm)])
    metrics.close()
    found = read(path)[0]
    assert float(found["train_loss"]) == loss or (math.isnan(loss) and math.isnan(float(found["train_loss"])))
    assert float(found["grad_norm"]) == norm
    assert found["val_loss"] == ""


@pytest.mark.parametrize("kept", [0, 1, 7, 10, 12])
def test_resume_keeps_exactly_the_steps_of_the_checkpoint(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "metrics.csv"
    write(path, 10)
    metrics = MetricsFile(path, kept)
    metrics.append([row(min(kept, 10) + 1)])
    metrics.close()
    assert [int(line["step"]) for line in read(path)] == list(range(1, min(kept, 10) + 2))


@given(cut=st.integers(0, 400))
def test_a_torn_last_line_is_dropped_wherever_it_was_torn(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("metrics") / "metrics.csv"
    write(path, 5)
    content = path.read_bytes()
    path.write_bytes(content[: max(0, len(content) - cut)])
    whole_lines = path.read_bytes().count(b"\n")
    MetricsFile(path, 5).close()
    steps = [int(line["step"]) for line in read(path)]
    assert steps == list(range(1, max(1, whole_lines)))
    assert path.read_text().startswith(",".join(COLUMNS) + "\n")


def test_evaluations_are_cut_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    cut_records(path, 5, [])
    for step in (2, 4, 6):
        append_records(path, {"step": step, "loss": 1 / step})
    with open(path, "a") as file:
        file.write('{"step": 8, "lo')
    cut_records(path, 4, [2, 4, 6])
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [2, 4]


def test_lines_that_were_lost_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    write(tmp_path / "metrics.csv", 10)
    lines = (tmp_path / "metrics.csv").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.csv").write_text("".join([*lines[:3], "garbage\n", *lines[7:]]))
    MetricsFile(tmp_path / "metrics.csv", 9).close()
    assert [int(line["step"]) for line in read(tmp_path / "metrics.csv")] == [1, 2, 7, 8, 9]
    (tmp_path / "evals.jsonl").write_text('{"step": 2}\n[]\n{"step": 4')
    cut_records(tmp_path / "evals.jsonl", 9, [2, 4, 6, 10])
    MetricsFile(tmp_path / "none.csv", 0).close()
    MetricsFile(tmp_path / "gone.csv", 350).close()
    cut_records(tmp_path / "gone.jsonl", 0, [2, 4])
    assert "none.csv" not in caplog.text
    assert "gone.jsonl" not in caplog.text
    golden.text("\n".join(caplog.messages))


def test_columns_added_between_attempts_keep_every_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text('step,train_loss,theirs\n1,5.5,a\n2,5.25,"b,c"\n3,5.125,d\n')
    before = path.read_bytes()
    metrics = MetricsFile(path, 2)
    metrics.append([row(3)])
    metrics.close()
    found = read(path)
    assert list(found[0]) == [*COLUMNS, "theirs"]
    assert [(one["step"], one["train_loss"], one["theirs"]) for one in found] == [
        ("1", "5.5", "a"), ("2", "5.25", "b,c"), ("3", repr(5.0 / 3), ""),
    ]  # fmt: skip
    assert [one["tokens"] for one in found] == ["", "", str(3 * 4096)]
    assert (tmp_path / "metrics.csv.old-1").read_bytes() == before


def test_columns_taken_away_between_attempts_stay(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write(path, 4)
    fewer = RowsFile(path, 3, ("step", "train_loss"))
    fewer.append([row(4)])
    fewer.close()
    assert [one["lr"] for one in read(path)] == ["0.001"] * 4
    MetricsFile(path, 4).close()
    assert tuple(read(path)[0]) == COLUMNS
    assert len(read(path)) == 4


def test_a_byte_order_mark_before_the_header_loses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write(path, 3)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    MetricsFile(path, 2).close()
    assert [one["step"] for one in read(path)] == ["1", "2"]
    (tmp_path / "evals.jsonl").write_bytes(b'\xef\xbb\xbf{"step": 2}\n')
    cut_records(tmp_path / "evals.jsonl", 2, [2])
    assert (tmp_path / "evals.jsonl").read_text() == '{"step": 2}\n'


def test_a_header_inside_the_file_counts_for_the_rows_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_text("step,lr\n1,0.5\nlr,step\n0.25,2\n")
    MetricsFile(path, 2).close()
    assert [(one["step"], one["lr"]) for one in read(path)] == [("1", "0.5"), ("2", "0.25")]


def test_a_file_with_lines_that_cannot_be_read_is_kept_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "metrics.csv", 3)
    (tmp_path / "evals.jsonl").write_text('{"step": 2}\ngarbage\n')
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("4,1\n")
    before = {name: (tmp_path / name).read_bytes() for name in ("metrics.csv", "evals.jsonl")}
    for _ in range(2):
        MetricsFile(tmp_path / "metrics.csv", 3).close()
        cut_records(tmp_path / "evals.jsonl", 3, [2])
    assert {name: (tmp_path / f"{name}.old-1").read_bytes() for name in before} == before
    assert not list(tmp_path.glob("*.old-2"))
    assert [one["step"] for one in read(tmp_path / "metrics.csv")] == ["1", "2", "3"]


def test_an_extra_evaluation_is_dropped_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "evals.jsonl"
    append_records(path, {"step": 2}, {"step": 3, "extra": True})
    cut_records(path, 5, [2])
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [2]
    assert not list(tmp_path.glob("*.old-*"))
