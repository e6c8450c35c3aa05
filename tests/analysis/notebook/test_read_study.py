"""`read_study` gives the numbers of the commands, as frames and objects that a notebook shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from made_sweeps import make_sweep

import highwater
from analysis import read_study
from analysis.__main__ import main
from analysis.export.result_table import ResultTable
from tests.golden_text import Golden, refused

RATES = (0.005, 0.01, 0.02)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = tmp_path_factory.mktemp("runs") / "sweep"
    make_sweep(study, (32, 48, 64, 96), RATES, 2, noise=0.01, steps=20)
    return study


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_runs_are_a_frame_with_the_values_of_the_table(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pandas = pytest.importorskip("pandas")
    study = read_study(sweep)
    csv = printed(capsys, "table", str(sweep), "--csv")
    assert study.table.to_csv() == csv
    assert isinstance(study.runs, pandas.DataFrame)
    told = json.loads(printed(capsys, "table", str(sweep), "--json"))
    assert study.runs["val_loss"].tolist() == [run["val_loss"] for run in told["runs"]]
    assert len(study.runs) == 24


def test_conditions_leave_runs_out_of_every_answer(sweep: Path) -> None:
    study = read_study(sweep, where=["model=32d,48d", "lr<0.02"])
    assert len(study.table) == 8
    assert set(study.curves().table["model"]) == {"32d", "48d"}
    assert len(read_study(sweep, where="model=32d").table) == 6


def test_curves_have_the_points_of_every_run(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_study(sweep).curves("val_loss")
    words = ("curves", str(sweep), "--y", "val_loss", "-o", "out.png", "--json")
    drawn = json.loads(printed(capsys, *words))
    assert set(found.table["run"]) == {name for one in drawn["curves"] for name in one["runs"]}
    assert found.left_out == drawn["left_out"] == []
    assert [*found.table.columns] == ["run", "model", "lr", "seed", "seed_data", "tokens", "val_loss"]
    assert len(found.table) == 24 * 4
    last = {row["run"]: row["val_loss"] for row in found.table}
    assert last == dict(zip(read_study(sweep).table["run"], read_study(sweep).table["val_loss"], strict=True))


def test_best_rates_are_those_of_the_command(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_study(sweep).best_lr()
    assert found.sizes == json.loads(printed(capsys, "best-lr", str(sweep), "--json"))
    assert repr(found) == printed(capsys, "best-lr", str(sweep)).rstrip()
    assert found.table["model"] == ["32d", "48d", "64d", "96d"]
    assert found.table["best_lr"] == [size["best_lr"] for size in found.sizes]
    assert found.law == found.sizes[0]["law"]


def test_power_law_is_that_of_the_command(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read_study(sweep).fit_power("flops", at=[1e15], draws=50)
    words = ("fit", str(sweep), "--x", "flops", "--at", "1e15", "--draws", "50")
    told = json.loads(printed(capsys, *words, "--json"))
    for name, estimate in (("E", found.E), ("A", found.A), ("alpha", found.alpha), ("r2", found.r2)):
        assert estimate._asdict() == told[name]
    assert found.predictions == told["foretold"]
    assert found.table["residual"] == [point["residual"] for point in told["points"]]
    assert repr(found) == printed(capsys, *words).rstrip()
    fixed = read_study(sweep).fit_power("flops", fix_e=1.5, method="huber", draws=50)
    assert fixed.E.value == 1.5


def test_runs_of_other_programs_have_answers_too(root: Path) -> None:
    foreign = root / "tests" / "golden" / "foreign"
    study = read_study(foreign / "lightning_logs")
    assert study.curves().table["step"] == [7, 15, 23] * 3
    assert [size["best_lr"] for size in study.best_lr(size="width").sizes] == [0.1]
    assert read_study(foreign / "wandb" / "chart.csv", pattern="lr-{lr}").table["lr"] == [0.001, 0.003]
    with refused("no-such-column"):
        study.curves("loss")


def test_a_notebook_shows_every_answer(sweep: Path, golden: Golden) -> None:
    study = read_study(sweep, where="seed=0")
    answers: list[Any] = [study, study.curves(), study.best_lr(), study.fit_power(draws=50), study.table]
    pages = [one._repr_html_() for one in answers]
    assert [page.count('src="data:image/png;base64,') for page in pages] == [0, 1, 0, 1, 0]
    assert [page.count("<table>") for page in pages] == [1, 0, 1, 0, 1]
    golden.text("\n\n".join(map(repr, answers[:3])))
    assert "<b>" not in ResultTable(["<b>"], [["<b>"]])._repr_html_()


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for module in ("analysis.export.result_table", "experiment_utils.extras"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None if name in names else object())


def test_without_pandas_and_polars_runs_are_a_plain_table(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without(monkeypatch, "pandas", "polars")
    study = read_study(sweep)
    assert isinstance(study.runs, ResultTable)
    assert study.runs.to_csv(tmp_path / "runs.csv") is None
    assert (tmp_path / "runs.csv").read_text() == study.runs.to_csv()
    assert next(iter(study.runs))["model"] == study.runs["model"][0] == "32d"
    with refused("package-missing") as error:
        study.table.to_frame()
    assert "highwater[pandas]" in str(error.value)


def test_with_polars_alone_runs_are_its_frame(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pandas")
    polars = ModuleType("polars")
    polars.DataFrame = lambda data, strict: ("polars", data)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", polars)
    kind, data = read_study(sweep).runs
    assert kind == "polars"
    assert data["seed"][:2] == [0, 1]


def test_one_function_under_both_names() -> None:
    assert highwater.read_study is read_study


def test_importing_analysis_loads_nothing(root: Path) -> None:
    code = "import sys, analysis; print(*(name for name in sys.modules if name.startswith('analysis')))"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["analysis"]


def test_mistakes_are_errors_of_the_user(sweep: Path, tmp_path: Path) -> None:
    with refused("no-runs"):
        read_study(tmp_path)
    with refused("no-such-column"):
        read_study(sweep).best_lr(lr="rate")
    with refused(""):
        read_study(sweep, where="model=32d").fit_power()
