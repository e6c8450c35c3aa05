"""Rows of metrics.csv that are whole are read, those that are torn are counted."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment_utils.metrics_file import _TAIL_BYTES, Tail, read_columns, read_tail

HEADER = "step,train_loss,val_loss\n"


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "metrics.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("text", "row", "torn"),
    [
        (HEADER + "1,5.5,\n2,5.25,5.0\n", ("2", "5.25", "5.0"), 0),
        (HEADER + "1,5.5,\n2,5.25,5.0", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n2,5.2\n", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n\x00\x00\x00\n", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n2,5.2.7,\n", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n2,nan,\n\n", ("2", "nan", ""), 0),
        (HEADER, None, 0),
        ("step,trai", None, 0),
        (HEADER + "1,5.", None, 1),
    ],
)
def test_last_whole_row(tmp_path: Path, text: str, row: tuple[str, ...] | None, torn: int) -> None:
    found = read_tail(written(tmp_path, text))
    assert (found.row, found.torn) == (row, torn)


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    path = written(tmp_path, "")
    assert read_tail(path) == Tail((), None)
    assert (read_columns(path).names, read_columns(path).values) == ((), {})


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    rows = "".join(f"{step},{5 + step / 1000},\n" for step in range(10_000))
    found = read_tail(written(tmp_path, HEADER + rows))
    assert found.row == ("9999", "14.999", "")
    assert sum(map(len, found.lines)) <= _TAIL_BYTES
    first, last = found.first(("step", "train_loss")), found.last(("step", "train_loss"))
    assert first
    assert last
    assert 9000 < first["step"] < last["step"] == 9999


def test_a_torn_end_longer_than_one_look_is_passed_over(tmp_path: Path) -> None:
    found = read_tail(written(tmp_path, HEADER.encode() + b"7,5.5,\n" + b"\x00" * 50_000))
    assert (found.row, found.torn) == (("7", "5.5", ""), 1)


def test_first_and_last_need_finite_numbers(tmp_path: Path) -> None:
    found = read_tail(written(tmp_path, HEADER + "1,nan,\n2,5.5,\n3,x,\n4,5.25,\n5,inf,\n"))
    assert found.first(("step", "train_loss")) == {"step": 2, "train_loss": 5.5}
    assert found.last(("step", "train_loss")) == {"step": 4, "train_loss": 5.25}
    assert found.last(("step", "lr")) is None


def test_columns_by_name(tmp_path: Path) -> None:
    found = read_columns(
        written(tmp_path, HEADER + "1,5.5,\n2,5.25,5\n3,5.0\n4,4"), ["val_loss", "lr", "step"]
    )
    assert found.names == ("step", "train_loss", "val_loss")
    assert repr(found.values) == repr({"val_loss": [math.nan, 5.0], "step": [1.0, 2.0]})
    assert found.torn == 2


@pytest.mark.parametrize(
    ("odd", "torn"),
    [("nan", 0), (".5", 0), ("", 0), ("+1", 0), ('"7"', 0), ("true", 1), ("[1]", 1), ("{}", 1), ("x", 1)],
)
def test_one_odd_row_changes_no_other(tmp_path: Path, odd: str, torn: int) -> None:
    rows = [f"{n},{n / 7!r},{'' if n % 3 else n}" for n in range(10)]
    plain = read_columns(written(tmp_path, HEADER + "\n".join(rows) + "\n"))
    rows[3] = f"3,{odd},"
    found = read_columns(written(tmp_path, HEADER + "\n".join(rows) + "\n"))
    for name, column in plain.values.items():
        assert repr(column[:3]) == repr(found.values[name][:3])
        assert repr(column[4:]) == repr(found.values[name][-6:])
    assert (len(found.values["step"]), found.torn) == (10 - torn, torn)


def test_fewer_rows_keep_the_last_and_the_evaluated(tmp_path: Path) -> None:
    rows = [f"{n},1,{'' if n % 100 else 2},4" for n in range(1, 5001)]
    path = written(tmp_path, "step,train_loss,val_loss,lr\n" + "\n".join(rows) + "\n")
    found = read_columns(path, rows=300).values
    assert 150 <= len(found["step"]) <= 450
    assert found["step"] == sorted({*found["step"]})
    assert (found["step"][0], found["step"][-1]) == (1, 5000)
    evaluated = [step for step, loss in zip(found["step"], found["val_loss"], strict=True) if loss == 2]
    assert evaluated == [float(n) for n in range(100, 5001, 100)]


@given(content=st.binary(max_size=200) | st.text('0123456789.,\n-naife"', max_size=200).map(str.encode))
def test_any_bytes_are_read_without_an_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(content)
    tail = read_tail(path)
    assert tail.row is None or len(tail.row) == len(tail.columns)
    tail.first(tail.columns)
    for found in (read_columns(path), read_columns(path, rows=3)):
        assert len({len(column) for column in found.values.values()}) <= 1
