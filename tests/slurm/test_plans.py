"""Plans of a whole sweep: problems together, one table, sums that count each run once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tiny_run import make_run, run_core, tiny_config

import data_loading
from conf import UserError
from conf.schema import Dataset
from data_loading import Data, prepare_data
from slurm.plans import plan_all, render_plans


def test_one_plan_is_its_page(tmp_path: Path) -> None:
    (plan,) = plan_all([tiny_config(tmp_path)], tokenize=False)
    assert render_plans([plan]) == plan.render()


def test_equal_runs_count_once(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    other = dataclasses.replace(config, seed=1)
    table = render_plans(plan_all([config, other, config], tokenize=True)).splitlines()
    assert len(table) == 5
    assert {line[:13] for line in table[1:4]} == {"tiny-lr0.003-"}
    tokens = 40 * 4 * 16
    assert table[-1].startswith(f"2 runs, {2 * tokens:,} tokens, ")
    assert table[-1].endswith("1 asked for twice run once")
    assert max(map(len, table)) < 110


def test_what_no_name_tells_has_a_column(tmp_path: Path) -> None:
    configs = [tiny_config(tmp_path, effective_batch=batch, micro_batch="auto") for batch in (4, 8)]
    header, first, second, _ = render_plans(plan_all(configs, tokenize=True)).splitlines()
    at = header.index("effective_batch")
    assert (first[at : at + 2], second[at : at + 2]) == ("4 ", "8 ")
    assert header.split() == ["run", "effective_batch", "parameters", "tokens", "steps", "FLOPs", "state"]


def test_a_text_that_is_not_tokenized_is_named(tmp_path: Path) -> None:
    configs = [dataclasses.replace(tiny_config(tmp_path), seed=seed) for seed in (0, 1)]
    table = render_plans(plan_all(configs, tokenize=False))
    assert f"not tokenized yet: {tmp_path / 'tiny.txt'}" in table


@pytest.mark.slow
def test_what_is_done_already_is_told(tmp_path: Path) -> None:
    configs = [dataclasses.replace(tiny_config(tmp_path, max_steps=2), seed=seed) for seed in (0, 1)]
    assert run_core(make_run(configs[0])).returncode == 0
    table = render_plans(plan_all(configs, tokenize=False)).splitlines()
    assert table[1].endswith("done")
    assert table[-1].endswith("1 done already")


def test_problems_of_all_runs_come_together_and_once(tmp_path: Path) -> None:
    wrong = [tiny_config(tmp_path, max_steps=10**9), tiny_config(tmp_path, seq_len=10**6)]
    with pytest.raises(UserError) as raised:
        plan_all([*wrong, tiny_config(tmp_path), *wrong], tokenize=True)
    assert [problem.where for problem in raised.value.problems] == [
        "training.max_steps",
        "training.seq_len",  # of train
        "training.seq_len",  # of val
    ]


@pytest.mark.parametrize("tokenize", [True, False])
def test_data_that_runs_share_are_looked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tokenize: bool
) -> None:
    asked = []

    def prepare_and_count(dataset: Dataset, *rest: Any, **how: Any) -> Data:
        asked.append(dataset.path)
        return prepare_data(dataset, *rest, **how)

    monkeypatch.setattr(data_loading, "prepare_data", prepare_and_count)
    for name in "ab":
        (tmp_path / name).mkdir()
    first, second = tiny_config(tmp_path / "a"), tiny_config(tmp_path / "b")
    many = [dataclasses.replace(config, seed=seed) for seed in range(5) for config in (first, second)]
    plans = plan_all(many, tokenize=tokenize)
    assert sorted(asked) == [first.dataset.path, second.dataset.path]
    assert [plan.config.seed for plan in plans] == [config.seed for config in many]
    assert len({plan.parameters for plan in plans}) == 1
