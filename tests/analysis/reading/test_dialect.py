from __future__ import annotations

from pathlib import Path

import pytest

from analysis.reading import curve, read_study
from analysis.reading.dialect import dialect_of
from tests.golden_text import Golden

ROWS = [["step", "loss", "tokens"], ["1", "4.5", "1000"], ["2", "4.25", "2000"]]


def study_of(folder: Path, text: str) -> Path:
    (folder / "a.csv").write_text(text)
    return folder


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_is_found(tmp_path: Path, separator: str) -> None:
    text = "".join(separator.join(row) + "\n" for row in ROWS)
    run = read_study([str(study_of(tmp_path, text))]).runs[0]
    assert (run.value("loss"), run.value("tokens")) == (4.25, 2000)
    assert curve(run, ["loss"])["loss"].tolist() == [4.5, 4.25]


def test_a_comma_between_semicolons_is_a_decimal_point(tmp_path: Path) -> None:
    run = read_study([str(study_of(tmp_path, "step;loss\n1;4,5\n2;4,25e0\n"))]).runs[0]
    assert run.value("loss") == 4.25
    assert curve(run, ["loss"])["loss"].tolist() == [4.5, 4.25]


@pytest.mark.parametrize(
    ("header", "first", "separator"),
    [
        ("note; and more,loss", "a; b,3", ","),
        ("loss", "3", ","),
        ("note, a;loss;tokens", "b;3;4", ";"),
        ('"a;b",loss', '"c;d",3', ","),
        ("loss;tokens", "", ","),
    ],
)
def test_words_are_not_cut(header: str, first: str, separator: str) -> None:
    assert dialect_of(header, first).separator == separator


def test_bytes_that_are_no_csv_are_skipped_with_a_note(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "good.csv").write_text("step,loss\n1,3\n")
    (tmp_path / "junk.csv").write_bytes(b'a,b\n"1"\rx,2\n')
    study = read_study([str(tmp_path)])
    assert [run.name for run in study.runs] == ["good"]
    golden.text("\n".join(f"{path.name}: {why}" for path, why in study.skipped))


def test_two_columns_of_one_name_are_refused(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.csv").write_text("step,loss,loss\n1,3,4\n")
    golden.text(read_study([str(tmp_path)]).skipped[0][1])


def test_other_programs_leave_the_last_line_without_an_end(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes('\ufeffstep,"val loss"\r\n1,2.5\r\n2,2.25'.encode())
    run = read_study([str(tmp_path)]).runs[0]
    assert (run.value("step"), run.value("val loss"), run.damage) == (2, 2.25, ())


def test_lines_that_a_full_disk_left_are_counted(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.csv").write_bytes(b"time,loss\n2026-11-03 11:00,2.25\n\0\0\0,\0\0\n")
    run = read_study([str(tmp_path)]).runs[0]
    assert run.value("loss") == 2.25
    golden.text(run.damage[0])
