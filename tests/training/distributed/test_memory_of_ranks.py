"""The memory of a run on several ranks: of all those on a node on the host, of one on its GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tiny_run import tiny_config

from conf.schema import Arch, Model
from experiment_utils.errors import UserError
from memory.estimate.estimate import RESTORE, Estimate
from tests.golden_text import refused
from training.plan.memory_parts import estimate_run
from training.plan.run_plan import make_plan, resolve

BUCKETS, STATES = "gradient buckets", "states of rows"


def estimate(folder: Path, parallel: str, ranks: int, ranks_here: int, **training: object) -> Estimate:
    """Of a model of which the parameters are most of what it needs."""
    config = tiny_config(folder, effective_batch=24, micro_batch=1, **training)  # type: ignore[arg-type]
    config = dataclasses.replace(
        config,
        model=Model(name="wide", d_model=512, n_layers=16, n_heads=8),
        training=dataclasses.replace(config.training, parallel=parallel),
    )
    return estimate_run(
        resolve(config),
        vocab_size=256,
        micro_batch=1,
        kept={"device": "cuda", "precision": "fp32"},
        ranks=ranks,
        ranks_here=ranks_here,
    )


def test_one_rank_needs_what_it_always_did(tmp_path: Path) -> None:
    ddp, fsdp = (estimate(tmp_path, parallel, 1, 1) for parallel in ("ddp", "fsdp"))
    assert ddp == fsdp
    assert BUCKETS not in ddp.at_gpu_peak()


def test_ranks_of_a_node_share_its_memory(tmp_path: Path) -> None:
    one, four = (estimate(tmp_path, "ddp", 4, here) for here in (1, 4))
    assert four.host_bytes == 4 * one.host_bytes
    assert four.host_at(RESTORE) == 4 * one.host_at(RESTORE)
    assert four.gpu_bytes == one.gpu_bytes


def test_ddp_keeps_buckets_and_fsdp_a_part_of_everything(tmp_path: Path) -> None:
    alone, ddp = estimate(tmp_path, "ddp", 1, 1), estimate(tmp_path, "ddp", 2, 1)
    parameters = alone.at_gpu_peak()["parameters"]
    assert ddp.at_gpu_peak()[BUCKETS] == pytest.approx(parameters, rel=1e-3)
    sizes = [estimate(tmp_path, "fsdp", ranks, 1).gpu_bytes for ranks in (2, 4, 8)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < alone.gpu_bytes < ddp.gpu_bytes
    assert estimate(tmp_path, "fsdp", 4, 1).at_gpu_peak()["parameters"] == pytest.approx(
        parameters / 4, rel=0.01
    )


def test_the_plan_tells_ranks_and_a_step_that_does_not_divide(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, effective_batch=12, micro_batch="auto")
    plan = make_plan(config, tokenize=True, ranks=3, ranks_here=3)
    assert (plan.budget.micro_batch, plan.budget.accumulation, plan.budget.ranks) == (4, 1, 3)
    assert "micro-batch 4 x 1 accumulated x 3 ranks (ddp)" in plan.render()
    assert plan.identity == make_plan(config, tokenize=True).identity
    assert plan.memory.largest_micro_batch == 4


@pytest.mark.parametrize(
    ("dataset", "training", "where"),
    [
        ({}, {"effective_batch": 4}, "training.effective_batch"),
        ({}, {"effective_batch": 12, "micro_batch": 3, "max_steps": 2}, None),
        ({}, {"effective_batch": 12, "micro_batch": 6}, "training.micro_batch"),
        ({"ranks": "shared"}, {"effective_batch": 12}, "dataset.ranks"),
        ({}, {"effective_batch": 12, "parallel": "fsdp", "compile": True}, "training.compile"),
    ],
)
def test_what_ranks_cannot_share_is_refused_before_it_starts(
    tmp_path: Path, dataset: dict[str, object], training: dict[str, object], where: str | None
) -> None:
    config = tiny_config(tmp_path, **training)
    config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, **dataset))  # type: ignore[arg-type]
    make_plan(config, tokenize=True)
    if where is None:
        with refused("micro-batch-not-a-divisor"):
            make_plan(config, tokenize=True, ranks=3)
        return
    with pytest.raises(UserError) as error:
        make_plan(config, tokenize=True, ranks=3)
    assert [problem.where for problem in error.value.problems] == [where]


def test_states_of_rows_are_those_of_one_rank(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, effective_batch=12)
    config = dataclasses.replace(
        config,
        arch=Arch(family="lstm", state_reset=0.0),
        dataset=dataclasses.replace(config.dataset, windows="streams"),
    )
    plan = make_plan(config, tokenize=True)
    assert STATES in {part.name for part in plan.memory.estimate.parts}
    with pytest.raises(UserError) as error:
        make_plan(config, tokenize=True, ranks=3)
    assert [problem.where for problem in error.value.problems] == ["arch.state_reset"]
