from __future__ import annotations

import math
from pathlib import Path

import pytest

from analysis.reading.tail import Tail, last_of, number, read_tail

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
        (HEADER + "1,5.5,\n2,5.2", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n2,5.2\n", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n\x00\x00\x00\n", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n2,5.2.7,\n", ("1", "5.5", ""), 1),
        (HEADER + "1,5.5,\n2,nan,\n\n", ("2", "nan", ""), 0),
        (HEADER, None, 0),
        ("step,trai", None, 0),
        (HEADER + "1,5.", None, 1),
    ],
)
def test_the_last_whole_row_is_found(
    tmp_path: Path, text: str, row: tuple[str, ...] | None, torn: int
) -> None:
    found = read_tail(written(tmp_path, text))
    assert (found.row, found.torn) == (row, torn)


def test_an_empty_file_has_no_columns(tmp_path: Path) -> None:
    assert read_tail(written(tmp_path, "")) == Tail((), None)


def test_a_long_file_is_read_from_its_end_alone(tmp_path: Path) -> None:
    rows = "".join(f"{step},{5 + step / 1000},\n" for step in range(10_000))
    assert read_tail(written(tmp_path, HEADER + rows)).row == ("9999", "14.999", "")


def test_a_torn_end_longer_than_one_look_is_passed_over(tmp_path: Path) -> None:
    found = read_tail(written(tmp_path, HEADER.encode() + b"7,5.5,\n" + b"\x00" * 50_000))
    assert found.row == ("7", "5.5", "")


def test_the_last_value_of_a_sparse_column(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER + "1,5.5,5.0\n2,5.25,\n3,5.2,4.8\n4,5.1,\n5,5.1,4.")
    assert last_of(path, "val_loss") == 4.8
    assert last_of(path, "lr") is None


def test_numbers() -> None:
    assert number(" ") is None
    assert number("5e3") == 5000
    assert math.isnan(number("nan") or 0)
