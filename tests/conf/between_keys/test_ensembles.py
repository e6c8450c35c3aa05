"""`ensemble=`: which runs it is, and what it cannot be of."""

from __future__ import annotations

from typing import Any

import pytest
from composed_once import kept_composer

from conf import Config
from conf.between_keys.ensembles import VARIED, is_ensemble, members_of
from conf.command_line.request import read_request
from conf.composing.check import check
from conf.composing.run_identity import identity
from conf.keys import keys
from experiment_utils.errors import UserError
from tests.golden_text import Golden


def problems(**plain: Any) -> list[str]:
    return [str(problem) for problem in check(plain)[1]]


def test_the_runs_are_all_combinations_and_each_is_a_run_like_any_other() -> None:
    config, wrong = check({"ensemble": {"lr": ["1e-3", 0.002], "seed": [0, "7"], "grad_clip": ["null"]}})
    assert wrong == []
    assert is_ensemble(config)
    members = members_of(config)
    found = [(run.optimizer.lr, run.seed, run.optimizer.grad_clip) for run in members]
    assert found == [(1e-3, 0, None), (1e-3, 7, None), (2e-3, 0, None), (2e-3, 7, None)]
    by_itself, _ = check({"optimizer": {"lr": 2e-3, "grad_clip": None}, "seed": 7})
    assert members[3] == by_itself
    assert members_of(by_itself) == [by_itself]


def test_it_is_no_part_of_a_runs_identity() -> None:
    config, _ = check({"ensemble": {"lr": ["1e-3", "2e-3"], "together": 2}})
    assert identity(config, "data") == identity(Config(), "data")


def test_every_list_is_of_a_number_that_a_run_has() -> None:
    for path in VARIED.values():
        assert {int, float} & set(keys()[path].types), path


def test_lists_that_cannot_be_varied_are_refused(golden: Golden) -> None:
    texts = []
    for ensemble, where in (
        ({"lr": ["0", "1e-3"]}, "ensemble.lr"),
        ({"lr": ["fast"]}, "ensemble.lr"),
        ({"lr": ["1e-3", "0.001"]}, "ensemble.lr"),
        ({"lr": 1e-3}, "ensemble.lr"),
        ({"d_model": [32, 64]}, "ensemble.d_model"),
        ({"colour": [1]}, "ensemble.colour"),
        ({"together": 3}, "ensemble.together"),
        ({"momentum": ["0.5"]}, "optimizer.momentum"),  # of adamw, which has none
        ({"seed": ["1"], "seed_init": ["2"], "seed_data": ["3"]}, "ensemble.seed"),
        ({"warmup_fraction": ["0.05", "0.3"], "warmup_steps": ["5"]}, "ensemble.warmup_fraction"),
    ):
        found = check({"ensemble": ensemble})[1]
        assert where in [problem.where for problem in found], found
        texts += [str(problem) for problem in found]
    golden.text("\n".join(texts))


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("arch.family", {"family": "lstm"}),
        ("arch.n_experts", {"n_experts": 4}),
        ("arch.dropout_attention", {"dropout_attention": 0.1}),
        ("training.compile", {"compile": True}),
        ("training.profile", {"profile": "3:4"}),
        ("memory.attribute", {"attribute": True}),
        ("slurm.nodes", {"nodes": 2}),
        ("slurm.tasks_per_node", {"tasks_per_node": 2}),
        ("slurm.gpus_per_node", {"gpus_per_node": 2}),
        ("slurm.pack", {"pack": 2}),
        ("slurm.workers", {"workers": 2}),
    ],
)
def test_what_cannot_be_one_program_is_refused(where: str, values: dict[str, Any]) -> None:
    plain = {where.partition(".")[0]: values}
    assert not any("(ensemble)" in problem for problem in problems(**plain))
    told = problems(ensemble={"seed": ["0", "1"]}, **plain)
    assert any(problem.startswith(f"{where}:") and "(ensemble)" in problem for problem in told), told


def test_a_key_is_not_given_beside_the_list_of_its_values() -> None:
    given = ["ensemble.lr=[1e-3,2e-3]", "optimizer.lr=1e-3,3e-3"]
    with pytest.raises(UserError) as error:
        read_request(given, kept_composer(), multirun=True)
    (problem,) = error.value.problems
    assert problem.where == "optimizer.lr"
    assert "ensemble.lr" in problem.what
