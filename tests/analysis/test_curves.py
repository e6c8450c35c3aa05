"""`python -m analysis curves`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_sweeps import make_one, make_sweep, say

from analysis.__main__ import main
from analysis.curve_plot import bundles_of, curve_panels
from analysis.panels import panels_figure
from analysis.reading import read_study
from tests.golden_text import Golden


@pytest.fixture
def sweep(new_run: Callable[..., Any]) -> Path:
    """Two rates of three seeds, a run that exploded and one that is queued."""
    for lr in (0.003, 0.01):
        for seed in range(3):
            made = new_run(f"r{lr:g}-{seed}")
            made.config(lr=lr)
            path = made.path / "config.yaml"
            path.write_text(path.read_text().replace("\nseed: 0\n", f"\nseed: {seed}\n"))
            made.status()
            made.run(identity=f"{lr}{seed}".rjust(64, "0"), results={})
            made.losses(100, floor=2 + 30 * lr + 0.1 * seed, seed=seed)
    lost = new_run("r1-0")
    lost.config(lr=1.0)
    lost.run(identity="1" * 64)
    (lost.path / "metrics.csv").write_text("step,tokens,train_loss\n1,4096,6\n2,8192,900\n3,12288,nan\n")
    new_run("queued").config(lr=0.5)
    return Path(made.path.parent)


def test_seeds_are_one_bundle_with_a_band(sweep: Path) -> None:
    bundles, left_out = bundles_of(read_study([str(sweep)]).runs, "tokens", "train_loss", "optimizer.lr")
    assert [(bundle.value, len(bundle.lines)) for bundle in bundles] == [(0.003, 3), (0.01, 3), (1.0, 1)]
    assert [line.partition(":")[0] for line in left_out] == ["queued"]
    x, low, mean, high = bundles[0].band()
    assert (low <= mean).all()
    assert (mean <= high).all()
    assert high[-1] - low[-1] == pytest.approx(0.2, abs=0.1)
    assert x[0] >= 4096
    assert bundles[0].label == "0.003 (3 seeds)"


def test_a_seed_that_died_does_not_end_the_others(sweep: Path) -> None:
    path = sweep / "r0.003-1" / "metrics.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:11]))
    bundle = bundles_of(read_study([str(sweep)]).runs, "tokens", "train_loss", "optimizer.lr")[0][0]
    x, low, mean, high = bundle.band()
    assert len(bundle.lines) == 3
    assert (x[0], x[-1]) == (4096, 100 * 4096)
    assert np.isfinite([low, mean, high]).all()
    assert (mean >= low).all()


def test_seeds_that_names_of_files_tell_are_one_band_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("32d_0", "32d_1", "64d_0"):
        (tmp_path / f"{name}.csv").write_text("step,loss\n1,5\n2,4\n")
    given = ["curves", str(tmp_path), "--x", "step", "-o", str(tmp_path / "c.svg"), "--json"]
    assert main([*given, "--pattern", "{model}_{seed}.csv"]) == 0
    found = json.loads(capsys.readouterr().out)["curves"]
    assert [one["runs"] for one in found] == [["32d_0", "32d_1"], ["64d_0"]]
    assert found[0]["label"] == "32d (2 seeds)"
    assert main(given) == 0
    assert len(json.loads(capsys.readouterr().out)["curves"]) == 3


def test_the_mean_is_smooth_and_the_raw_is_what_was_written(sweep: Path) -> None:
    run = read_study([str(sweep / "r0.003-0")]).runs[0]
    line = bundles_of([run], "tokens", "train_loss", None)[0][0].lines[0]
    assert np.abs(np.diff(line.mean)).mean() < np.abs(np.diff(line.raw)).mean()
    raw = bundles_of([run], "tokens", "train_loss", None, smooth=1)[0][0].lines[0]
    assert (raw.mean == raw.raw).all()
    evaluated = bundles_of([run], "tokens", "val_loss", None)[0][0].lines[0]
    assert (evaluated.mean == evaluated.raw).all()
    assert len(evaluated.x) == 10


def test_a_run_that_exploded_does_not_flatten_the_others(sweep: Path) -> None:
    bundles, _ = bundles_of(read_study([str(sweep)]).runs, "tokens", "train_loss", "optimizer.lr")
    panels, caption = curve_panels(bundles, "tokens", "train_loss", "optimizer.lr")
    (axes,) = panels_figure(panels, "a $t$", caption).axes
    assert axes.get_ylim()[1] < 10
    assert axes.get_xlabel() == "tokens (thousands)"
    assert len({line.get_color() for line in axes.lines if line.get_linewidth() > 1}) == 3
    (one, _), *_ = [(chart, name) for name, chart in panels]
    assert {series.group for series in one.series if series.group} == {"0.003", "0.01", "1"}
    assert [series.kind for series in one.series].count("area") == 2


def test_more_than_a_dozen_runs_get_a_panel_for_each_size(tmp_path: Path) -> None:
    make_sweep(tmp_path / "s", widths=(112, 32, 64), rates=(0.005, 0.01), seeds=2)
    runs = read_study([str(tmp_path / "s")]).runs
    panels, _ = curve_panels(bundles_of(runs, "tokens", "val_loss", None)[0], "tokens", "val_loss", None)
    assert [name for name, _ in panels] == [""]
    make_sweep(tmp_path / "s", widths=(48,), rates=(0.005, 0.01), seeds=1)
    runs = read_study([str(tmp_path / "s")]).runs
    bundles = bundles_of(runs, "tokens", "val_loss", None)[0]
    panels, caption = curve_panels(bundles, "tokens", "val_loss", None)
    assert [name for name, _ in panels] == ["32d", "48d", "64d", "112d"]
    for _, chart in panels:
        looks = {(series.group, series.color) for series in chart.series}
        assert looks == {("0.005", "ramp0"), ("0.01", "ramp11")}
    assert "14 runs" in caption
    figure = panels_figure(panels, "t", caption)
    figure.draw_without_rendering()
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    legend = figure.legends[0].get_window_extent()
    assert all(axes.get_window_extent().x1 <= legend.x0 for axes in figure.axes)


def test_one_size_of_many_runs_gets_panels_by_another_key(tmp_path: Path) -> None:
    for lr in (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064):
        for name in ("adamw", "muon"):
            folder = make_one(tmp_path / name, 32, lr, 0)
            say(folder, optimizer={"name": name, "lr": lr})
    runs = read_study([str(tmp_path)]).runs
    panels, _ = curve_panels(bundles_of(runs, "tokens", "val_loss", None)[0], "tokens", "val_loss", None)
    assert [name.split() for name, _ in panels] == [["optimizer.name", one] for one in ("adamw", "muon")]


@pytest.mark.parametrize(("suffix", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_pictures(
    sweep: Path,
    tmp_path: Path,
    suffix: str,
    begins: bytes,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    path = tmp_path / f"c.{suffix}"
    given = ["curves", str(sweep), "--x", "time", "--where", "state=done", "--where", "optimizer.lr<0.1"]
    assert main([*given, "--log-x", "-o", str(path)]) == 0
    assert path.read_bytes().startswith(begins)
    golden.text(capsys.readouterr().out, numbers=False)


def test_what_was_drawn_as_json(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["curves", str(sweep), "--y", "val_loss", "--json", "--where", "optimizer.lr<0.1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["picture"] == f"{sweep.name}-curves.png"
    assert (tmp_path / found["picture"]).exists()
    assert [len(one["runs"]) for one in found["curves"]] == [3, 3]


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "c.bmp"],
        ["-o", "no/where/c.png"],
        ["--smooth", "0"],
        ["--where", "run=queued"],
        ["--x", "colour"],
    ],
)
def test_mistakes_exit_2(
    sweep: Path, arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, golden: Golden) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["curves", str(sweep), *arguments]) == 2
    golden.text(capsys.readouterr().err)
