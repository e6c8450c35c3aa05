"""Curves in few points are those of the run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from made_sweeps import make_one

from analysis.reading import Run, curve, read_study
from analysis.report.downsample import TRAIN, VAL, thin_curves


def run_of(tmp_path: Path, steps: int = 1000) -> Run:
    make_one(tmp_path / "s", 32, 0.01, 0, steps=steps)
    return read_study([str(tmp_path / "s")]).runs[0]


def test_a_short_run_is_told_whole(tmp_path: Path) -> None:
    run = run_of(tmp_path, 40)
    whole = curve(run, ["tokens", TRAIN, VAL])
    found = thin_curves(run, 50)
    assert found[TRAIN].y == whole[TRAIN].tolist()
    assert found[TRAIN].x["tokens"] == whole["tokens"].tolist()
    assert found[VAL].y == whole[VAL][~np.isnan(whole[VAL])].tolist()


def test_points_are_means_of_their_stretches(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    whole = curve(run, ["tokens", TRAIN])
    found = thin_curves(run, 60)[TRAIN]
    assert 40 <= len(found.y) <= 62
    near = np.interp(found.x["tokens"], whole["tokens"], whole[TRAIN])
    assert np.allclose(found.y, near, atol=0.02)
    assert found.x["tokens"][0] < 3 * 4096, "the first steps, where a log axis begins, are there"


def test_some_rows_of_many_draw_the_same_curve(tmp_path: Path) -> None:
    run = run_of(tmp_path, 3000)
    all_of_them, some = thin_curves(run, 40), thin_curves(run, 40, rows=300)
    assert some[VAL] == all_of_them[VAL]
    near = np.interp(some[TRAIN].x["tokens"], all_of_them[TRAIN].x["tokens"], all_of_them[TRAIN].y)
    assert np.allclose(some[TRAIN].y, near, atol=0.03)


@pytest.mark.parametrize("ending", ["3001,1228", "3001,2,3\n", "3001,12288000,5.0,,x,1,1,1,1,\n"])
def test_a_torn_row_costs_no_other(tmp_path: Path, ending: str) -> None:
    run = run_of(tmp_path, 100)
    before = thin_curves(run, 200)
    with open(run.curve_file, "a") as file:
        file.write(ending)
    after = thin_curves(run, 200)
    assert after[TRAIN].y[:100] == before[TRAIN].y


def test_a_torn_row_amid_others_is_left_out(tmp_path: Path) -> None:
    run = run_of(tmp_path, 100)
    lines = run.curve_file.read_text().splitlines(keepends=True)
    lines[50] = "50,20\n"
    run.curve_file.write_text("".join(lines))
    assert len(thin_curves(run, 200)[TRAIN].y) == 99


def test_a_stretch_with_nan_is_nan(tmp_path: Path) -> None:
    run = run_of(tmp_path, 1000)
    with open(run.curve_file, "a") as file:
        file.write("1001,4100096,nan,,0.1,nan,1e12,10.01,33000.0,\n")
    found = thin_curves(run, 60, rows=300)[TRAIN]
    assert math.isnan(found.y[-1])
    assert not any(map(math.isnan, found.y[:-1]))
