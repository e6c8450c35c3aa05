"""Logs as other programs wrote them (tests/golden/foreign) are read as they come."""

from __future__ import annotations

import math
import shutil
import sqlite3
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.reading import Run, curve, read_study
from analysis.reading.filters import only
from tests.golden_text import Golden, refused


@pytest.fixture
def foreign(root: Path) -> Path:
    return root / "tests" / "golden" / "foreign"


def runs_of(*places: Path, **options: str) -> dict[str, Run]:
    study = read_study([str(place) for place in places], **options)
    assert not study.skipped
    return {run.name: run for run in study.runs}


def values(run: Run, *columns: str) -> list[object]:
    return [run.value(column) for column in columns]


def test_lightning_has_metrics_and_hparams_of_each_version(foreign: Path) -> None:
    runs = runs_of(foreign / "lightning_logs")
    assert [*runs] == ["version_0", "version_1", "version_2"]
    run = runs["version_1"]
    assert values(run, "lr", "width", "model.name", "step") == [0.03, 8, "mlp", 24]
    assert run.value("val_loss") == pytest.approx(0.02798583)
    assert not run.damage
    found = curve(run, ["step", "val_loss"])
    known = ~(found["val_loss"] != found["val_loss"])
    assert found["step"][known].tolist() == [7, 15, 23]


@pytest.mark.parametrize("place", ["lightning_logs/version_1", "lightning_logs/version_1/metrics.csv"])
def test_one_version_of_lightning_is_read_alone(foreign: Path, place: str) -> None:
    (run,) = runs_of(foreign / place).values()
    assert values(run, "run", "lr") == ["version_1", 0.03]


def test_lightning_is_found_below_a_project_and_next_to_a_config_of_its_own(
    foreign: Path, tmp_path: Path
) -> None:
    shutil.copytree(foreign / "lightning_logs", tmp_path / "project" / "lightning_logs")
    (tmp_path / "project" / "lightning_logs" / "version_0" / "config.yaml").write_text("trainer: {}\n")
    assert [*runs_of(tmp_path / "project")] == [f"lightning_logs/version_{version}" for version in range(3)]


def test_hparams_that_are_no_plain_yaml_are_a_note(foreign: Path, tmp_path: Path) -> None:
    shutil.copytree(foreign / "lightning_logs" / "version_0", tmp_path / "v")
    (tmp_path / "v" / "hparams.yaml").write_text("act: !!python/name:torch.relu ''\n")
    (run,) = runs_of(tmp_path).values()
    assert run.value("val_loss") is not None
    assert "hparams.yaml" in run.damage[0]


def test_transformers_has_the_history_of_the_last_checkpoint(foreign: Path) -> None:
    runs = runs_of(foreign / "transformers", pattern="lr{lr}")
    assert {name: values(run, "lr", "step") for name, run in runs.items()} == {
        "lr0.001": [0.001, 20], "lr0.003": [0.003, 20],
    }  # fmt: skip
    run = runs["lr0.001"]
    assert run.value("eval_loss") == pytest.approx(3.6585054)
    assert len(curve(run, ["loss"])["loss"]) == 8
    (earlier,) = runs_of(foreign / "transformers/lr0.001/checkpoint-10/trainer_state.json").values()
    assert values(earlier, "run", "step") == ["checkpoint-10", 8]


def test_tensorboard_has_scalars_by_step_and_hyperparameters(foreign: Path) -> None:
    pytest.importorskip("tensorboard")
    runs = runs_of(foreign / "tensorboard")
    assert values(runs["lr0.03"], "lr", "arch", "bias", "step") == [0.03, "mlp", True, 30]
    assert curve(runs["lr0.03"], ["loss/train"])["loss/train"][1:] == pytest.approx([4.53, 4.03, 3.53])
    assert runs["lr0.01"].value("val/loss") == pytest.approx(4.01)
    file = next((foreign / "tensorboard" / "lr0.01").iterdir())
    assert [*runs_of(file)] == ["lr0.01"]


