"""The scan of a minGRU is its recurrence, step by step: states, gradients, documents."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conf.schema import Arch, Model
from models import LanguageModel, build_model
from models.layers.scan import candidate, min_gru_states, scan

VOCAB = 61
IDS = torch.randint(VOCAB, (3, 17), generator=torch.Generator().manual_seed(0))


def one_by_one(gates: Tensor, begins: Tensor | None = None) -> Tensor:
    """The recurrence as the paper has it."""
    share, value = gates[..., : gates.shape[-1] // 2].sigmoid(), candidate(gates.chunk(2, -1)[1])
    state, states = torch.zeros_like(value[:, 0]), []
    for t in range(gates.shape[1]):
        kept = state if begins is None else torch.where(begins[:, t, None], 0.0, state)
        state = (1 - share[:, t]) * kept + share[:, t] * value[:, t]
        states.append(state)
    return torch.stack(states, 1)


@pytest.mark.parametrize("seq", [1, 2, 3, 4, 5, 16, 17, 50, 128])
@pytest.mark.parametrize("has_documents", [False, True])
def test_states_and_gradients_are_those_of_the_recurrence(seq: int, has_documents: bool) -> None:
    generator = torch.Generator().manual_seed(seq)
    gates = 3 * torch.randn(2, seq, 10, dtype=torch.float64, generator=generator)
    begins = torch.rand(2, seq, generator=generator) < 0.2 if has_documents else None
    weights = torch.randn(2, seq, 5, dtype=torch.float64, generator=generator)
    found = []
    for states_of in (min_gru_states, one_by_one):
        leaf = gates.clone().requires_grad_()
        states = states_of(leaf, begins)
        (states * weights).sum().backward()
        found.append((states.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def test_a_long_scan_in_fp32_is_as_near_as_the_loop() -> None:
    """What is hardly kept and what is kept for long, over thousands of positions."""
    gates = torch.randn(1, 4096, 8) * 6
    exact = one_by_one(gates.double())
    error, of_loop = (states(gates).double() - exact for states in (min_gru_states, one_by_one))
    assert error.abs().max() <= 2 * of_loop.abs().max() + 1e-6


def test_the_scan_of_what_is_never_kept_is_what_is_new() -> None:
    new = torch.randn(2, 7, 3)
    assert torch.equal(scan(torch.zeros_like(new), new), new)
    torch.testing.assert_close(scan(torch.ones_like(new), new), new.cumsum(1))


def build(**options: object) -> LanguageModel:
    arch = Arch(family="mingru", **options)  # type: ignore[arg-type]
    return build_model(Model(d_model=24, n_layers=2), arch, VOCAB, 17, torch.Generator().manual_seed(1))


def test_a_token_changes_what_is_behind_it_and_nothing_before() -> None:
    model, other = build(), IDS.clone()
    other[:, 9] = (other[:, 9] + 1) % VOCAB
    before, after = model.hidden(IDS), model.hidden(other)
    torch.testing.assert_close(before[:, :9], after[:, :9])
    assert (before[:, 9:] != after[:, 9:]).any(-1).all()


def test_documents_do_not_see_each_other() -> None:
    model = build()
    positions = torch.cat([torch.arange(6), torch.arange(11)]).expand(3, -1)
    both = model.hidden(IDS, positions)
    torch.testing.assert_close(both[:, :6], model.hidden(IDS[:, :6]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(both[:, 6:], model.hidden(IDS[:, 6:]), rtol=1e-5, atol=1e-5)


def test_under_autocast_states_are_in_fp32() -> None:
    model = build()
    with torch.autocast("cpu", torch.bfloat16):
        gates = model.blocks[0].recurrence.input(torch.randn(1, 5, 24))  # type: ignore[union-attr, operator]
        assert gates.dtype == torch.bfloat16
        assert min_gru_states(gates).dtype == torch.float32
        model.hidden(IDS).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
