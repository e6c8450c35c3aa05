"""Rows of a recurrent model go on with their states: as one long window, for as long as text goes on."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from conf import Config
from conf.schema import Arch, Model, Optimizer, Training
from models import LanguageModel, LossModel, build_model
from models.options.recurrent_carry import RowMemory
from training.devices.device import Device
from training.optimizers import build_optimizer
from training.step.recurrent_state import RowStates, row_state_bytes, row_states_of
from training.step.train_step import Step

CPU = Device("cpu", "fp32", 1)
VOCAB, ROWS, SEQ, LAYERS, WIDTH = 31, 4, 6, 2, 16
IDS = torch.randint(VOCAB, (ROWS, 2 * SEQ), generator=torch.Generator().manual_seed(0))
each_family = pytest.mark.parametrize("family", ["lstm", "mingru"])


def arch_of(family: str, reset: float = 0.0) -> Arch:
    return Arch(family=family, init="xavier", state_reset=reset)


def build(family: str) -> LanguageModel:
    model = Model(d_model=WIDTH, n_layers=LAYERS)
    return build_model(model, arch_of(family), VOCAB, 2 * SEQ, torch.Generator().manual_seed(1))


def states_of(family: str, reset: float = 0.0, seed: int = 0) -> RowStates:
    return RowStates(LAYERS, ROWS, arch_of(family, reset), WIDTH, seed, CPU)


def batch_of(half: int, begins: bool = False) -> dict[str, torch.Tensor]:
    ids = IDS[:, half * SEQ : (half + 1) * SEQ]
    return {"input_ids": ids, "labels": ids, "reset": torch.full((ROWS,), begins)}


def went_on(model: LanguageModel, states: RowStates, half: int, begins: bool = False) -> torch.Tensor:
    """Hidden states of a half of the rows, of a step that was taken."""
    states.begin_step(half)
    batch = batch_of(half, begins)
    model.memory = states.of_next(batch)
    hidden = model.hidden(batch["input_ids"])
    model.memory = None
    states.end_step()
    return hidden


@each_family
@pytest.mark.parametrize("checkpointing", [False, True])
def test_two_windows_are_one_long_one(family: str, checkpointing: bool) -> None:
    model, states = build(family), states_of(family)
    model.activation_checkpointing = checkpointing
    whole = model.hidden(IDS)
    parts = [went_on(model, states, half) for half in (0, 1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-5, atol=1e-5)
    parts[1].sum().backward()  # and what is carried has no gradient
    assert not states.states.requires_grad
    assert not torch.equal(parts[1], model.hidden(IDS[:, SEQ:]))


@each_family
def test_gradients_stay_within_a_window(family: str) -> None:
    """As those of the same window with that state as a constant."""
    model, states = build(family), states_of(family)
    first = went_on(model, states, 0)
    assert first.requires_grad
    constant = states.states.clone()
    states.begin_step(1)
    found = []
    for memory in (states.of_next(batch_of(1)), RowMemory(constant, torch.empty_like(constant))):
        model.zero_grad()
        model.memory = memory
        LossModel(model)(IDS[:, SEQ:], IDS[:, SEQ:], None, 64).backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))


@each_family
def test_a_row_whose_text_does_not_go_on_begins_with_zeros(family: str) -> None:
    model, states = build(family), states_of(family)
    went_on(model, states, 0)
    assert torch.equal(went_on(model, states, 1, begins=True), model.hidden(IDS[:, SEQ:]))


def test_what_is_reset_is_what_seed_and_step_say() -> None:
    def drawn(seed: int, reset: float = 0.5) -> torch.Tensor:
        states = RowStates(1, 64, arch_of("lstm", reset), WIDTH, seed, CPU)
        states.states.fill_(1.0)
        rows = []
        for step in range(20):
            states.begin_step(step)
            batch = {"reset": torch.zeros(64, dtype=torch.bool)}
            rows.append(states.of_next(batch).before[0, 0, :, 0])
        return torch.stack(rows)

    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))
    assert drawn(0).mean().item() == pytest.approx(0.5, abs=0.05)
    assert drawn(0, 0.0).all()
    assert not drawn(0, 1.0).any()


@each_family
@pytest.mark.parametrize("accumulation", [1, 2, 4])
def test_states_do_not_depend_on_the_micro_batch(family: str, accumulation: int) -> None:
    found = []
    for parts in (1, accumulation):
        model, states = build(family), states_of(family, 0.3)
        optimizer = build_optimizer(model, Optimizer("sgd", momentum=0.0), "cpu")
        losses = []
        step = Step(
            model, optimizer, CPU, accumulation=parts, loss_chunk=64, grad_clip=None, row_states=states
        )
        for number in (0, 1):
            whole = batch_of(number)
            pieces = zip(*(value.chunk(parts) for value in whole.values()), strict=True)
            batches = iter([dict(zip(whole, piece, strict=True)) for piece in pieces])
            losses.append(step.take(batches, 0.1, number).loss)
        found.append([*losses, states.states])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
    assert found[0][2].abs().sum() > 0


@each_family
def test_a_step_that_is_not_taken_leaves_them(family: str) -> None:
    model, states = build(family), states_of(family)
    went_on(model, states, 0)
    before = states.states.clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = Step(
        model, optimizer, CPU, accumulation=1, loss_chunk=64, grad_clip=None, row_states=states,
        refuses=lambda loss, norm, number: True,
    )  # fmt: skip
    assert step.take(iter([batch_of(1)]), 0.1, 1).is_skipped
    assert torch.equal(states.states, before)
    assert model.memory is None


@each_family
def test_their_bytes_are_known(family: str) -> None:
    config = Config(
        model=Model(d_model=WIDTH, n_layers=LAYERS),
        arch=arch_of(family),
        training=Training(effective_batch=ROWS),
    )
    found = row_states_of(config, ROWS, CPU)
    assert found is not None
    assert sum(t.numel() * t.element_size() for t in found.tensors().values()) == row_state_bytes(config)
    stateless = dataclasses.replace(config, arch=Arch(family=family))
    assert row_states_of(stateless, ROWS, CPU) is None
    assert row_state_bytes(stateless) == 0