def test_event_files_without_tensorboard_name_the_extra(
    foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiment_utils.extras.find_spec", lambda module: None)
    with refused("package-missing"):
        read_study([str(foreign / "tensorboard")])


def test_our_own_event_files_are_read_back(done_run: object, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    given = str(done_run.path)  # type: ignore[attr-defined]
    assert main(["export", given, "--to", "tensorboard", "-o", str(tmp_path / "events")]) == 0
    (ours,) = read_study([given]).runs
    (run,) = runs_of(tmp_path / "events").values()
    assert run.value("val_loss") == pytest.approx(ours.value("val_loss"))
    assert run.value("step") == 500


def test_mlruns_have_params_metrics_and_states_and_no_deleted_runs(foreign: Path) -> None:
    runs = runs_of(foreign / "mlruns")
    assert [*runs] == ["lr-0.001", "lr-0.01"]
    run = runs["lr-0.001"]
    assert values(run, "lr", "model", "optimizer/name", "step") == [0.001, "32d", "adamw", 40]
    assert run.value("val_loss") == pytest.approx(3.101)
    assert [runs[name].state for name in runs] == [None, "failed"]
    assert curve(run, ["step", "train_loss"])["step"].tolist() == [0, 10, 20, 30, 40]


def test_a_database_of_mlflow_is_read(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.executescript(
            """CREATE TABLE runs (run_uuid, name, status, start_time, lifecycle_stage);
            CREATE TABLE metrics (key, value, timestamp, run_uuid, step, is_nan);
            CREATE TABLE params (key, value, run_uuid);
            INSERT INTO runs VALUES ('b', 'late', 'FAILED', 2, 'active'),
                ('a', 'early', 'FINISHED', 1, 'active'), ('c', 'gone', 'FINISHED', 3, 'deleted');
            INSERT INTO params VALUES ('lr', '0.01', 'a'), ('lr', '0.1', 'b');
            INSERT INTO metrics VALUES ('val_loss', 3.5, 5, 'a', 10, 0), ('val_loss', 0, 6, 'a', 20, 1),
                ('val_loss', 4.5, 5, 'b', 10, 0);"""
        )
    database.close()
    runs = runs_of(tmp_path)
    assert {name: values(run, "lr", "state") for name, run in runs.items()} == {
        "early": [0.01, None], "late": [0.1, "failed"],
    }  # fmt: skip
    assert math.isnan(runs["early"].number("val_loss") or 0)
    assert curve(runs["late"], ["val_loss"])["val_loss"].tolist() == [4.5]
    (tmp_path / "other.db").write_bytes(b"no database of SQLite" * 50)
    assert "database" in read_study([str(tmp_path / "other.db")]).skipped[0][1]


def test_json_lines_of_lingua_are_a_run_named_by_its_folder(foreign: Path, golden: Golden) -> None:
    run = runs_of(foreign / "lingua")["lingua"]
    assert values(run, "global_step", "loss/out", "optim/total_tokens") == [30, 6, 3932160]
    assert math.isnan(run.number("optim/grad_norm") or 0)
    golden.text("\n".join(run.damage))
    (evals,) = runs_of(foreign / "lingua" / "metrics.eval.jsonl").values()
    assert evals.value("hellaswag.acc,none") == 0.29


def test_json_lines_with_a_run_each_are_rows(tmp_path: Path) -> None:
    rows = [f'{{"lr": {lr}, "loss": 3.{at}}}\n' for at, lr in enumerate((0.1, 0.2, 0.1))]
    (tmp_path / "results.jsonl").write_text("".join(rows) + '{"lr": 0')
    study = read_study([str(tmp_path)], rows=True)
    assert [run.value("loss") for run in study.runs] == [3.0, 3.1, 3.2]
    assert "1" in study.runs[0].damage[0].split()


def test_history_of_wandb_is_a_curve(foreign: Path) -> None:
    (run,) = runs_of(foreign / "wandb" / "history.csv").values()
    assert values(run, "_step", "loss", "val_loss") == [30, 3.5, 3.75]


def test_runs_of_wandb_and_mlflow_are_rows(foreign: Path) -> None:
    runs = runs_of(foreign / "wandb" / "runs.csv")
    assert [values(run, "run", "lr", "state") for run in runs.values()] == [
        ["calm-fog-1", 0.001, None], ["icy-sun-2", 0.003, None], ["red-sea-3", 0.01, "crashed"],
    ]  # fmt: skip
    assert [*runs_of(foreign / "mlflow.csv")] == ["lr-0.01", "lr-0.003", "lr-0.001"]


def test_chart_of_wandb_has_a_run_for_each_column(foreign: Path) -> None:
    study = read_study([str(foreign / "wandb" / "chart.csv")], pattern="lr-{lr}")
    assert [values(run, "run", "lr", "Step", "val_loss") for run in study.runs] == [
        ["lr-0.001", 0.001, 20, 4], ["lr-0.003", 0.003, 30, 3.5],
    ]  # fmt: skip
    assert len({run.folder for run in study.runs}) == 2
    (run,) = only(study, ["lr=0.003"]).runs
    assert curve(run, ["Step", "val_loss"])["val_loss"].tolist() == [4.25, 3.75, 3.5]


@pytest.mark.parametrize(
    "place", ["lightning_logs", "transformers", "tensorboard", "mlruns", "wandb/chart.csv"]
)
@pytest.mark.parametrize("command", ["curves", "export", "report"])
def test_commands_take_logs(foreign: Path, place: str, command: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    x = "Step" if "wandb" in place else "step"
    y = {"transformers": "loss", "tensorboard": "loss/train"}.get(place, "val_loss")
    more = {
        "curves": ["--x", x, "--y", y, "-o", str(tmp_path / "out.svg")],
        "export": ["--to", "csv", "--x", x, "-o", str(tmp_path / "out.csv")],
        "report": ["--x", x, "--y", y, "-o", str(tmp_path / "out.html")],
    }[command]
    assert main([command, str(foreign / place), *more]) == 0
    assert any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["wandb/run-1-a/run-a.wandb", "save/metrics.json"])
def test_formats_that_are_not_read_are_refused_with_advice(tmp_path: Path, name: str, golden: Golden) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    with golden.refused("other-format"):
        read_study([str(tmp_path)])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("checkpoint-10/trainer_state.json", '{"step": 3}', "log_history"),
        ("checkpoint-10/trainer_state.json", "", "JSON"),
        ("train/metrics.jsonl", "", "JSON"),
        ("0/abc/meta.yaml", "run_name: a", "values"),
        ("version_0/metrics.csv", "", "empty"),
    ],
)
def test_logs_without_rows_are_skipped_with_the_reason(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (path.parent / "metrics").mkdir() if "meta" in name else (path.parent / "hparams.yaml").touch()
    ((_, why),) = read_study([str(tmp_path)]).skipped
    assert said in why
    assert main(["table", str(tmp_path)]) == 2
