"""Registered metrics: columns of metrics.csv and evals.jsonl, and of what reads them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tiny_run import (
    column,
    evaluations_without_clock,
    make_run,
    metrics_without_clock,
    run_here,
    with_documents,
)

from analysis.columns import export_columns, shown_columns, titles
from analysis.export.series import Series
from analysis.reading.curves import curve
from analysis.reading.facts import facts_of
from analysis.reading.study import read_study
from analysis.report.downsample import thin_curves
from conf.own_parts.use import use_plugins
from experiment_utils.errors import UserError
from tests.forked import killed_at
from tests.training.own_parts.conftest import Own
from training.attempt.run_files import read_run
from training.own_parts.contracts import TAKEN
from training.own_parts.facts import facts_of as parts_of
from training.report.metrics import COLUMNS, MetricsFile, Row

METRICS = """
import torch
from highwater import register

@register.metric("cross_entropy", unit="nats")
def cross_entropy(logits, labels, options):
    torch.rand(1)  # changes no loss
    safe = labels.clamp_min(0).unsqueeze(-1)
    return -logits.log_softmax(-1).gather(-1, safe).squeeze(-1)

@register.metric("mean_entropy")
def mean_entropy(logits, labels, options):
    counts = labels != -100
    return -logits.log_softmax(-1).gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1)[counts].mean()

@register.metric("twice", at="step")
def twice(view, options):
    return 2 * view.loss
"""
NAMES = ("cross_entropy", "mean_entropy", "twice")


def test_metrics_are_columns_of_a_run(own: Own) -> None:
    folder = make_run(with_documents(own(METRICS, NAMES)))
    assert run_here(folder, "--quiet").returncode == 0
    rows, evaluations = metrics_without_clock(folder), evaluations_without_clock(folder)
    assert [one for one in rows[0] if one not in COLUMNS] == ["twice", "cross_entropy", "mean_entropy"]
    assert column(folder, "twice") == [2 * loss for loss in column(folder, "train_loss")]
    for name in NAMES[:2]:
        measured = column(folder, name)
        assert measured == pytest.approx(column(folder, "val_loss"), rel=1e-5)
        assert measured == [one[name] for one in evaluations]
        assert [bool(row[name]) for row in rows] == [bool(row["val_loss"]) for row in rows]
    assert read_run(folder)["metrics"] == {
        "cross_entropy": {"unit": "nats", "at": "evaluation"},
        "mean_entropy": {"unit": "", "at": "evaluation"},
        "twice": {"unit": "", "at": "step"},
    }
    study = read_study([str(folder)])
    (run,) = study.runs
    assert {*NAMES} <= {*shown_columns(study)} & {*export_columns(study)}
    assert titles(study.runs, ["cross_entropy", "twice"]) == ["cross_entropy (nats)", "twice"]
    assert run.value("cross_entropy") == evaluations[-1]["cross_entropy"]
    assert run.value("twice") == float(rows[-1]["twice"])
    drawn = curve(run, ["tokens", "twice"], rows=4)
    assert len(drawn["twice"]) == len(drawn["tokens"])
    assert thin_curves(run, 40)["cross_entropy"].y == column(folder, "cross_entropy")
    points = list(Series(folder).new(is_over=True))
    assert points[-1].values["cross_entropy"] == evaluations[-1]["cross_entropy"]
    assert points[0].values["twice"] == float(rows[0]["twice"])


def test_metrics_change_no_loss(own: Own, tmp_path: Path) -> None:
    config = own(METRICS, NAMES)
    plain = dataclasses.replace(
        config, logging=dataclasses.replace(config.logging, metrics=[]), runs_dir=str(tmp_path / "plain")
    )
    folders = [make_run(config), make_run(plain)]
    assert read_run(folders[0]).get("identity") == read_run(folders[1]).get("identity")
    for folder in folders:
        assert run_here(folder, "--quiet").returncode == 0
    for name in ("train_loss", "val_loss", "grad_norm"):
        assert column(folders[0], name) == column(folders[1], name)


def test_rows_stay_where_the_metrics_change(tmp_path: Path) -> None:
    path, row = tmp_path / "metrics.csv", Row(1, 10, 2.5, 2.25, 0.1, 1.0, 1e3, 0.5, 20.0, None)
    first = MetricsFile(path, 0, ["mine"])
    first.append([row], [{"mine": 0.5}])
    first.close()
    second = MetricsFile(path, 1, ["other"])
    second.append([dataclasses.replace(row, step=2)], [{"other": 0.25}])
    second.close()
    assert column(tmp_path, "step") == [1, 2]
    assert [one["mine"] for one in metrics_without_clock(tmp_path)] == ["0.5", ""]
    assert [one["other"] for one in metrics_without_clock(tmp_path)] == ["", "0.25"]


def test_a_resume_with_other_metrics_keeps_all_rows(own: Own) -> None:
    config = own(METRICS, ("twice", "mean_entropy"))
    folder = make_run(config)
    assert killed_at("checkpoint:after_rename", lambda: run_here(folder, "--quiet"), count=2)
    again = dataclasses.replace(
        config, logging=dataclasses.replace(config.logging, metrics=["cross_entropy"])
    )
    assert make_run(again) == folder
    assert run_here(folder, "--quiet").returncode == 0
    rows = metrics_without_clock(folder)
    assert [int(row["step"]) for row in rows] == [*range(1, 9)]
    assert [bool(row["twice"]) for row in rows] == [True] * 5 + [False] * 3
    assert [bool(row["mean_entropy"]) for row in rows] == [int(row["step"]) == 4 for row in rows]
    assert [bool(row["cross_entropy"]) for row in rows] == [int(row["step"]) == 8 for row in rows]
    assert {*read_run(folder)["metrics"]} == {*NAMES}


@pytest.mark.parametrize(
    ("decorator", "body", "code"),
    [
        ('"m"', "return logits", "metric-value"),
        ('"m"', "return 'high'", "metric-value"),
        ('"m"', "return 1 / 0", "part-fails"),
        ('"m", at="step"', "return None", "metric-value"),
        ('"m", at="sometimes"', "return 1.0", "metric-at"),
        ('"val_loss"', "return 1.0", "name-taken"),
    ],
)
def test_wrong_metrics_are_refused(own: Own, decorator: str, body: str, code: str) -> None:
    arguments = "view, options" if "step" in decorator else "logits, labels, options"
    source = (
        f"from highwater import register\n@register.metric({decorator})\ndef m({arguments}):\n    {body}\n"
    )
    config = own(source, (decorator.split('"')[1],))
    use_plugins(config.plugins, around=False)
    with pytest.raises(UserError) as raised:
        parts_of(config, 64)
    (problem,) = raised.value.problems
    assert problem.code == code
    line = 4 if code == "part-fails" else 2
    assert problem.where == f"{config.plugins[0]}:{line}"


def test_no_metric_has_the_name_of_a_column(tmp_path: Path) -> None:
    assert {*COLUMNS, *facts_of(tmp_path)["values"]} <= TAKEN
