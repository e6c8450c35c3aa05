"""Pictures of `python -m analysis fit -o FILE`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.fit_plot import chinchilla_panels, power_panels
from analysis.fits.chinchilla import Chinchilla
from analysis.fits.points import points_of
from analysis.fits.result import Fit, fit_law, fit_power
from analysis.panels import log_ticks, panels_figure
from analysis.reading import read_study
from tests.golden_text import Golden

FLOPS = np.geomspace(1e13, 1e16, 8)


def write(folder: Path, rows: list[dict[str, float]]) -> Path:
    folder.mkdir()
    for place, row in enumerate(rows):
        (folder / f"{place}.csv").write_text(f"{','.join(row)}\n{','.join(map(repr, row.values()))}\n")
    return folder


@pytest.fixture
def csvs(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0).normal(size=8)
    losses = 2.5 + 300 * FLOPS**-0.15 + 0.01 * noise
    pairs = zip(FLOPS.tolist(), losses.tolist(), strict=True)
    return write(tmp_path / "scaling", [{"flops": x, "loss": y} for x, y in pairs])


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Six sizes at four numbers of tokens: of isoFLOP budgets too."""
    rows = []
    for c in (1e15, 1e16, 1e17):
        for n in np.geomspace(0.25, 4, 5) * 0.6 * (c / 6) ** 0.47:
            d = c / 6 / n
            loss = 1.7 + 400 * n**-0.34 + 410 * d**-0.28
            rows.append({"n": float(n), "d": float(d), "flops": c, "loss": float(loss)})
    return write(tmp_path / "both", rows)


def drawn(folder: Path, *at: float) -> tuple[Any, Any, Fit]:
    """(chart of the law, chart of the residuals, the fit)."""
    points = points_of(read_study([str(folder)]), "flops", "loss")
    fit = fit_power(points, draws=60)
    predictions = [fit.predict(np.array([one]), points.x) for one in at]
    ((_, law), (_, residuals)), _ = power_panels(points, fit, predictions)
    return law, residuals, fit


def test_points_law_band_and_residuals(csvs: Path) -> None:
    chart, residuals, fit = drawn(csvs, 1e17)
    series = {one.name: one for one in chart.series}
    np.testing.assert_allclose(series["measured"].x, FLOPS)
    x, y = np.array(series["law"].x), np.array(series["law"].y)
    known = np.isfinite(y)
    np.testing.assert_allclose(y[known], fit.law.predict(fit.theta, x[known]))
    assert FLOPS[0] <= x[known].min()
    assert x[known].max() <= FLOPS[-1], "solid where there are data, and there alone"
    beyond = np.isfinite(series["law, beyond the data"].y)
    assert series["law, beyond the data"].dash
    assert x[beyond].max() > 1e17
    band = series["95% band"]
    assert (np.array(band.low) <= fit.law.predict(fit.theta, x)).all()
    assert series["predicted"].x == [1e17]
    (left,) = residuals.series
    np.testing.assert_allclose(left.y, np.array(series["measured"].y) - fit.fitted)


def test_stretches_far_beyond_the_data_are_shaded(csvs: Path) -> None:
    assert drawn(csvs, 1e17)[0].marks == []
    (far,) = drawn(csvs, 1e19)[0].marks
    assert far.at == pytest.approx(1e17)
    assert far.until >= 1e19
    (far,) = drawn(csvs, 1e10)[0].marks
    assert far.at <= 1e10
    assert far.until == pytest.approx(1e12)


def test_axes_of_a_file_are_logarithmic_with_round_numbers(csvs: Path) -> None:
    law, residuals, _ = drawn(csvs, 1e17)
    figure = panels_figure([("", law), ("", residuals)], "a $t$", "words", is_stacked=True)
    figure.draw_without_rendering()
    axes, below = figure.axes
    assert (axes.get_xscale(), axes.get_yscale(), below.get_xscale()) == ("log", "log", "log")
    assert axes.get_xlim() == below.get_xlim()
    low, high = axes.get_ylim()
    ticks = [float(label.get_text()) for label in axes.get_yticklabels()]
    assert sum(low <= tick <= high for tick in ticks) >= 3
    assert figure.get_suptitle() == "a $t$"


