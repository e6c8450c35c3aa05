"""A run that begins with another: what is taken, what is refused, and branches of one trunk."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import copy_of, make_run, metrics_without_clock, run_here, tiny_config

from conf import Config
from conf.schema import Arch, Optimizer, Restore, Schedule
from experiment_utils.errors import Problem, UserError
from tests.forked import killed_at
from tests.golden_text import Golden
from training.attempt.run_files import read_run
from training.checkpoint.checkpoints import checkpoint_folder, checkpoint_steps, load
from training.plan.run_plan import make_plan

WSD = Schedule("wsd", warmup_steps=3, decay_fraction=0.25, final_lr_fraction=0.0)


def trunk_config(folder: Path, **training: Any) -> Config:
    """20 steps of 64 tokens; checkpoints of steps 9 and 15 are kept for budgets of 12 and 20 steps."""
    options = {"max_steps": 20, "evals": 2, "checkpoint_every": 4, "keep_checkpoints": 1}
    config = tiny_config(folder, **(options | {"milestones": ["576", "960"]} | training))
    return dataclasses.replace(config, schedule=Schedule("stable", warmup_steps=3))


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_run(trunk_config(tmp_path_factory.mktemp("trunk")))
    assert run_here(folder, "--quiet").returncode == 0
    return folder


def after(trunk: Path, config: Config | None = None, **restore: Any) -> Config:
    config = config or trunk_config(trunk.parents[2], milestones=[])
    return dataclasses.replace(config, restore=Restore(**({"from_": str(trunk)} | restore)))


def branch(trunk: Path, steps: int, **restore: Any) -> Config:
    config = trunk_config(trunk.parents[2], max_steps=steps, milestones=[])
    return dataclasses.replace(after(trunk, config, what="run", **restore), schedule=WSD)


def test_milestones_are_kept_beside_the_last_and_the_best(trunk: Path) -> None:
    run = read_run(trunk)
    assert run["milestones"] == [9, 15]
    best = run["results"]["best"]["step"]
    assert checkpoint_steps(trunk / "checkpoints") == sorted({9, 15, 20, best})


@pytest.mark.parametrize(("steps", "step"), [(12, 9), (20, 15)])
def test_a_branch_is_the_run_that_had_its_budget_from_the_start(
    trunk: Path, tmp_path: Path, steps: int, step: int
) -> None:
    config = branch(trunk, steps)
    folder = copy_of(config, tmp_path / "branch")
    alone = copy_of(dataclasses.replace(config, restore=Restore()), tmp_path / "alone")
    assert folder.name != alone.name
    for each in (folder, alone):
        assert run_here(each, "--quiet").returncode == 0
    run = read_run(folder)
    assert run["restored"]["step"] == step
    assert run["restored"]["checkpoint"] == str(checkpoint_folder(trunk / "checkpoints", step))
    assert (run["restored"]["matched"], run["restored"]["missing"]) == (8, [])
    rows, expected = (
        [{k: v for k, v in row.items() if k != "val_loss"} for row in metrics_without_clock(each)]
        for each in (folder, alone)
    )
    assert rows == expected
    digests = [
        json.loads((checkpoint_folder(each / "checkpoints", steps) / "state.json").read_text())["sha256"]
        for each in (folder, alone)
    ]
    assert digests[0] == digests[1]
    assert run["results"]["val_loss"] == read_run(alone)["results"]["val_loss"]


def test_a_branch_that_is_killed_goes_on_without_its_trunk(trunk: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(trunk, tmp_path / "trunk", symlinks=True))
    config = branch(moved, 12)
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, checkpoint_every=2))
    whole, folder = copy_of(config, tmp_path / "whole"), copy_of(config, tmp_path / "killed")
    assert run_here(whole, "--quiet").returncode == 0
    assert killed_at("checkpoint:after_rename", lambda: run_here(folder, "--quiet"))
    shutil.rmtree(moved)
    assert run_here(folder, "--quiet").returncode == 0
    assert metrics_without_clock(folder) == metrics_without_clock(whole)
    matched = [read_run(each)["restored"]["matched"] for each in (folder, whole)]
    assert matched == [8, 8]


def test_weights_alone_begin_at_the_first_step(trunk: Path, tmp_path: Path) -> None:
    config = dataclasses.replace(after(trunk, step=15), seed_data=4)
    folder = copy_of(config, tmp_path / "runs")
    assert run_here(folder, "--quiet").returncode == 0
    first = metrics_without_clock(folder)[0]
    assert (first["step"], first["lr"]) == ("1", str(1e-3))
    before = [float(row["train_loss"]) for row in metrics_without_clock(trunk)]
    assert float(first["train_loss"]) < before[0] - 0.1


def test_moments_are_taken_where_asked_for(trunk: Path, tmp_path: Path) -> None:
    rows = []
    for what in ("weights", "optimizer"):
        folder = copy_of(after(trunk, what=what), tmp_path / what)
        assert run_here(folder, "--quiet").returncode == 0
        rows.append(metrics_without_clock(folder))
    assert rows[0][0]["train_loss"] == rows[1][0]["train_loss"]
    assert rows[0][1]["train_loss"] != rows[1][1]["train_loss"]


def test_the_identity_is_of_what_is_taken_not_of_where_it_lies(trunk: Path, tmp_path: Path) -> None:
    def identity(**restore: Any) -> str | None:
        return make_plan(after(trunk, **restore), tokenize=False).identity

    plain = make_plan(trunk_config(trunk.parents[2]), tokenize=False).identity
    moved = Path(shutil.copytree(trunk, tmp_path / "elsewhere", symlinks=True))
    newest = str(checkpoint_folder(trunk / "checkpoints", 20))
    found = [identity(), identity(step=15), identity(what="optimizer"), identity(what="run", step=15), plain]
    assert len(set(found)) == 5
    assert identity() == identity(from_=str(moved)) == identity(step=20) == identity(from_=newest)
    plan = make_plan(after(trunk, what="run", step=15), tokenize=False)
    assert str(trunk / "checkpoints" / "step-00000015") in plan.render()
    assert plan.config.restore.step == 15
    assert all(step > 15 for step in plan.evaluations)


def refused(config: Config) -> list[Problem]:
    with pytest.raises(UserError) as error:
        make_plan(config, tokenize=False)
    return error.value.problems


def test_a_trunk_whose_own_decay_has_begun_is_no_trunk_any_more(tmp_path: Path, golden: Golden) -> None:
    """wsd of 20 steps, which falls from its peak at step 15: a longer run has that at step 16 too."""
    config = dataclasses.replace(trunk_config(tmp_path, milestones=["704", "1088"]), schedule=WSD)
    fallen = make_run(config)
    assert run_here(fallen, "--quiet").returncode == 0
    assert {11, 17} <= set(checkpoint_steps(fallen / "checkpoints"))
    for told in (fallen, checkpoint_folder(fallen / "checkpoints", 17)):
        (problem,) = refused(after(tmp_path, branch(fallen, 40), from_=str(told), what="run", step=17))
        assert problem.where == "restore.step"
        golden.text(problem.what)
    plan = make_plan(branch(fallen, 40), tokenize=False)
    assert plan.restored is not None
    assert plan.restored.step == 11, "the newest before"
    again = dataclasses.replace(branch(fallen, 20), training=dataclasses.replace(config.training, evals=1))
    assert make_plan(again, tokenize=False).restored is not None


def test_what_cannot_be_gone_on_with_is_told(trunk: Path, tmp_path: Path, golden: Golden) -> None:
    lion = dataclasses.replace(after(trunk, what="optimizer"), optimizer=Optimizer(name="lion"))
    texts = []
    for config, where in (
        (after(trunk, from_="nowhere"), "restore.from"),
        (after(trunk, from_=str(tmp_path)), "restore.from"),
        (after(trunk, step=7), "restore.step"),
        (branch(trunk, 20, step=20), "restore.step"),
        (branch(trunk, 8), "restore.step"),
        (dataclasses.replace(branch(trunk, 20), seed_data=9), "seed_data"),
        (lion, "optimizer.name"),
    ):
        found = refused(config)
        assert where in [problem.where for problem in found], found
        texts += map(str, found)
    golden.text("\n".join(texts))
    assert make_plan(dataclasses.replace(lion, restore=Restore(from_=str(trunk))), tokenize=False).restored
    by_name = after(trunk, from_=trunk.name)
    assert make_plan(by_name, tokenize=False).restored == make_plan(after(trunk), tokenize=False).restored


@pytest.mark.parametrize("name", ["rmsprop", "sgd"])
def test_moments_of_another_momentum_are_not_there(name: str, tmp_path: Path) -> None:
    plain = dataclasses.replace(
        tiny_config(tmp_path, max_steps=2, evals=1), optimizer=Optimizer(name=name, weight_decay=0.0)
    )
    folder = make_run(plain)
    assert run_here(folder, "--quiet").returncode == 0
    with_momentum = dataclasses.replace(plain.optimizer, momentum=0.9)
    config = dataclasses.replace(after(folder, plain, what="optimizer"), optimizer=with_momentum)
    assert "optimizer.momentum" in [problem.where for problem in refused(config)]
    assert make_plan(after(folder, plain, what="optimizer"), tokenize=False).restored


def test_another_model_is_refused_with_what_differs_or_taken_in_part(
    trunk: Path, tmp_path: Path, golden: Golden
) -> None:
    config = after(trunk)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, n_layers=2))
    folder = copy_of(config, tmp_path / "strict")
    done = run_here(folder)
    assert done.returncode == 2
    assert "blocks.1.attention.qkv.weight" in done.stderr
    assert "restore.strict=false" in done.stderr
    golden.text(done.stderr)
    loose = dataclasses.replace(config, restore=dataclasses.replace(config.restore, strict=False))
    folder = copy_of(loose, tmp_path / "loose")
    assert run_here(folder, "--quiet").returncode == 0
    told = read_run(folder)["restored"]
    assert (told["matched"], len(told["missing"]), told["other_shape"]) == (8, 6, [])
    wider = dataclasses.replace(loose, model=dataclasses.replace(loose.model, n_layers=1, d_model=32))
    folder = copy_of(wider, tmp_path / "wider")
    assert run_here(folder, "--quiet").returncode == 0
    told = read_run(folder)["restored"]
    assert told["matched"] == 0
    assert "embedding.weight (257, 16) -> (257, 32)" in told["other_shape"]


def test_moments_of_another_shape_are_refused_with_what_can_be_taken(tmp_path: Path) -> None:
    """A rule refuses restore.strict=false beside restore.what=optimizer."""
    config = dataclasses.replace(tiny_config(tmp_path), arch=Arch(positions="learned"))
    trunk = make_run(config)
    assert run_here(trunk, "--quiet").returncode == 0
    longer = dataclasses.replace(config, training=dataclasses.replace(config.training, seq_len=32))
    done = run_here(copy_of(after(trunk, longer, what="optimizer"), tmp_path / "longer"))
    assert done.returncode == 2
    assert "positions.table.weight (16, 16) -> (32, 16)" in done.stderr
    assert all(change in done.stderr for change in ("restore.what=weights", "restore.strict=false"))


def test_an_average_begins_with_the_weights_that_were_taken(trunk: Path, tmp_path: Path) -> None:
    config = after(trunk)
    config = dataclasses.replace(config, training=dataclasses.replace(config.training, ema=0.5, max_steps=1))
    folder = copy_of(config, tmp_path / "runs")
    assert run_here(folder, "--quiet").returncode == 0
    taken = load(checkpoint_folder(trunk / "checkpoints", 20)).weights
    checkpoint = load(checkpoint_folder(folder / "checkpoints", 1))
    decay = 2 / 11
    for name, average in checkpoint.weights.items():
        expected = decay * taken[name] + (1 - decay) * checkpoint.training[f"trained.{name}"]
        torch.testing.assert_close(average, expected)


def test_a_file_of_another_program_is_named(trunk: Path, tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, tmp_path / "model.pt")
    with pytest.raises(UserError, match=r"torch\.save"):
        make_plan(after(tmp_path / "model.pt", trunk_config(trunk.parents[2])), tokenize=False)


def test_a_pointer_in_a_checkpoint_is_named(trunk: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(trunk, tmp_path / "copied", symlinks=True))
    newest = checkpoint_folder(copied / "checkpoints", 20)
    (newest / "state.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:01\nsize 9\n")
    with pytest.raises(UserError, match="lfs"):
        make_plan(after(copied, trunk_config(trunk.parents[2])), tokenize=False)
