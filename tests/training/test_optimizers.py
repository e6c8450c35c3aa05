from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conf.schema import Arch, Model, Optimizer
from models import LanguageModel, build_model
from training.optimizers import build_optimizer


def build(**arch: object) -> LanguageModel:
    torch.manual_seed(0)
    return build_model(Model(d_model=32), Arch(**arch), 40, 12)  # type: ignore[arg-type]


def decays(model: LanguageModel, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    by_id = {
        id(parameter): group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    return {name: by_id[id(parameter)] for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("tied", [True, False])
def test_matrices_decay_and_gains_do_not(tied: bool) -> None:
    model = build(tied_head=tied, positions="learned", norm="layer")
    found = decays(model, build_optimizer(model, Optimizer(weight_decay=0.3), "cpu"))
    assert len(found) == len(list(model.parameters()))
    for name, decay in found.items():
        assert decay == (0.0 if "norm" in name else 0.3), name


def by_the_paper(weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer) -> Tensor:
    """AdamW as algorithm 2 of arXiv:1711.05101 has it, with the learning rate as the schedule."""
    m, v, beta1, beta2 = torch.zeros_like(weight), torch.zeros_like(weight), config.beta1, config.beta2
    for t, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True), start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        step = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + config.eps)
        weight = weight - lr * (step + (config.weight_decay if weight.ndim >= 2 else 0) * weight)
    return weight


def test_50_steps_are_those_of_the_paper() -> None:
    config = Optimizer(lr=1e-2, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.2)
    model = build()
    before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    optimizer = build_optimizer(model, config, "cpu")
    gradients: dict[str, list[Tensor]] = {name: [] for name in before}
    lrs = [config.lr * (1 + step % 5) / 5 for step in range(50)]
    for lr in lrs:
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            gradients[name].append(parameter.grad.double())
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
    for name, parameter in model.named_parameters():
        expected = by_the_paper(before[name], gradients[name], lrs, config)
        torch.testing.assert_close(parameter.detach().double(), expected, rtol=1e-4, atol=1e-5)


def test_the_fused_kernel_is_used_and_its_state_can_be_saved_and_loaded() -> None:
    model = build()
    optimizer = build_optimizer(model, Optimizer(), "cpu")
    assert all(group["fused"] for group in optimizer.param_groups)
    model(torch.zeros(1, 4, dtype=torch.int64)).sum().backward()
    optimizer.step()
    other = build_optimizer(build(), Optimizer(), "cpu")
    other.load_state_dict(optimizer.state_dict())
    assert torch.equal(*(o.state_dict()["state"][0]["exp_avg"] for o in (optimizer, other)))