@pytest.mark.parametrize(
    ("low", "high"), [(2.9, 5.6), (0.0156, 0.0625), (1, 40), (3e11, 2e13), (1e12, 1e21), (0.11, 0.12)]
)
def test_logarithmic_axes_have_a_few_round_ticks(low: float, high: float) -> None:
    ticks = [tick for tick in log_ticks(low, high) if low <= tick <= high]
    assert 2 <= len(ticks) <= 8
    assert all(
        len(f"{tick:.6g}".replace(".", "").rstrip("0").lstrip("0").split("e")[0]) <= 3 for tick in ticks
    )


@pytest.mark.parametrize(
    ("suffix", "begins"),
    [
        ("png", b"\x89PNG"),
        pytest.param("svg", b"<?xml", marks=pytest.mark.slow),
        pytest.param("pdf", b"%PDF", marks=pytest.mark.slow),
    ],
)
def test_forms_and_the_same_bytes_again(
    csvs: Path, tmp_path: Path, suffix: str, begins: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for name in "a" if suffix == "png" else "ab":  # the others hold dates and names of parts
        path = tmp_path / f"{name}.{suffix}"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert main(["fit", str(csvs), "--x", "flops", "--draws", "20", "-o", str(path)]) == 0
        found.append(path.read_bytes())
        assert str(path) in capsys.readouterr().err
    assert found[0].startswith(begins)
    assert len({*found}) == 1


@pytest.mark.parametrize(
    ("law", "panels"),
    [(["--law", "chinchilla", "--size", "n", "--tokens", "d"], 2),
     (["--law", "isoflop", "--x", "flops", "--size", "n"], 2),
     (["--law", "isoflop", "--x", "flops", "--size", "n", "--where", "flops<2e15"], 1)],
)  # fmt: skip
def test_pictures_of_the_other_laws(
    both: Path, tmp_path: Path, law: list[str], panels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    seen: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *given, **more: (seen.append(self), save(self, *given, **more))[0]
    )
    path = tmp_path / "p.png"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["fit", str(both), *law, "-o", str(path), "--draws", "20"]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(seen[0].axes) == panels
    seen[0].draw_without_rendering()
    for axes in seen[0].axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            assert sum(low <= place <= high for place in axis.get_majorticklocs()) >= 2


def test_a_curve_a_size_of_both(both: Path) -> None:
    runs = read_study([str(both)]).runs
    x = np.array([[run.number("n"), run.number("d")] for run in runs], dtype=np.float64)
    y = np.array([run.number("loss") for run in runs], dtype=np.float64)
    x[:, 0] = np.array([1e5, 1e6, 1e7])[np.arange(15) % 3]
    law = Chinchilla.of(x)
    y = 1.7 + 400 * x[:, 0] ** -0.34 + 410 * x[:, 1] ** -0.28
    fit = fit_law(law, x, y, [run.name for run in runs], draws=20)
    ((_, chart), (_, residuals)), _ = chinchilla_panels(law, fit, x, y, ["n", "d"], "loss")
    assert list(dict.fromkeys(one.group for one in chart.series)) == ["100,000", "1M", "10M"]
    assert chart.legend_title == "n"
    assert [len(one.y) for one in residuals.series] == [5, 5, 5]


def test_the_envelope_too(new_run: Callable[..., Any], shared_data: Path, tmp_path: Path) -> None:
    given = [str(shared_data / "scaling_runs" / "x2_modern"), "--x", "theoretical_flops", "--law", "envelope"]
    assert main(["fit", *given, "-o", str(tmp_path / "e.svg"), "--draws", "20"]) == 0
    assert (tmp_path / "e.svg").read_bytes().startswith(b"<?xml")


def test_a_fixed_e_above_the_losses_is_refused_by_every_law(
    both: Path, shared_data: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    curves = str(shared_data / "scaling_runs" / "x2_modern")
    for given in (
        [str(both), "--law", "chinchilla", "--size", "n", "--tokens", "d"],
        [curves, "--x", "theoretical_flops", "--law", "envelope"],
    ):
        assert main(["fit", *given, "--fix", "E=50"]) == 2
        golden.text(capsys.readouterr().err)


def test_a_wrong_name_is_told_before_anything_is_fitted(
    csvs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["fit", str(csvs), "--x", "flops", "-o", str(tmp_path / "p.jpg")]) == 2
    golden.text(capsys.readouterr().err)
    gone = tmp_path / "no" / "p.png"
    assert main(["fit", str(csvs), "--x", "flops", "--draws", "20", "-o", str(gone)]) == 2
    golden.text(capsys.readouterr().err)
