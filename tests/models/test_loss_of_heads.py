"""Output bias, soft-cap and z-loss: every way of the loss, against whole logits and autograd."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conf.schema import Arch, Model
from models import LossModel, build_model, lm_loss

pytestmark = pytest.mark.usefixtures("tiles_of_the_loss")

TOKENS, VOCAB, WIDTH = 50, 300, 24
HEADS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": True},
    "softcap": {"softcap": 5.0},
    "z": {"z_loss": 0.1},
    "all": {"bias": True, "softcap": 5.0, "z_loss": 0.1},
}
each_head = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)


def make(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias = (
        torch.randn(size, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for size in ((TOKENS, WIDTH), (VOCAB, WIDTH), (VOCAB,))
    )
    labels = torch.randint(VOCAB, (TOKENS,), generator=generator)
    labels[::7] = -100
    return hidden, weight, bias, labels


def plain(head: dict[str, Any], reduction: str) -> tuple[Tensor, list[Tensor], Tensor]:
    """Cross-entropy, the gradients of what is minimized, and the losses of tokens, in fp64."""
    hidden, weight, bias, labels = make()
    logits = hidden @ weight.T + (bias if head.get("bias") else 0 * bias)
    if "softcap" in head:
        logits = head["softcap"] * torch.tanh(logits / head["softcap"])
    losses = F.cross_entropy(logits, labels, reduction="none")
    penalty = head.get("z_loss", 0.0) * logits.exp().sum(1).log() ** 2
    counts = labels != -100
    divisor = counts.sum() if reduction == "mean" else 1
    minimized = (losses + penalty)[counts].sum() / divisor
    return losses.sum() / divisor, list(torch.autograd.grad(minimized, (hidden, weight, bias))), losses


@each_head
@pytest.mark.parametrize("with_losses", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("chunk", [7, 16, 50])
def test_every_head_is_that_of_whole_logits(
    head: dict[str, Any],
    with_losses: bool,
    reduction: str,
    chunk: int,
) -> None:
    hidden, weight, bias, labels = make(torch.float32)
    of_tokens = torch.full((TOKENS,), torch.nan) if with_losses else None
    options = {**head, "bias": bias if head.get("bias") else None}
    value = lm_loss(hidden, weight, labels, chunk, reduction, of_tokens, **options)
    found = torch.autograd.grad(value, (hidden, weight, bias), allow_unused=True)
    expected, gradients, losses = plain(head, reduction)
    size = 1 if reduction == "mean" else TOKENS
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)
    for one, of_plain in zip(found, gradients, strict=True):
        if one is None:
            assert not head.get("bias")
            continue
        torch.testing.assert_close(one.double(), of_plain, rtol=1e-5, atol=1e-6 * size)
    if of_tokens is not None:
        torch.testing.assert_close(of_tokens.double(), losses, rtol=1e-6, atol=1e-6)


@each_head
def test_without_gradients_it_is_the_same_number(head: dict[str, Any]) -> None:
    hidden, weight, bias, labels = make(torch.float32)
    options = {**head, "bias": bias if head.get("bias") else None}
    for chunk in (16, 1000):
        trained = lm_loss(hidden, weight, labels, chunk, **options)
        with torch.no_grad():
            torch.testing.assert_close(lm_loss(hidden, weight, labels, chunk, **options), trained)


@pytest.mark.parametrize("chunk", [16, 1000])
def test_in_bf16_the_bias_gets_a_gradient_of_its_own_kind(chunk: int) -> None:
    hidden, weight, bias, labels = make(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        value = lm_loss(hidden, weight, labels, chunk, bias=bias, softcap=5.0, z_loss=0.1)
    found = torch.autograd.grad(value, (hidden, weight, bias))
    _, gradients, _ = plain(HEADS["all"], "mean")
    for one, expected in zip(found, gradients, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one.double(), expected, rtol=0.05, atol=0.03 * expected.abs().max().item())


def test_a_model_hands_its_head_to_the_loss_and_logits_are_of_the_same_head() -> None:
    torch.manual_seed(0)
    arch = Arch(head_bias=True, logit_softcap=3.0, z_loss=0.1, init_std=0.5)
    model = build_model(Model(d_model=32), arch, VOCAB, 16)
    assert model.head_bias is not None
    with torch.no_grad():
        model.head_bias.normal_()
    ids = torch.randint(VOCAB, (4, 16))
    logits = model(ids)
    assert logits.abs().max() <= 3.0
    usual = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
    for chunk in (16, 1000):
        model.zero_grad()
        value = LossModel(model)(ids, ids, None, chunk)
        torch.testing.assert_close(value, usual)
        value.backward()
        minimized = usual + 0.1 * logits.logsumexp(-1).square().mean()
        (expected,) = torch.autograd.grad(minimized, model.head_bias, retain_graph=True)
        torch.testing.assert_close(model.head_bias.grad, expected, rtol=1e-5, atol=1e-7)
