from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from conf.schema import Arch, Model
from models import LossModel, build_model
from models.layers import experts
from models.layers.basic import ExpertLinear
from models.layers.experts import Experts, balance
from models.layers.feedforward import ACTIVATIONS
from models.options.shape import resolve_shape

MODEL = Model(d_model=32, n_layers=2, n_heads=2)


def make(**options: object) -> tuple[Experts, Tensor]:
    arch = Arch(n_experts=4, **options)  # type: ignore[arg-type]
    experts = Experts(resolve_shape(MODEL, arch), arch, ACTIVATIONS[arch.activation])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    return experts, torch.randn(3, 7, 32, generator=generator).requires_grad_()


def by_a_loop(experts: Experts, x: Tensor) -> Tensor:
    """Token by token, expert by expert."""
    results = []
    for token in x.flatten(0, 1):
        best, chosen = (experts.router.weight @ token).topk(experts.per_token)
        weights = best.softmax(0)
        results.append(
            sum(
                weight
                * (experts.output.weight[i] @ experts.activation((experts.input.weight[i] @ token)[None])[0])
                for weight, i in zip(weights, chosen, strict=True)
            )
        )
    return torch.stack(results).view_as(x)


@pytest.mark.parametrize("per_token", [1, 2, 4])
@pytest.mark.parametrize("activation", ["swiglu", "relu2"])
def test_experts_are_those_of_a_plain_loop(per_token: int, activation: str) -> None:
    experts, x = make(experts_per_token=per_token, activation=activation)
    found, expected = experts(x)[0], by_a_loop(experts, x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    wanted = (x, *experts.parameters())
    probe = torch.randn_like(found)
    for one, of_loop in zip(
        torch.autograd.grad((found * probe).sum(), wanted),
        torch.autograd.grad((expected * probe).sum(), wanted),
        strict=True,
    ):
        torch.testing.assert_close(one, of_loop, rtol=1e-4, atol=1e-4)


def test_balance_is_one_where_experts_are_used_equally_and_n_where_one_is() -> None:
    even = torch.tensor([[0, 1], [2, 3]]), torch.zeros(2, 4)
    assert balance(even[1], even[0]).item() == pytest.approx(1.0)
    scores = torch.tensor([[50.0, 0, 0, 0]]).repeat(8, 1)
    assert balance(scores, torch.zeros(8, 1, dtype=torch.int64)).item() == pytest.approx(4.0)


def test_the_loss_of_balance_is_in_the_gradients_and_not_in_the_value() -> None:
    torch.manual_seed(0)
    ids = torch.randint(50, (4, 8))
    results = {}
    for weight in (0.0, 1.0):
        arch = Arch(n_experts=4, balance_loss=weight)
        model = build_model(MODEL, arch, 50, 8, torch.Generator().manual_seed(1))
        value = LossModel(model)(ids, ids, None, 1000)
        value.backward()
        results[weight] = value.detach(), model.blocks[1].feed_forward.router.weight.grad  # type: ignore[union-attr]
        model.eval()
        assert model.states(ids)[1] == []
    assert torch.equal(results[0.0][0], results[1.0][0])
    assert not torch.allclose(results[0.0][1], results[1.0][1])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_loss_of_balance_evens_out_the_experts(checkpointing: bool) -> None:
    arch = Arch(n_experts=4, experts_per_token=1, balance_loss=1.0)
    model = build_model(MODEL, arch, 50, 8, torch.Generator().manual_seed(1))
    model.activation_checkpointing = checkpointing
    router = model.blocks[0].feed_forward.router  # type: ignore[union-attr]
    with torch.no_grad():
        router.weight.mul_(50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    ids = torch.randint(50, (16, 8), generator=torch.Generator().manual_seed(2))
    found = []
    for _ in range(30):
        losses = model.states(ids)[1]
        assert len(losses) == 2
        value = LossModel(model)(ids, ids, None, 1000)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(losses[0].mean().item())
    assert found[-1] < found[0]
    assert found[-1] == pytest.approx(1.0, abs=0.1)


def test_no_token_means_no_work() -> None:
    """An expert that no token wants costs nothing, and its gradient is 0."""
    experts, x = make(experts_per_token=1)
    with torch.no_grad():
        experts.router.weight.zero_()
        experts.router.weight[1] = 1e-3 * F.normalize(torch.ones(32), dim=0)
    found = experts(x.abs())[0]
    found.sum().backward()
    assert experts.input.weight.grad is not None
    assert experts.input.weight.grad[0].abs().max() == 0
    assert experts.input.weight.grad[1].abs().max() > 0


@pytest.mark.parametrize("activation", ["swiglu", "relu2"])
def test_grouped_products_give_same_results(monkeypatch: pytest.MonkeyPatch, activation: str) -> None:
    """On a CPU torch has the same function in a slower form. One expert gets no token."""
    monkeypatch.setattr(
        ExpertLinear, "_grouped", lambda self, x, ends: torch._grouped_mm(x, self.weight.mT, offs=ends)
    )
    made, x = make(experts_per_token=2, activation=activation)
    with torch.no_grad():
        made.router.weight[3] = -10 * made.router.weight[:3].sum(0).sign()
        x.abs_()
    wanted = (x, *made.parameters())
    found = {}
    for is_grouped in (False, True):
        monkeypatch.setattr(experts, "has_grouped_products", lambda *_, found=is_grouped: found)
        value = made(x)[0]
        found[is_grouped] = [value, *torch.autograd.grad((value * torch.arange(32)).sum(), wanted)]
    for one, other in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("is_grouped", [False, True])
def test_products_run_hooks_of_their_modules(monkeypatch: pytest.MonkeyPatch, is_grouped: bool) -> None:
    """FSDP gathers the parameters in hooks."""
    monkeypatch.setattr(experts, "has_grouped_products", lambda *_: is_grouped)
    made, x = make()
    called = []
    for name, module in made.named_children():
        module.register_forward_hook(lambda *_, name=name: called.append(name))
    made(x)
    assert called == ["router", "input", "output"]


def test_grouped_products_are_for_bf16_on_gpus_that_have_them() -> None:
    assert not experts.has_grouped_products(torch.zeros(2, 16, dtype=torch.bfloat16), (16, 32))


def test_grouped_products_are_in_bf16() -> None:
    linear = ExpertLinear(3, 16, 8)
    torch.nn.init.normal_(linear.weight)
    tokens, ends = torch.randn(10, 16), torch.tensor([3, 3, 10], dtype=torch.int32)
    found = linear(tokens, ends)
    expected = torch.cat([tokens[:3] @ linear.weight[0].T, tokens[3:] @ linear.weight[2].T])
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.2)
