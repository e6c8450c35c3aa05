from __future__ import annotations

import itertools

import pytest
import torch

from conf.schema import Arch
from training.step.dropout_seed import drops, seed_step, step_seed


def test_each_seed_step_and_rank_has_its_own() -> None:
    seeds = [step_seed(*each) for each in itertools.product(range(3), range(20), range(4))]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert step_seed(1, 2, 3) == step_seed(1, 2, 3)


def test_what_was_drawn_before_does_not_matter() -> None:
    seed_step(0, 5, 1)
    first = torch.rand(3)
    torch.rand(7)
    seed_step(0, 5, 1)
    assert torch.equal(torch.rand(3), first)


@pytest.mark.parametrize("place", ["embedding", "attention", "residual", "recurrent"])
def test_only_a_model_that_drops_draws(place: str) -> None:
    assert not drops(Arch())
    assert drops(Arch(**{f"dropout_{place}": 0.1}))  # type: ignore[arg-type]
