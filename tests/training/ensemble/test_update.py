"""A joined step gives each member the weights, moments and counts of its own optimizer, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import examples
from torch.utils._python_dispatch import TorchDispatchMode

from conf.schema import Arch, Model, Optimizer
from models import LanguageModel, build_model
from models.stacked import StackedModel
from training.ensemble.update import StackedOptimizer, clip_each
from training.optimizers import OPTIMIZERS, build_optimizer
from training.optimizers.groups import set_lr

MEMBERS = 4


def built(
    config: dict[str, Any], arch: Arch, width: int, vocab: int
) -> tuple[list[LanguageModel], list[Any]]:
    models = []
    for seed in range(MEMBERS):
        generator = torch.Generator().manual_seed(seed)
        models.append(build_model(Model(d_model=width, n_layers=1, n_heads=1), arch, vocab, 8, generator))
    return models, [build_optimizer(model, Optimizer(**config), "cpu") for model in models]


def set_gradients(models: list[LanguageModel], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for model in models:
        for parameter in model.parameters():
            gradient = torch.randn(parameter.shape, generator=generator)
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.copy_(gradient)


def assert_same_state(own: Any, other: Any) -> None:
    one, two = own.state_dict()["state"], other.state_dict()["state"]
    assert one.keys() == two.keys()
    for index, entries in one.items():
        assert entries.keys() == two[index].keys()
        for name, value in entries.items():
            assert type(value) is type(two[index][name])
            same = torch.equal if isinstance(value, torch.Tensor) else lambda a, b: a == b
            assert same(value, two[index][name]), (index, name)


steps = st.lists(
    st.tuples(
        st.sets(st.integers(0, MEMBERS - 1)),  # that do not move in this step
        st.sampled_from([(1.0, 1.0, 1.0, 1.0), (1.0, 1.0, 0.5, 0.5), (1.0, 0.5, 1.0, 0.25)]),
    ),
    min_size=1,
    max_size=6,
)


@given(
    name=st.sampled_from(sorted(OPTIMIZERS)),
    steps=steps,
    width=st.sampled_from([16, 12]),
    vocab=st.sampled_from([16, 11]),
    bias=st.sampled_from(["none", "all"]),
    released_at=st.integers(0, 6),
)
@settings(max_examples=examples(40), deadline=None)
def test_steps_are_those_of_each_by_itself(
    name: str, steps: list[Any], width: int, vocab: int, bias: str, released_at: int
) -> None:
    assert_as_alone(name, steps, width, vocab, bias, released_at)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_so_they_are_with_tensors_of_any_size_and_steps_left_out(name: str) -> None:
    all_move: set[int] = set()
    steps = [(all_move, (1.0, 1.0, 0.5, 0.5))] * 2 + [({1}, (1.0,) * 4), (all_move, (1.0,) * 4)]
    assert_as_alone(name, [*steps, ({0, 2}, (1.0,) * 4), (all_move, (1.0, 1.0, 1.0, 0.5))], 12, 11, "all", 9)


def assert_as_alone(name: str, steps: list[Any], width: int, vocab: int, bias: str, released_at: int) -> None:
    config, arch = {"name": name, "lr": 1e-2}, Arch(bias=bias)
    (models, optimizers), (alone, own) = (built(config, arch, width, vocab) for _ in range(2))
    stack = StackedModel(models)
    joined = StackedOptimizer(optimizers, stack)
    for number, (left_out, factors) in enumerate(steps):
        set_gradients(models, number)
        set_gradients(alone, number)
        lrs = {member: 1e-2 * factors[member] for member in range(MEMBERS) if member not in left_out}
        for member, lr in lrs.items():
            set_lr(optimizers[member].param_groups, lr)
            set_lr(own[member].param_groups, lr)
            own[member].step()
        joined.step(lrs)
        if number == released_at:  # as when a member leaves, or a checkpoint is read back
            joined.release()
            joined = StackedOptimizer(optimizers, stack)
    for member in range(MEMBERS):
        for parameter, other in zip(models[member].parameters(), alone[member].parameters(), strict=True):
            assert torch.equal(parameter, other), (name, member)
        assert_same_state(optimizers[member], own[member])


def test_moments_of_a_released_member_are_its_own() -> None:
    models, optimizers = built({"lr": 1e-2}, Arch(), 16, 16)
    joined = StackedOptimizer(optimizers, StackedModel(models))
    for number in range(2):
        set_gradients(models, number)
        joined.step(dict.fromkeys(range(MEMBERS), 1e-2))
    moments = [state["exp_avg"] for state in optimizers[0].state.values()]
    assert all(moment._base is not None for moment in moments), "views into stacks"
    before = copy.deepcopy(optimizers[0].state_dict()["state"])
    joined.release()
    for optimizer in optimizers[1:]:
        for state in optimizer.state.values():
            state["exp_avg"].zero_()
    after = optimizers[0].state_dict()["state"]
    for index, entries in before.items():
        assert all(torch.equal(value, after[index][name]) for name, value in entries.items())
        assert after[index]["exp_avg"]._base is None


class Count(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list[int]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.split("::")[1]
        size = len(args[0]) if args and isinstance(args[0], list) else 1
        self.calls.setdefault(name, []).append(size)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("lrs", "settings"), [([1, 1, 1, 1], 1), ([1, 1, 2, 2], 2), ([1, 2, 3, 4], 4)])
def test_members_of_equal_settings_are_one_call_on_one_tensor_a_parameter(
    lrs: list[int], settings: int
) -> None:
    models, optimizers = built({"lr": 1e-3}, Arch(), 16, 16)
    stack = StackedModel(models)
    joined = StackedOptimizer(optimizers, stack)
    for _ in range(3):
        for optimizer, lr in zip(optimizers, lrs, strict=True):
            set_lr(optimizer.param_groups, 1e-3 * lr)
        with Count() as count:
            joined.step({number: 1e-3 * lr for number, lr in enumerate(lrs)})
    groups = len(optimizers[0].param_groups)
    assert len(count.calls["_fused_adamw_"]) == settings * groups
    assert sum(count.calls["_fused_adamw_"]) == settings * len(stack.stacks)
    assert "_local_scalar_dense" not in count.calls, "the host waits for nothing"


def test_each_is_clipped_to_its_own_norm() -> None:
    models, _ = built({"lr": 1e-3}, Arch(), 16, 16)
    stack = StackedModel(models)
    set_gradients(models, 0)
    expected = [[parameter.grad.clone() for parameter in model.parameters()] for model in models]  # type: ignore[union-attr]
    limits = torch.tensor([0.1, 1.0, float("inf"), 1e9])
    norms, of_each = clip_each(stack.gradients, limits)
    for number, gradients in enumerate(expected):
        total = torch.nn.utils.get_total_norm(gradients)
        assert norms[number].item() == pytest.approx(total.item())
        assert of_each[number].tolist() == pytest.approx([one.norm().item() for one in gradients])
        factor = min(1.0, limits[number].item() / (total.item() + 1e-6))
        for parameter, gradient in zip(models[number].parameters(), gradients, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad, factor * gradient)
