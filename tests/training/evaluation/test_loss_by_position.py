"""Losses by position: sums over buckets are those of the tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.loss_by_position import PositionLosses


@given(st.integers(1, 40), st.integers(1, 4), st.integers(0, 1000))
def test_nothing_is_lost_or_counted_twice(seq_len: int, batch: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    losses = torch.rand(batch, seq_len, generator=draws)
    counted = torch.rand(batch, seq_len, generator=draws) < 0.7
    losses = losses * counted
    of = PositionLosses(seq_len, torch.device("cpu"))
    of.add(losses, counted)
    of.add(losses, counted)
    found = of.to_json()
    assert sum(one["tokens"] for one in found) == 2 * int(counted.sum())
    assert sum(one["tokens"] * one["loss"] for one in found) == pytest.approx(2 * losses.sum().item())
    for one in found:
        inside = slice(one["first"], one["last"] + 1)
        assert one["tokens"] == 2 * int(counted[:, inside].sum())
        assert one["loss"] == pytest.approx((losses[:, inside].sum() / counted[:, inside].sum()).item())


def test_buckets_double() -> None:
    of = PositionLosses(11, torch.device("cpu"))
    of.add(torch.ones(1, 11), torch.ones(1, 11, dtype=torch.bool))
    assert [(one["first"], one["last"]) for one in of.to_json()] == [(0, 0), (1, 1), (2, 3), (4, 7), (8, 10)]


def test_of_documents_that_do_not_see_each_other_the_position_in_the_document_counts() -> None:
    of = PositionLosses(4, torch.device("cpu"))
    of.add(
        torch.tensor([[1.0, 2.0, 5.0, 6.0]]),
        torch.ones(1, 4, dtype=torch.bool),
        torch.tensor([[0, 1, 0, 1]]),
    )
    assert of.to_json() == [
        {"first": 0, "last": 0, "tokens": 2, "loss": 3.0},
        {"first": 1, "last": 1, "tokens": 2, "loss": 4.0},
    ]
