"""Runs trained together: each is the run that it is by itself, whatever befalls the others."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import killed_at
from tiny_run import (
    column,
    copy_of,
    evaluations_without_clock,
    make_run,
    metrics_without_clock,
    mixed_config,
    outcome,
    run_here,
    tiny_config,
    with_documents,
)

import core
from conf import Config
from conf.between_keys.ensembles import members_of
from conf.schema import Ensemble, Logging, Optimizer, Restore, Schedule
from tests.training.recorded_operations import RecordedOperations
from training.attempt.run_files import read_run, read_status
from training.checkpoint.checkpoints import checkpoint_steps
from training.ensemble import ensemble_loop, step
from training.run.company import Group, groups

CASES: dict[str, dict[str, dict[str, Any]]] = {
    "adamw": {"training": {"ema": 0.9}, "lists": {"weight_decay": ["0.0", "0.3"], "seed_data": ["3"]}},
    "adam": {
        "arch": {
            "norm": "layer", "bias": "all", "positions": "learned", "activation": "gelu", "tied_head": False,
        },
        "dataset": {"windows": "shifted"},
    },
    "sgd": {
        "arch": {"qk_norm": True, "logit_softcap": 10.0, "z_loss": 1e-3, "norm_position": "sandwich"},
        "dataset": {"windows": "streams"},
    },
    "muon": {
        "arch": {"dropout_embedding": 0.1, "dropout_residual": 0.1}, "dataset": {"documents": "masked"},
    },
    "adafactor": {"training": {"on_spike": "skip", "spike_window": 5, "spike_threshold": 3.0}},
    "schedule_free": {"schedule": {"name": "constant"}},
    "lion": {},
}  # fmt: skip
"""By the optimizer's name: changes by group, and `lists` of the ensemble. No option depends on another."""

EVALUATED, SKIPPED = "val loss", " is skipped: "
"""Marks of a line of log.txt."""


def short_config(folder: Path, **training: Any) -> Config:
    """16 steps: two evaluations, and checkpoints at 5, 8, 10, 15 and 16."""
    short = {"max_steps": 16, "evals": 2, "checkpoint_every": 5, "eval_tokens": 128}
    return tiny_config(folder, **(short | training))


def ensemble(base: Config, **lists: list[str]) -> list[Config]:
    """The runs of one, none of which the probe looks at."""
    asked = Ensemble(**(lists or {"lr": ["1e-3", "3e-3"], "seed": ["0", "1"]}), together=64)  # type: ignore[arg-type]
    return members_of(dataclasses.replace(base, ensemble=asked))


def run_together(folders: list[Path]) -> int:
    return core.main([*map(str, folders), "--quiet"])


def alone(config: Config, runs_dir: Path) -> Path:
    folder = copy_of(dataclasses.replace(config, ensemble=Ensemble()), runs_dir)
    assert run_here(folder, "--quiet").returncode == 0
    return folder


def assert_same_run(folder: Path, other: Path, tolerance: float = 1e-4) -> None:
    for name in ("step", "tokens", "lr", "flops"):
        assert column(folder, name) == column(other, name)
    for name in ("train_loss", "val_loss"):
        assert column(folder, name) == pytest.approx(column(other, name), abs=tolerance), name
    assert column(folder, "grad_norm") == pytest.approx(column(other, "grad_norm"), rel=1e-3)
    evaluations = [evaluations_without_clock(each) for each in (folder, other)]
    assert [one["step"] for one in evaluations[0]] == [one["step"] for one in evaluations[1]]
    own, of_other = (read_run(each) for each in (folder, other))
    assert own["identity"] == of_other["identity"]
    assert own["results"]["val_loss"] == pytest.approx(of_other["results"]["val_loss"], abs=tolerance)


def assert_same_as_alone(
    base: Config, place: Path, tolerance: float = 1e-4, **lists: list[str]
) -> list[tuple[Path, Path]]:
    """Train an ensemble, and each of its runs alone; returns the folders of both."""
    configs = ensemble(base, **{"seed": ["0", "1"], **lists})
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 0
    others = [alone(config, place / "alone") for config in configs]
    for folder, other in zip(folders, others, strict=True):
        assert_same_run(folder, other, tolerance)  # lion takes signs: a last bit can turn a step around
    return list(zip(folders, others, strict=True))


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    return [make_run(config) for config in ensemble(short_config(tmp_path), seed=["0", "1", "2"])]


