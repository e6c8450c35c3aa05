"""Suggested commands ask for the user's own data and settings, and for nothing that nobody typed."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from composed_once import kept_composer

from analysis.next_steps import after_run, after_sweep
from analysis.outcome import Outcome, how_to_go_on, outcome_of
from conf import Config
from conf.between_keys.ensembles import members_of
from conf.between_keys.rules import RULES
from conf.command_line.request import read_request
from conf.composing.check import to_plain
from conf.composing.compose import Composer
from conf.schema import Ensemble
from experiment_utils.run_folder import RunFolder
from slurm.records.submissions import SLURM, Array, Place, Submission, add_place
from tests.golden_text import Golden
from training.plan.run_plan import resolve

DONE = Outcome("done", None, 5, 5)
TEXT = ("dataset=text", "dataset.path=my text.txt")


@pytest.fixture(scope="module")
def composer() -> Composer:
    """Of the files that come with the program: what it composed before changes nothing (test_compose.py)."""
    return kept_composer()


@pytest.fixture
def suggested(new_run: Callable[..., Any], composer: Composer) -> Callable[..., list[list[str]]]:
    """The words of each command that is suggested after a run of these overrides."""

    numbers = itertools.count()

    def after(*overrides: str, config_dir: Path | None = None, **run: Any) -> list[list[str]]:
        typed_to = Composer(config_dir) if config_dir else composer
        (asked,) = read_request(list(overrides), typed_to, multirun=False, rules=RULES).runs
        made = new_run(f"run{next(numbers)}")
        study = made.path.parent.with_name(asked.config.study.name or "default")
        study.mkdir(exist_ok=True)
        made.path = made.path.rename(study / made.path.name)
        (made.path / "config.yaml").write_text(yaml.safe_dump(to_plain(resolve(asked.config))))
        made.run(**run)
        folder = RunFolder(made.path)
        commands = [command for command, _ in [*after_run(folder, DONE), *after_sweep(folder, 0)]]
        assert "python -m analysis report" in commands[0]
        started = [command for command in commands if command.startswith("python experiments.py")]
        words = [shlex.split(command) for command in started if "--help" not in command]
        for _, _, *arguments in words:
            multirun = arguments[0] == "-m"
            assert read_request(arguments[multirun:], composer, multirun=multirun, rules=RULES).runs
        return [arguments for _, _, *arguments in words]

    return after


@pytest.mark.parametrize(
    "typed",
    [
        (*TEXT,),
        (*TEXT, "tokenizer=bytes"),
        (*TEXT, "tokenizer=bytes", "training.seq_len=32", "training.effective_batch=4"),
        (*TEXT, "tokenizer=custom", "tokenizer.path=my tokenizer"),
        ("dataset=c4", "training.max_steps=5", "runs_dir=my runs", "seed=3"),
        ("dataset=wikitext103", "tokenizer=bytes", "training.tokens_per_param=20.5"),
        ("arch=transformer_gelu_learned", "schedule=linear_warmup", "optimizer.grad_clip=null"),
        ("optimizer.lr=0.0123", "schedule.final_lr_fraction=0", "training.compile=true", "seed_data=7"),
        (*TEXT, "dataset.document_separator='a,b'", "dataset.val_path=été.txt", "study.name=mine"),
    ],
)
def test_what_was_typed_is_kept_and_nothing_is_added(
    suggested: Callable[..., list[list[str]]], typed: tuple[str, ...]
) -> None:
    larger, rates, luck, at_larger = suggested("model=48d", *typed)
    seedless = {word for word in typed if not word.startswith("seed")}
    rate = [word for word in typed if word.startswith("optimizer.lr")]
    assert set(larger) == {"model=96d", *typed}
    assert set(at_larger) == {"model=96d", *typed}
    assert {word.partition("=")[0] for word in set(rates) - set(typed)} == {"-m", "model", "optimizer.lr"}
    assert set(typed) - set(rates) == set(rate)
    assert {word.partition("=")[0] for word in set(luck) - seedless} == {"-m", "model", "seed"}
    assert seedless <= set(luck)


def test_the_ready_study_is_for_a_run_of_defaults(suggested: Callable[..., list[list[str]]]) -> None:
    assert suggested("model=32d")[1] == ["-m", "study=lr_sweep"]
    assert suggested("seed=4", "runs_dir=my_runs")[1] == ["-m", "study=lr_sweep", "runs_dir=my_runs"]
    assert suggested("model=64d")[1] == ["-m", "model=64d", "optimizer.lr=0.001,0.003,0.009"]


def test_a_branch_is_followed_by_runs_of_their_own(suggested: Callable[..., list[list[str]]]) -> None:
    branch = ["restore.from=runs/trunk", "restore.what=run", "restore.step=32"]
    larger, *others = suggested("model=48d", "schedule=wsd", *branch)
    assert larger == ["model=96d", "schedule=wsd"]
    assert not any(word.startswith("restore.") for words in others for word in words)


def test_a_run_of_an_ensemble_is_followed_by_runs_by_themselves(new_run: Callable[..., Any]) -> None:
    asked = Config(ensemble=Ensemble(seed=["0", "1"], together=4))
    made = new_run("member")
    (made.path / "config.yaml").write_text(yaml.safe_dump(to_plain(resolve(members_of(asked)[0]))))
    made.run()
    commands = [command for command, _ in after_run(RunFolder(made.path), DONE)]
    assert not any("ensemble." in command for command in commands)


def test_a_run_whose_time_was_over_is_given_more(new_run: Callable[..., Any], golden: Golden) -> None:
    made = new_run("timed")
    for reason, key in (
        ("training.max_time=2s is over: 2.0 s of training", "training.max_time"),
        ("stopped by SIGUSR1", ""),
    ):
        (made.path / "status.json").write_text(json.dumps({"state": "timeout", "reason": reason, "step": 3}))
        folder = RunFolder(made.path)
        advice = after_run(folder, outcome_of(folder))[0][0]
        assert key in advice
        assert after_sweep(None, 1, [folder])[0][0] == advice
        golden.text(f"{advice}\n{how_to_go_on(folder)}")


def test_the_own_width_is_kept_where_the_size_is(suggested: Callable[..., list[list[str]]]) -> None:
    larger, rates, *_ = suggested("model=32d", "model.d_model=64", "model.n_heads=2")
    assert larger == ["model=128d"]
    assert rates[1:4] == ["model=32d", "model.d_model=64", "model.n_heads=2"]


def test_a_budget_that_a_small_text_filled_in_is_not_typed(
    suggested: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    """As the plan fills it in: one epoch of 1,000 tokens at 16 windows of 32 is one step."""
    epoch = {"train_tokens": 1000, "val_tokens": 100, "fingerprint": "a"}
    typed = (*TEXT, "tokenizer=bytes", "training.seq_len=32", "training.effective_batch=16")
    assert set(suggested(*typed, "training.max_tokens=512", data=epoch)[0]) == {"model=64d", *typed}
    told = suggested(*typed, "training.max_tokens=1024", data=epoch)[0]
    assert set(told) == {"model=64d", "training.max_tokens=1024", *typed}


def test_an_option_of_the_users_own_folder_is_told_key_by_key(
    suggested: Callable[..., list[list[str]]], tmp_path: Path
) -> None:
    for group, content in (("model", "d_model: 40\n"), ("dataset", "path: mine.txt\nval_fraction: 0.2\n")):
        (tmp_path / "mine" / group).mkdir(parents=True)
        (tmp_path / "mine" / group / "own.yaml").write_text(content)
    _, rates, *_ = suggested("model=own", "dataset=own", config_dir=tmp_path / "mine")
    assert set(rates) - {"-m", "optimizer.lr=0.001,0.003,0.009"} == {
        "model=32d", "model.name=own", "model.d_model=40", "dataset.name=own", "dataset.path=mine.txt",
        "dataset.val_fraction=0.2", "dataset.source=text",
    }  # fmt: skip


def _runs_of(typed: list[str], new_run: Callable[..., Any], composer: Composer) -> list[RunFolder]:
    """A done run of each override."""
    folders = []
    for override in typed:
        (asked,) = read_request([override], composer, multirun=False, rules=RULES).runs
        made = new_run(override)
        (made.path / "config.yaml").write_text(yaml.safe_dump(to_plain(resolve(asked.config))))
        made.run()
        folders.append(RunFolder(made.path))
    return folders


def test_seeds_of_the_sweep_are_not_proposed_again(new_run: Callable[..., Any], composer: Composer) -> None:
    folders = _runs_of(["seed=0", "seed=3", "seed=1"], new_run, composer)
    _, (again, _), *_ = after_sweep(folders[0], 0, folders)
    assert "seed=4,5" in again


def test_a_sweep_over_rates_is_asked_for_the_best(new_run: Callable[..., Any], composer: Composer) -> None:
    rates = ["optimizer.lr=1e-3", "optimizer.lr=3e-3", "optimizer.lr=1e-2"]
    folders = _runs_of(rates, new_run, composer)
    (command, _), *others = after_sweep(folders[0], 0, folders)
    assert shlex.split(command) == ["python", "-m", "analysis", "best-lr", str(folders[0].path.parent)]
    assert len(others) == 2
    assert "best-lr" not in after_sweep(folders[0], 0, folders[:2])[0][0], "two rates have no curve"


def test_runs_of_slurm_are_followed_by_runs_of_slurm(new_run: Callable[..., Any], composer: Composer) -> None:
    made = new_run("run")
    (asked,) = read_request([*TEXT], composer, multirun=False, rules=RULES).runs
    (made.path / "config.yaml").write_text(yaml.safe_dump(to_plain(resolve(asked.config))))
    made.run()
    folder = RunFolder(made.path)
    assert not any("hydra/launcher" in command for command, _ in after_run(folder, DONE))
    study = made.path.parent
    array = Array(0, "hw", [[made.path.name]], job_id="5")
    Submission("1", study, SLURM, 0.0, "me", "here", str(study), "-", [array]).write()
    add_place(made.path, Place("1", 0, 0))
    found = [*after_run(folder, DONE), *after_sweep(folder, 0)]
    commands = [command for command, _ in found if "experiments.py" in command and "--help" not in command]
    assert all(" hydra/launcher=slurm" in command for command in commands)
