"""Each optimizer is that of its paper or of torch, step by step, over the right parameters."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from composed_once import kept_composer
from torch import Tensor

from conf import Config
from conf.between_keys.optimizer_rules import SETTINGS_OF
from conf.command_line.request import read_run
from conf.schema import Arch, Model, Optimizer
from models import LanguageModel, build_model
from models.options.parameter_roles import roles_of
from models.options.parametrization import Scales
from training.optimizers import OPTIMIZERS, build_optimizer
from training.optimizers.groups import set_lr
from training.optimizers.schedule_free import ScheduleFreeAdamW
from training.plan.optimizer_memory import NUMBERS_A_PARAMETER, state_bytes

ROOT = Path(__file__).resolve().parents[2]
SIZE = Model(d_model=32)
STEPS = 50


def build(**arch: object) -> LanguageModel:
    torch.manual_seed(0)
    return build_model(SIZE, Arch(**arch), 40, 12)  # type: ignore[arg-type]


def option(name: str) -> Optimizer:
    """The optimizer as its file in conf/ has it."""
    import yaml

    plain = yaml.safe_load((ROOT / "conf" / "optimizer" / f"{name}.yaml").read_text()) or {}
    plain.pop("defaults", None)
    return Optimizer(name=name, **plain)


def settings(model: LanguageModel, optimizer: torch.optim.Optimizer, key: str) -> dict[str, float]:
    by_id = {id(p): group[key] for group in optimizer.param_groups for p in group["params"]}
    return {name: by_id[id(parameter)] for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_a_first_step_that_overflows_in_fp16_leaves_nothing_behind(name: str) -> None:
    """`found_inf` is how a gradient scaler has fused optimizers leave a step out."""
    model = build()
    optimizer: Any = build_optimizer(model, option(name), "cuda")
    before = copy.deepcopy(model.state_dict())
    junk = [torch.full_like(parameter, 7e7) for _ in range(9) for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, math.inf)
    del junk  # memory that is taken again holds its numbers
    optimizer.grad_scale, optimizer.found_inf = None, torch.ones(())
    optimizer.step()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    for state in optimizer.state.values():
        assert not any(moment.any() for moment in state.values())


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
@pytest.mark.parametrize("tied", [True, False])
def test_matrices_decay_and_gains_do_not(tied: bool, name: str) -> None:
    model = build(tied_head=tied, positions="learned", norm="layer")
    optimizer = build_optimizer(model, dataclasses.replace(option(name), weight_decay=0.3), "cpu")
    found = settings(model, optimizer, "weight_decay")
    assert len(found) == len(list(model.parameters()))
    for parameter, decay in found.items():
        assert decay == (0.0 if "norm" in parameter else 0.3), parameter


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_a_learning_rate_by_role_and_by_the_models_own_scales(name: str) -> None:
    model = build(tied_head=False)
    model.scales["head.weight"] = Scales(lr=0.5, weight_decay=2.0, eps=0.25)
    config = dataclasses.replace(
        option(name), weight_decay=0.3, eps=1e-6, lr_factor_embedding=3.0, lr_factor_output=0.2,
        lr_factor_hidden=0.1, lr_factor_vector=7.0,
    )  # fmt: skip
    optimizer = build_optimizer(model, config, "cpu")
    set_lr(optimizer.param_groups, 0.01)
    lrs, decays = (settings(model, optimizer, key) for key in ("lr", "weight_decay"))
    by_role = {"embedding": 0.03, "hidden": 0.001, "output": 0.001, "vector": 0.07}
    for parameter, role in roles_of(model).items():
        assert lrs[parameter] == pytest.approx(by_role[role])
    assert decays["head.weight"] == 0.6
    if name in ("adamw", "adam", "adagrad", "rmsprop", "schedule_free", "muon"):
        head = model.output_weight
        group = next(g for g in optimizer.param_groups if any(p is head for p in g["params"]))
        assert group["eps"] == 0.25e-6


Formula = Callable[[Tensor, list[Tensor], list[float], Optimizer, float], Tensor]


def adam_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    """AdamW as algorithm 2 of arXiv:1711.05101 has it, the learning rate as the schedule; Adam with L2."""
    m, v, beta1, beta2 = torch.zeros_like(weight), torch.zeros_like(weight), config.beta1, config.beta2
    for t, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True), start=1):
        if config.name == "adam":
            gradient = gradient + decay * weight
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        step = (m / (1 - beta1**t)) / ((v / (1 - beta2**t)).sqrt() + config.eps)
        weight = weight - lr * (step + (decay if config.name != "adam" else 0) * weight)
    return weight


def sgd_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    velocity, momentum = torch.zeros_like(weight), config.momentum
    for gradient, lr in zip(gradients, lrs, strict=True):
        gradient = gradient + decay * weight
        velocity = momentum * velocity + gradient
        weight = weight - lr * (gradient + momentum * velocity if config.nesterov else velocity)
    return weight


def rmsprop_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    squares, velocity = torch.zeros_like(weight), torch.zeros_like(weight)
    for gradient, lr in zip(gradients, lrs, strict=True):
        gradient = gradient + decay * weight
        squares = config.beta2 * squares + (1 - config.beta2) * gradient**2
        velocity = config.momentum * velocity + gradient / (squares.sqrt() + config.eps)
        weight = weight - lr * velocity
    return weight


def adagrad_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    total = torch.zeros_like(weight)
    for gradient, lr in zip(gradients, lrs, strict=True):
        gradient = gradient + decay * weight
        total = total + gradient**2
        weight = weight - lr * gradient / (total.sqrt() + config.eps)
    return weight


def lion_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    """Algorithm 2 of arXiv:2302.06675."""
    m = torch.zeros_like(weight)
    for gradient, lr in zip(gradients, lrs, strict=True):
        c = config.beta1 * m + (1 - config.beta1) * gradient
        weight = weight - lr * (c.sign() + decay * weight)
        m = config.beta2 * m + (1 - config.beta2) * gradient
    return weight


def adafactor_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    """Algorithms 4 and 5 of arXiv:1804.04235 without momentum, d = 1, beta2_t = 1 - t^-0.8; torch clamps the
    variance from below by eps1 = the smallest of fp32, where the paper adds 1e-30 to the squares.
    """
    rows = columns = squares = torch.zeros(())
    for t, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True), start=1):
        beta = 1 - t**-0.8
        if weight.ndim >= 2:
            rows = beta * rows + (1 - beta) * (gradient**2).mean(1, keepdim=True)
            columns = beta * columns + (1 - beta) * (gradient**2).mean(0, keepdim=True)
            variance = rows @ columns / rows.mean()
        else:
            squares = variance = beta * squares + (1 - beta) * gradient**2
        update = gradient / variance.clamp(min=torch.finfo(torch.float32).eps ** 2).sqrt()
        update = update / max(1.0, float(update.square().mean().sqrt()))
        size = max(1e-3, float(weight.square().mean().sqrt())) * min(lr, t**-0.5)
        weight = weight * (1 - lr * decay) - size * update
    return weight


def schedule_free_of_paper(
    weight: Tensor, gradients: list[Tensor], lrs: list[float], config: Optimizer, decay: float
) -> Tensor:
    """Algorithm 1 of arXiv:2405.15682, decay at y: gradients are given. Its y."""
    x = z = y = weight
    v, weights = torch.zeros_like(weight), 0.0
    for t, (gradient, lr) in enumerate(zip(gradients, lrs, strict=True), start=1):
        y = (1 - config.beta1) * z + config.beta1 * x
        v = config.beta2 * v + (1 - config.beta2) * gradient**2
        size = (v / (1 - config.beta2**t)).sqrt() + config.eps
        z = z - lr * gradient / size - lr * decay * y
        gamma = max(lrs[:t]) ** 2
        weights += gamma
        x = (1 - gamma / weights) * x + gamma / weights * z
    return (1 - config.beta1) * z + config.beta1 * x


PAPERS: dict[str, Formula] = {
    "adamw": adam_of_paper,
    "adam": adam_of_paper,
    "sgd": sgd_of_paper,
    "rmsprop": rmsprop_of_paper,
    "adagrad": adagrad_of_paper,
    "lion": lion_of_paper,
    "adafactor": adafactor_of_paper,
    "schedule_free": schedule_free_of_paper,
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("adamw", {"beta1": 0.8, "beta2": 0.9, "eps": 1e-3}),
    ("adam", {"beta1": 0.8, "beta2": 0.9, "eps": 1e-3}),
    ("sgd", {"momentum": 0.0}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("rmsprop", {"eps": 1e-3}),
    ("rmsprop", {"eps": 1e-3, "momentum": 0.5}),
    ("adagrad", {}),
    ("lion", {"beta1": 0.8}),
    ("adafactor", {}),
    ("schedule_free", {"beta1": 0.8, "beta2": 0.9, "eps": 1e-3}),
]


def taken(
    model: LanguageModel, optimizer: torch.optim.Optimizer, lr: float
) -> tuple[dict[str, list[Tensor]], list[float]]:
    """STEPS steps with gradients that are drawn: those, and the learning rates."""
    gradients: dict[str, list[Tensor]] = {name: [] for name, _ in model.named_parameters()}
    lrs = [lr * (1 + step % 5) / 5 for step in range(STEPS)]
    for each in lrs:
        for name, parameter in model.named_parameters():
            parameter.grad = torch.randn_like(parameter)
            gradients[name].append(parameter.grad.double())
        set_lr(optimizer.param_groups, each)
        optimizer.step()
    return gradients, lrs


@pytest.mark.parametrize(("name", "options"), VARIANTS, ids=lambda value: str(value))
def test_50_steps_are_those_of_the_paper(name: str, options: dict[str, Any]) -> None:
    config = dataclasses.replace(option(name), lr=1e-2, weight_decay=0.2, **options)
    model = build()
    before = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    gradients, lrs = taken(model, build_optimizer(model, config, "cpu"), config.lr)
    for parameter, weight in model.named_parameters():
        decay = 0.2 if weight.ndim >= 2 else 0.0
        expected = PAPERS[name](before[parameter], gradients[parameter], lrs, config, decay)
        torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-4, atol=1e-5)


def test_schedule_free_moves_all_parameters_of_a_device_at_once_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = dataclasses.replace(option("schedule_free"), lr=1e-2, weight_decay=0.2)
    models = [build(), build()]
    batches = []
    move = ScheduleFreeAdamW._move
    monkeypatch.setattr(
        ScheduleFreeAdamW,
        "_move",
        lambda self, ys, group: (batches.append(len(ys)), move(self, ys, group)),
    )
    for model, is_cpu in zip(models, (True, False), strict=True):
        if not is_cpu:  # as parameters of a GPU say
            monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False))
        batches.clear()
        torch.manual_seed(1)
        optimizer = build_optimizer(model, config, "cpu")
        taken(model, optimizer, config.lr)
        size = len(list(model.parameters())) if is_cpu else len(optimizer.param_groups)
        assert len(batches) == STEPS * size
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scale", ["adamw", "keller"])
def test_muon_moves_the_matrices_of_blocks_and_adamw_the_rest(scale: str) -> None:
    """The direction is torch's own iteration, of the momentum of the post; the rest is AdamW's."""
    from torch.optim._muon import _zeropower_via_newtonschulz

    config = dataclasses.replace(option("muon"), lr=1e-2, weight_decay=0.2, muon_scale=scale)
    model = build(tied_head=False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients, lrs = taken(model, build_optimizer(model, config, "cpu"), config.lr)
    roles = roles_of(model)
    for parameter, weight in model.named_parameters():
        if roles[parameter] != "hidden":
            decay = 0.2 if weight.ndim >= 2 else 0.0
            adamw = dataclasses.replace(config, name="adamw")
            expected = adam_of_paper(before[parameter].double(), gradients[parameter], lrs, adamw, decay)
            torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-4, atol=1e-5)
            continue
        w, m = before[parameter], torch.zeros_like(weight)
        rows, columns = w.shape
        size = 0.2 * math.sqrt(max(rows, columns)) if scale == "adamw" else math.sqrt(max(1, rows / columns))
        for gradient, lr in zip(gradients[parameter], lrs, strict=True):
            m = 0.95 * m + 0.05 * gradient.float()
            ahead = 0.95 * m + 0.05 * gradient.float()
            direction = _zeropower_via_newtonschulz(ahead, (3.4445, -4.775, 2.0315), 5, 1e-7)
            w = w * (1 - lr * 0.2) - lr * size * direction
        # The iteration is in bf16: a rounding of its input is seen.
        assert (weight.detach() - w).norm() / (w - before[parameter]).norm() < 0.01


def test_what_schedule_free_evaluates_is_the_average_of_its_steps() -> None:
    config = dataclasses.replace(option("schedule_free"), lr=1e-2, weight_decay=0.0, beta1=0.8)
    model = build()
    optimizer = build_optimizer(model, config, "cpu")
    assert isinstance(optimizer, ScheduleFreeAdamW)
    for parameter, x in optimizer.evaluated():
        assert torch.equal(x, parameter)
    zs: list[Tensor] = []
    weight = model.output_weight
    for _ in range(20):
        taken_one(model, optimizer)
        zs.append(optimizer.state[weight]["z"].clone())
    found = next(x for parameter, x in optimizer.evaluated() if parameter is weight)
    torch.testing.assert_close(found, torch.stack(zs).mean(0), rtol=1e-4, atol=1e-5)
    assert not torch.equal(found, weight)


def taken_one(model: LanguageModel, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    set_lr(optimizer.param_groups, 1e-2)
    optimizer.step()


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "adagrad"])
def test_the_fused_kernel_is_used(name: str) -> None:
    optimizer = build_optimizer(build(), option(name), "cpu")
    assert all(group["fused"] for group in optimizer.param_groups)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_its_state_can_be_saved_and_loaded(name: str) -> None:
    model, other = build(), build()
    optimizer, again = (build_optimizer(each, option(name), "cpu") for each in (model, other))
    taken_one(model, optimizer)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    other.load_state_dict(model.state_dict())
    for each, own in ((model, optimizer), (other, again)):
        torch.manual_seed(7)
        taken_one(each, own)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in sorted(OPTIMIZERS)),
        ("sgd", {"momentum": 0.0}),
        ("rmsprop", {"momentum": 0.5}),
    ],
)
def test_the_bytes_of_its_state_are_known(name: str, options: dict[str, Any], tied: bool) -> None:
    optimizer_config, model = dataclasses.replace(option(name), **options), build(tied_head=tied)
    optimizer = build_optimizer(model, optimizer_config, "cpu")
    taken_one(model, optimizer)
    tensors = [value for state in optimizer.state.values() for value in state.values()]
    held = sum(v.numel() * v.element_size() for v in tensors if isinstance(v, Tensor) and v.ndim > 0)
    config = Config(model=SIZE, arch=Arch(tied_head=tied), optimizer=optimizer_config)
    assert state_bytes(config, 40, 12) == held


@pytest.mark.parametrize("family", ["lstm", "mingru"])
def test_the_moments_of_a_recurrence_by_rows_and_columns_are_known(family: str) -> None:
    arch = Arch(family=family, bias="linear")
    model = build_model(SIZE, arch, 40, 12)
    optimizer = build_optimizer(model, option("adafactor"), "cpu")
    taken_one(model, optimizer)
    tensors = [value for state in optimizer.state.values() for value in state.values()]
    held = sum(v.numel() * v.element_size() for v in tensors if isinstance(v, Tensor) and v.ndim > 0)
    config = Config(model=SIZE, arch=arch, optimizer=option("adafactor"))
    assert state_bytes(config, 40, 12) == held


def test_each_has_its_file_its_settings_and_its_bytes() -> None:
    files = {path.stem for path in (ROOT / "conf" / "optimizer").glob("*.yaml")}
    assert set(OPTIMIZERS) == files == set(SETTINGS_OF) == set(NUMBERS_A_PARAMETER)


def test_choosing_schedule_free_chooses_a_schedule_that_does_not_fall() -> None:
    composer = kept_composer()

    def composed(*overrides: str) -> Config:
        return read_run(["dataset=synthetic", *overrides], composer)

    free = composed("optimizer=schedule_free")
    assert free.schedule.name == "stable"
    assert composed("optimizer=schedule_free", "schedule=constant").schedule.name == "constant"