def test_each_is_the_run_it_is_by_itself(tmp_path: Path) -> None:
    configs = ensemble(short_config(tmp_path))
    four = [make_run(config) for config in configs]
    assert run_together(four) == 0
    names = [folder.name for folder in four]
    assert len(set(names)) == 4
    for folder, config in zip(four, configs, strict=True):
        assert read_status(folder)["state"] == "done"
        other = alone(config, tmp_path / "alone")
        assert other.name == folder.name, "its identity is that of the run by itself"
        assert_same_run(folder, other)
        run = read_run(folder)
        assert run["ensemble"] == {"members": names, "together": 4}
        assert set(read_run(other)) == set(run) - {"ensemble"}
        assert checkpoint_steps(folder / "checkpoints")[-1] == 16
        assert (folder / "log.txt").read_text().count(EVALUATED) == 2, "its own evaluations, not the others'"


@pytest.mark.parametrize(
    ("make_config", "error"),
    [
        (short_config, None),
        pytest.param(short_config, RuntimeError("not permitted"), marks=pytest.mark.slow),
        pytest.param(mixed_config, None, marks=pytest.mark.slow),
    ],
)
def test_graphed_passes_give_the_same_numbers(
    make_config: Any, error: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = ensemble(make_config(tmp_path, micro_batch=2), seed=["0", "1"])
    eager = [make_run(config) for config in configs]
    assert run_together(eager) == 0
    graphs = RecordedOperations(fails=error)
    monkeypatch.setattr(step, "graphs_for", lambda config, device: graphs)
    folders = [make_run(dataclasses.replace(one, runs_dir=str(tmp_path / "graphed"))) for one in configs]
    assert run_together(folders) == 0
    assert bool(graphs.replays) == (error is None)
    for folder, other in zip(folders, eager, strict=True):
        assert metrics_without_clock(folder) == metrics_without_clock(other)
        assert outcome(folder) == outcome(other)


def test_an_evaluation_without_memory_frees_the_graph_and_the_runs_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, evaluate = RecordedOperations(), ensemble_loop.evaluate_together
    failed: list[int] = []

    def once_without_memory(*arguments: Any) -> Any:
        if not failed:
            failed.append(len(graphs.replays))
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return evaluate(*arguments)

    monkeypatch.setattr(ensemble_loop, "can_evaluate_together", lambda members: True)
    monkeypatch.setattr(ensemble_loop, "evaluate_together", once_without_memory)
    monkeypatch.setattr(step, "graphs_for", lambda config, device: graphs)
    folders = [make_run(config) for config in ensemble(short_config(tmp_path), seed=["0", "1"])]
    assert run_together(folders) == 0
    assert 0 < failed[0] == len(graphs.replays)
    assert graphs.kept_when_freed[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_is_the_run_alone_with_other_options(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    base = short_config(tmp_path, **case.get("training", {}))
    if "documents" in case.get("dataset", {}):
        base = with_documents(base)
    named = {group: case.get(group, {}) for group in ("arch", "dataset", "schedule")}
    groups = {group: dataclasses.replace(getattr(base, group), **given) for group, given in named.items()}
    base = dataclasses.replace(base, optimizer=Optimizer(name=name, lr=1e-3), **groups)
    assert_same_as_alone(base, tmp_path, 2e-3 if name == "lion" else 1e-4, **case.get("lists", {}))


@pytest.mark.slow
def test_each_is_the_run_alone_on_a_mixture_with_noise(tmp_path: Path) -> None:
    noisy = Optimizer(name="adamw", lr=1e-3, grad_noise=0.01, grad_clip=None)
    base = dataclasses.replace(mixed_config(tmp_path, max_steps=16, evals=2), optimizer=noisy)
    for folder, other in assert_same_as_alone(base, tmp_path):
        rows, of_other = ((each / "sources.csv").read_text().splitlines() for each in (folder, other))
        assert [row.split(",")[:3] for row in rows] == [row.split(",")[:3] for row in of_other]


@pytest.mark.slow
def test_each_is_the_run_alone_if_all_are_evaluated_in_one_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble_loop, "can_evaluate_together", lambda members: True)
    assert_same_as_alone(short_config(tmp_path), tmp_path)


POINTS = {
    "checkpoint:before_rename": 6,
    "checkpoint:after_rename": 8,
    "status.json:after_rename": 38,
    "run.json:after_rename": 8,
}
"""In the middle of those of step 8, of those of step 10, between that and step 15, at the end."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Config, dict[str, Any]]]:
    """Three that are trained together, and what came of each."""
    configs = ensemble(short_config(tmp_path_factory.mktemp("undisturbed")), lr=["1e-3", "2e-3", "3e-3"])
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 0
    return [(config, outcome(folder)) for config, folder in zip(configs, folders, strict=True)]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, marks=[] if point == "checkpoint:after_rename" else pytest.mark.slow)
        for point in POINTS
    ],
)
def test_killed_anywhere_they_go_on_as_if_nothing_had_been(
    point: str, undisturbed: list[tuple[Config, dict[str, Any]]], tmp_path: Path
) -> None:
    folders = [copy_of(config, tmp_path / "killed") for config, _ in undisturbed]
    torch.set_num_threads(1)
    assert killed_at(point, lambda: run_together(folders), POINTS[point])
    assert "running" in {read_status(folder).get("state") for folder in folders}
    assert run_together(folders) == 0
    assert [outcome(folder) for folder in folders] == [found for _, found in undisturbed]


def test_at_unequal_steps_they_go_on_from_the_last_that_all_have(tmp_path: Path) -> None:
    configs = ensemble(short_config(tmp_path, evals=1), seed=["0", "1"])
    folders = [make_run(config) for config in configs]
    assert killed_at("checkpoint:after_rename", lambda: run_together(folders), 5)  # of 3 writes of both
    newest = [checkpoint_steps(folder / "checkpoints")[-1] for folder in folders]
    assert sorted(newest) == [10, 15]
    assert run_together(folders) == 0
    resumed = [read_run(folder)["attempts"][-1]["resumed_from_step"] for folder in folders]
    assert resumed == [10, 10]


@pytest.mark.slow
def test_branches_that_decay_from_other_steps_are_each_the_run_by_itself(tmp_path: Path) -> None:
    stable = Schedule("stable", warmup_steps=3)
    trunk = make_run(
        dataclasses.replace(short_config(tmp_path, milestones=["384"], max_steps=12), schedule=stable)
    )
    assert run_here(trunk, "--quiet").returncode == 0
    assert {6, 12} <= set(checkpoint_steps(trunk / "checkpoints"))
    base = dataclasses.replace(
        short_config(tmp_path),
        schedule=Schedule("wsd", warmup_steps=3),
        restore=Restore(from_=str(trunk), what="run"),
    )
    configs = ensemble(base, decay_fraction=["0.25", "0.6"], lr=["3e-3"])
    folders = [make_run(config) for config in configs]
    assert killed_at("checkpoint:after_rename", lambda: run_together(folders), 3)
    assert run_together(folders) == 0
    begun = [read_run(folder)["restored"]["step"] for folder in folders]
    assert begun == [12, 6]
    for folder, config in zip(folders, configs, strict=True):
        assert_same_run(folder, alone(config, tmp_path / "alone"))


@pytest.mark.parametrize("lost", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_one_that_diverges_is_left_and_the_others_are_as_before(lost: int, tmp_path: Path) -> None:
    base = dataclasses.replace(short_config(tmp_path), optimizer=Optimizer(grad_clip=None))
    rates = ["1e-3", "3e-3"]
    rates.insert(lost, "1e30")
    configs = ensemble(base, lr=rates)
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 1
    states = [read_status(folder) for folder in folders]
    assert [status["state"] for status in states] == ["failed" if n == lost else "done" for n in range(3)]
    assert "finite:" in states[lost]["reason"].split()
    assert len(metrics_without_clock(folders[lost])) < 16
    for number in {0, 1, 2} - {lost}:
        assert_same_run(folders[number], alone(configs[number], tmp_path / "alone"))
    # by itself it says the same, at the same step
    by_itself = copy_of(dataclasses.replace(configs[lost], ensemble=Ensemble()), tmp_path / "alone")
    assert run_here(by_itself, "--quiet").returncode == 1
    assert column(by_itself, "step") == column(folders[lost], "step")
    # typed again: the others are done, and it is not trained with them
    before = (folders[2] / "metrics.csv").read_bytes()
    assert run_together(folders) == 1
    assert (folders[2] / "metrics.csv").read_bytes() == before


@pytest.mark.slow
def test_a_line_that_is_due_at_an_evaluation_leaves_its_loss_in_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    base = dataclasses.replace(short_config(tmp_path), logging=Logging(every_s=1e-9))
    configs = ensemble(base, seed=["0", "1"])
    folders = [make_run(config) for config in configs]
    with caplog.at_level("INFO"):
        assert run_together(folders) == 0
    lines = [line for record in caplog.records if "2 runs" in (line := record.getMessage())]
    told = [int(line.split()[1].partition("/")[0]) for line in lines if line.startswith("step")]
    assert min(told) == 2, "the time of the first step says nothing of the others"
    for folder, config in zip(folders, configs, strict=True):
        assert len(column(folder, "val_loss")) == 2
        assert_same_run(folder, alone(config, tmp_path / "alone"))


def test_a_step_that_is_skipped_is_told_in_the_log_of_its_run_alone(tmp_path: Path) -> None:
    guarded = {"on_spike": "skip", "spike_window": 5, "spike_threshold": 1.5, "max_steps": 30}
    folders = [make_run(one) for one in ensemble(short_config(tmp_path, **guarded), seed=["0", "1", "2"])]
    assert run_together(folders) == 0
    told = [(folder / "log.txt").read_text().count(SKIPPED) for folder in folders]
    skipped = [read_run(folder)["results"]["skipped_steps"] for folder in folders]
    assert told == skipped
    assert any(skipped)


def test_one_that_was_finished_by_itself_is_not_trained_again(three: list[Path]) -> None:
    assert run_here(three[2], "--quiet").returncode == 0
    before = outcome(three[2])
    assert run_together(three) == 0
    assert outcome(three[2]) == before
    assert len(read_run(three[2])["attempts"]) == 1
    assert all(read_status(folder)["state"] == "done" for folder in three)


def test_one_goes_on_by_itself(tmp_path: Path, three: list[Path]) -> None:
    assert killed_at("checkpoint:after_rename", lambda: run_together(three), 8)
    step = checkpoint_steps(three[1] / "checkpoints")[-1]
    assert run_here(three[1], "--quiet").returncode == 0
    assert read_run(three[1])["attempts"][-1]["resumed_from_step"] == step > 0
    assert "ensemble" not in read_run(three[1]), "this attempt had no company"
    config = ensemble(short_config(tmp_path), seed=["0", "1", "2"])[1]
    assert_same_run(three[1], alone(config, tmp_path / "alone"))


@pytest.mark.slow
def test_one_that_gets_no_better_ends_before_the_others(tmp_path: Path) -> None:
    base = tiny_config(tmp_path, patience=1, evals=8)
    configs = ensemble(base, lr=["1e-8", "5e-2", "3e-3"])
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 0
    for folder, config in zip(folders, configs, strict=True):
        assert_same_run(folder, alone(config, tmp_path / "alone"))
    steps = {len(metrics_without_clock(folder)) for folder in folders}
    assert len(steps) > 1, "none ended early: nothing was tried here"


def test_groups_are_of_those_that_can_go_on_together() -> None:
    steps = {"a": [10, 20], "b": [10, 20], "c": [20, 30], "d": [900, 1000]}
    assert groups(steps, 8) == [Group(["a", "b", "c"], 20), Group(["d"], 1000)]
    assert groups({"a": [], "b": [10], "c": []}, 2) == [Group(["a", "b"], 0), Group(["c"], 0)]
    assert groups({"a": [], "b": [500, 600]}, 2) == [Group(["a"], 0), Group(["b"], 600)]
    assert groups({"a": [5], "b": [5, 800, 900]}, 2) == [Group(["a"], 5), Group(["b"], 900)], "its best one"
    assert groups({"a": [5], "b": [5, 6], "c": [6]}, 2) == [Group(["a", "b"], 5), Group(["c"], 6)]
    # what was trained by itself is a step ahead because it was trained for longer
    assert groups({"a": [], "b": [10], "c": []}, 4, ["b"]) == [Group(["a", "c"], 0), Group(["b"], 10)]
    assert groups({"a": [5], "b": [5, 10]}, 4, ["b"]) == [Group(["a"], 5), Group(["b"], 10)]
    assert groups({"a": [5, 10], "b": [10]}, 4, ["a", "b"]) == [Group(["a", "b"], 10)]
    assert groups({"a": [], "b": []}, 4, ["a", "b"]) == [Group(["a", "b"], 0)]
    # what has not begun draws nobody back who waits for nobody there
    steps = {"a": [5, 9], "b": [5], "c": []}
    assert groups(steps, 2, ["c"]) == [Group(["c"], 0), Group(["a", "b"], 5)]


def test_what_one_has_done_by_itself_is_not_done_again(tmp_path: Path) -> None:
    configs = ensemble(short_config(tmp_path, evals=1, checkpoint_every=10), seed=["0", "1"])
    folders = [make_run(config) for config in configs]
    assert killed_at("checkpoint:after_rename", lambda: run_here(folders[0], "--quiet"))
    assert run_together(folders) == 0
    resumed = [read_run(folder)["attempts"][-1]["resumed_from_step"] for folder in folders]
    assert resumed == [10, 0]


def test_small_groups_come_one_after_another(tmp_path: Path) -> None:
    asked = Ensemble(seed=["0", "1", "2"], together=2)
    configs = members_of(dataclasses.replace(short_config(tmp_path, max_steps=4), ensemble=asked))
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 0
    assert [read_status(folder)["state"] for folder in folders] == ["done"] * 3
    shutil.rmtree(folders[0])
    again = make_run(configs[0])
    assert run_together([again, *folders[1:]]) == 0


@pytest.mark.slow
def test_killed_in_a_small_group_they_go_on_in_that_group(tmp_path: Path) -> None:
    asked = Ensemble(seed=["0", "1", "2"], together=2)
    configs = members_of(dataclasses.replace(short_config(tmp_path), ensemble=asked))
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 0
    killed = [copy_of(config, tmp_path / "killed") for config in configs]
    assert killed_at("checkpoint:after_rename", lambda: run_together(killed), 3)
    assert [checkpoint_steps(folder / "checkpoints") for folder in killed].count([5]) == 1
    assert run_together(killed) == 0
    assert [outcome(folder) for folder in killed] == [outcome(folder) for folder in folders]
    resumed = [read_run(folder)["attempts"][-1]["resumed_from_step"] for folder in killed]
    assert resumed == [5, 5, 0]


def test_one_at_a_time_is_each_by_itself(tmp_path: Path) -> None:
    asked = Ensemble(seed=["0", "1"], together=1)
    configs = members_of(dataclasses.replace(short_config(tmp_path, max_steps=4), ensemble=asked))
    folders = [make_run(config) for config in configs]
    assert run_together(folders) == 0
    for folder, config in zip(folders, configs, strict=True):
        assert outcome(folder) == outcome(alone(config, tmp_path / "alone"))


@pytest.mark.slow
def test_the_time_of_one_is_not_that_of_those_behind_it(tmp_path: Path) -> None:
    asked = Ensemble(seed=["0", "1"], together=1)
    base = short_config(tmp_path, max_steps=10_000, max_time="1s", checkpoint_every=5000, evals=1)
    base = dataclasses.replace(base, dataset=dataclasses.replace(base.dataset, repeat=True))
    folders = [make_run(config) for config in members_of(dataclasses.replace(base, ensemble=asked))]
    assert run_together(folders) == 1
    assert [read_status(folder).get("state") for folder in folders] == ["timeout"] * 2
