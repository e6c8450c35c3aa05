"""Several models as one: losses and gradients of each are those it has by itself, whatever its options."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import examples

from conf.schema import Arch, Model
from models import LanguageModel, LossModel, build_model
from models.options.option_conflicts import combination_problems
from models.stacked import StackedModel

MEMBERS, ROWS, SEQ, VOCAB = 3, 2, 12, 50
ARCHES: dict[str, dict[str, Any]] = {
    "default": {},
    "gpt2": {"norm": "layer", "bias": "all", "positions": "learned", "activation": "gelu", "head_bias": True},
    "untied": {"tied_head": False, "bias": "qkv", "qk_norm": True},
    "mqa": {"n_kv_heads": 1, "norm_position": "sandwich", "window": 5},
    "post": {"norm_position": "post", "positions": "alibi", "activation": "relu2"},
    "parallel": {"parallel_blocks": True, "positions": "sinusoidal"},
    "capped": {"logit_softcap": 3.0, "z_loss": 0.1, "norm": "none"},
    "mup": {"init": "completep", "base_width": 16, "base_layers": 1},
}


def members(arch: Arch) -> list[LanguageModel]:
    models = []
    for seed in range(MEMBERS):
        generator = torch.Generator().manual_seed(seed)
        models.append(build_model(Model(d_model=32, n_layers=2, n_heads=4), arch, VOCAB, SEQ, generator))
    return models


def batch(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids, labels = torch.randint(VOCAB, (2, MEMBERS * ROWS, SEQ), generator=generator)
    labels[::3, ::4] = -100
    return ids, labels


def one_by_one(models: list[LanguageModel], chunk: int, **options: Any) -> tuple[list[float], list[Any]]:
    ids, labels = batch()
    losses, gradients = [], []
    for number, model in enumerate(models):
        rows = slice(number * ROWS, (number + 1) * ROWS)
        loss = LossModel(model)(ids[rows], labels[rows], None, chunk, **options)
        loss.backward()
        losses.append(loss.item())
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])  # type: ignore[union-attr]
        model.zero_grad(set_to_none=True)
    return losses, gradients


def assert_as_alone(arch: Arch, chunk: int, reduction: str = "mean") -> None:
    models = members(arch)
    losses, gradients = one_by_one(models, chunk, reduction=reduction)
    ids, labels = batch()
    stack = StackedModel(models)
    stack.begin_step()
    of_tokens = torch.full(labels.shape, torch.nan)
    found = stack(ids, labels, None, chunk, reduction, of_tokens)
    found.sum().backward()
    torch.testing.assert_close(found.detach(), torch.tensor(losses), rtol=1e-5, atol=1e-6)
    sums = of_tokens.view(MEMBERS, -1).sum(1)
    counts = (labels != -100).view(MEMBERS, -1).sum(1)
    torch.testing.assert_close(sums / (counts if reduction == "mean" else 1), torch.tensor(losses))
    for model, of_model in zip(models, gradients, strict=True):
        for parameter, gradient in zip(model.parameters(), of_model, strict=True):
            assert parameter.grad is not None
            scale = gradient.abs().max().item()
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=2e-6 * max(scale, 1e-3))


@pytest.mark.parametrize("chunk", [10_000, 14], ids=["whole", "chunks"])
@pytest.mark.parametrize("name", ARCHES)
def test_losses_and_gradients_are_those_of_each_by_itself(name: str, chunk: int) -> None:
    assert_as_alone(Arch(**ARCHES[name]), chunk)


@given(
    norm=st.sampled_from(["rms", "layer", "none"]),
    norm_position=st.sampled_from(["pre", "post", "sandwich"]),
    positions=st.sampled_from(["rotary", "learned", "sinusoidal", "alibi", "none"]),
    n_kv_heads=st.sampled_from([None, 1, 2]),
    activation=st.sampled_from(["swiglu", "geglu", "gelu", "relu", "relu2", "silu"]),
    bias=st.sampled_from(["none", "qkv", "linear", "all"]),
    switches=st.fixed_dictionaries({name: st.booleans() for name in ("qk_norm", "tied_head", "head_bias")}),
    chunk=st.integers(1, 80),
    reduction=st.sampled_from(["mean", "sum"]),
)
@settings(max_examples=examples(15), deadline=None)
def test_so_are_those_of_any_options(
    switches: dict[str, bool], chunk: int, reduction: str, **options: Any
) -> None:
    arch = Arch(**options, **switches)
    if not combination_problems(arch):
        assert_as_alone(arch, chunk, reduction)


def test_what_an_optimizer_writes_the_stack_has() -> None:
    models = members(Arch())
    stack = StackedModel(models)
    ids, labels = batch()
    before = stack(ids, labels, None, 1000).tolist()
    with torch.no_grad():
        for parameter in models[1].parameters():
            parameter.mul_(1.5)
    after = stack(ids, labels, None, 1000).tolist()
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]


def test_a_member_that_is_no_number_hurts_no_other() -> None:
    models = members(Arch())
    expected, gradients = one_by_one(models, 1000)
    with torch.no_grad():
        models[1].embedding.weight.fill_(float("nan"))
    stack = StackedModel(models)
    stack.begin_step()
    ids, labels = batch()
    found = stack(ids, labels, None, 1000)
    found.sum().backward()
    assert found[1].isnan()
    assert models[1].output_weight.grad.isnan().all()  # type: ignore[union-attr]
    for number in (0, 2):
        assert found[number].item() == pytest.approx(expected[number])
        own = [parameter.grad for parameter in models[number].parameters()]
        for gradient, of_model in zip(own, gradients[number], strict=True):
            torch.testing.assert_close(gradient, of_model, rtol=1e-4, atol=1e-6)


def test_numbers_of_a_member_do_not_depend_on_its_company() -> None:
    models = members(Arch())
    ids, labels = batch()
    together = StackedModel(models)(ids, labels, None, 1000)
    fewer = StackedModel(models[:2])(ids[: 2 * ROWS], labels[: 2 * ROWS], None, 1000)
    assert together.tolist()[:2] == fewer.tolist()


def test_each_drops_what_it_drops_by_itself() -> None:
    arch = Arch(dropout_embedding=0.3, dropout_residual=0.2)
    models = members(arch)
    ids, labels = batch()
    expected = []
    for number, model in enumerate(models):
        torch.manual_seed(100 + number)
        rows = slice(number * ROWS, (number + 1) * ROWS)
        expected.append(LossModel(model)(ids[rows], labels[rows], None, 1000).item())
    stack = StackedModel(models)
    stack.begin_step([100, 101, 102])
    assert stack(ids, labels, None, 1000).tolist() == pytest.approx(expected, rel=1e-6)
    assert stack(ids, labels, None, 1000).tolist() != pytest.approx(expected, rel=1e-6), "drawn anew"


def test_documents_are_masked_for_each() -> None:
    models = members(Arch(positions="learned"))
    ids, labels = batch()
    positions = torch.arange(SEQ).repeat(MEMBERS * ROWS, 1)
    positions[1::2] = torch.arange(SEQ) % 5
    expected = []
    for number, model in enumerate(models):
        rows = slice(number * ROWS, (number + 1) * ROWS)
        expected.append(LossModel(model)(ids[rows], labels[rows], positions[rows], 1000).item())
    found = StackedModel(models)(ids, labels, positions, 1000)
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


def test_a_released_member_stands_by_itself() -> None:
    models = members(Arch())
    stack = StackedModel(models)
    kept = [parameter.detach().clone() for parameter in models[0].parameters()]
    stack.release()
    with torch.no_grad():
        for whole in stack.stacks:
            whole.zero_()
    for parameter, was in zip(models[0].parameters(), kept, strict=True):
        assert torch.equal(parameter, was)
        assert parameter.grad is None
