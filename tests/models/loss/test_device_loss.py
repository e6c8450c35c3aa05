"""The loss of a GPU, with torch's operations on a CPU. test_loss.py has the tests of every loss."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import models.loss
from models import lm_loss
from models.loss import device_loss
from models.loss.stacked_loss import stacked_loss

HEADS, TOKENS, VOCAB, WIDTH = 3, 40, 300, 24


@pytest.fixture(autouse=True)
def is_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda _: False))


def made() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(VOCAB, (HEADS, TOKENS), generator=generator)
    labels[:, ::7] = -100
    return {
        "hidden": torch.randn(HEADS, TOKENS, WIDTH, generator=generator).requires_grad_(),
        "weight": (0.3 * torch.randn(HEADS, VOCAB, WIDTH, generator=generator)).requires_grad_(),
        "bias": torch.randn(HEADS, VOCAB, generator=generator).requires_grad_(),
        "labels": labels,
    }


def head(number: int) -> dict[str, Tensor]:
    """One of those of `made`."""
    return {name: one[number].detach().requires_grad_(name != "labels") for name, one in made().items()}


@pytest.mark.parametrize("options", [{}, {"softcap": 5.0, "z_loss": 0.01}], ids=["", "softcap and z-loss"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [7, 50, 1000])
def test_each_head_of_an_ensemble_has_its_own_loss(
    options: dict[str, Any], reduction: str, chunk: int
) -> None:
    of_tokens = torch.empty(HEADS, TOKENS)
    one = made()
    losses = stacked_loss(
        one["hidden"], one["weight"], one["labels"], chunk, reduction, of_tokens, bias=one["bias"], **options
    )
    losses.sum().backward()
    for n in range(HEADS):
        own = head(n)
        expected = torch.empty(TOKENS)
        loss = lm_loss(
            own["hidden"], own["weight"], own["labels"], 13, reduction, expected, bias=own["bias"], **options
        )
        loss.backward()
        torch.testing.assert_close(losses[n], loss)
        torch.testing.assert_close(of_tokens[n], expected)
        for name in ("hidden", "weight", "bias"):
            torch.testing.assert_close(one[name].grad[n], own[name].grad, rtol=1e-4, atol=1e-6)


def test_bf16_gradients_are_as_exact_as_those_of_plain_autocast() -> None:
    def errors(loss_of: Any) -> list[float]:
        one = head(0)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss_of(one["hidden"], one["weight"], one["labels"])
        exact = [one[name].detach().double().requires_grad_() for name in ("hidden", "weight")]
        expected = F.cross_entropy(exact[0] @ exact[1].T, one["labels"])
        found = torch.autograd.grad(value, (one["hidden"], one["weight"]))
        return [
            float((got.detach() - want.detach()).norm() / want.detach().norm())
            for got, want in zip(
                (value, *found), (expected, *torch.autograd.grad(expected, exact)), strict=True
            )
        ]

    ours = errors(lambda hidden, weight, labels: lm_loss(hidden, weight, labels, 16))
    plain = errors(lambda hidden, weight, labels: F.cross_entropy(F.linear(hidden, weight).float(), labels))
    assert all(one <= 1.1 * other + 1e-6 for one, other in zip(ours, plain, strict=True)), (ours, plain)


def test_fp16_gradients_of_many_equal_labels_are_finite_and_exact() -> None:
    """The gradient of a frequent id is a sum over thousands of tokens; no loss scale makes it smaller."""
    tokens = 16_384
    hidden = torch.randn(tokens, WIDTH, generator=torch.Generator().manual_seed(0))
    hidden[:, 0] = 16.0
    labels = torch.arange(tokens) % VOCAB
    labels[: tokens // 2] = 32
    weight = (0.02 * made()["weight"][0].detach()).requires_grad_()
    with torch.autocast("cpu", torch.float16):
        loss = lm_loss(hidden.half(), weight, labels, tokens)
    [found] = torch.autograd.grad(loss, weight)
    exact = weight.detach().double().requires_grad_()
    [expected] = torch.autograd.grad(F.cross_entropy(hidden.double() @ exact.T, labels), exact)
    assert found.isfinite().all()
    assert (found - expected).norm() < 2e-3 * expected.norm()


def test_without_triton_torchs_operations_compute_the_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node can lack the C compiler that Triton needs for its first kernel."""

    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: True))
    monkeypatch.setattr(device_loss, "has_triton", lambda: True)
    monkeypatch.setattr(device_loss, "_without_triton", [])
    monkeypatch.setitem(
        sys.modules, "models.loss.loss_kernel", broken := ModuleType("models.loss.loss_kernel")
    )
    calls: list[object] = []

    def cross_entropy_(*_: object) -> Tensor:
        calls.append(None)
        raise RuntimeError("Failed to find C compiler")

    broken.cross_entropy_ = cross_entropy_  # type: ignore[attr-defined]
    monkeypatch.setattr(models.loss, "loss_kernel", broken, raising=False)
    one = {name: tensor[0] for name, tensor in made().items()}
    values = [lm_loss(one["hidden"], one["weight"], one["labels"], 16).item() for _ in range(2)]
    expected = F.cross_entropy(one["hidden"] @ one["weight"].T, one["labels"])
    assert values == pytest.approx([expected.item()] * 2)
    assert len(caplog.records) == len(calls) == 1
