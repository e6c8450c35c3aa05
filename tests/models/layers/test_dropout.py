"""Dropout: off in evaluation, a function of the seed, the same when a block is computed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conf.schema import Arch, Model
from models import LanguageModel, LossModel, build_model
from models.layers.dropout import dropped

MODEL = Model(d_model=32, n_layers=2, n_heads=2)
PLACES = ["dropout_embedding", "dropout_attention", "dropout_residual"]
OF_LSTM = {"family": "lstm", "bias": "linear"}
IDS = torch.randint(50, (4, 16), generator=torch.Generator().manual_seed(0))


def build(**options: Any) -> LanguageModel:
    return build_model(MODEL, Arch(**options), 50, 16, torch.Generator().manual_seed(1))


@pytest.mark.parametrize("place", PLACES)
def test_each_place_drops_in_training_and_only_there(place: str) -> None:
    model, plain = build(**{place: 0.5}), build()
    torch.manual_seed(2)
    first, second = model.hidden(IDS), model.hidden(IDS)
    assert not torch.equal(first, second)
    torch.manual_seed(2)
    assert torch.equal(model.hidden(IDS), first)
    model.eval()
    torch.testing.assert_close(model.hidden(IDS), plain.hidden(IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("place", PLACES)
def test_a_block_computed_again_drops_the_same(place: str) -> None:
    results = []
    for checkpointing in (False, True):
        model = build(**{place: 0.5})
        model.activation_checkpointing = checkpointing
        torch.manual_seed(3)
        loss = LossModel(model)(IDS, IDS, None, 16)
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(plain, checkpointed) for plain, checkpointed in zip(*results, strict=True))


def test_a_residual_keeps_its_mean() -> None:
    residual = build(dropout_residual=0.25).blocks[0].residual
    branch = torch.ones(1, 100_000, 1)
    dropped = residual(torch.zeros_like(branch), branch)  # type: ignore[operator]
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("place", ["dropout_embedding", "dropout_residual", "dropout_recurrent"])
@pytest.mark.parametrize("locked", [False, True])
def test_each_place_of_an_lstm_drops_in_training_and_the_same_when_computed_again(
    place: str, locked: bool
) -> None:
    results = []
    for checkpointing in (False, True):
        model = build(**OF_LSTM, **{place: 0.5}, dropout_locked=locked)
        model.activation_checkpointing = checkpointing
        torch.manual_seed(3)
        loss = LossModel(model)(IDS, IDS, None, 16)
        loss.backward()
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
        assert not torch.equal(model.hidden(IDS), model.hidden(IDS))
    assert all(torch.equal(plain, checkpointed) for plain, checkpointed in zip(*results, strict=True))
    model.eval()
    assert torch.equal(model.hidden(IDS), build(**OF_LSTM).hidden(IDS))


def test_what_is_locked_is_dropped_at_all_positions_of_a_row() -> None:
    torch.manual_seed(0)
    found = dropped(torch.ones(50, 7, 40), 0.25, True, locked=True)
    assert torch.equal(found, found[:, :1].expand_as(found))
    assert not torch.equal(found[0], found[1])
    assert found.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert found.mean().item() == pytest.approx(1.0, abs=0.1)
