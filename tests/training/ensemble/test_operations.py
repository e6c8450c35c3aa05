"""A step of many runs gives a GPU as much to launch as a step of few, and never waits for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from conf.schema import Arch, Model, Optimizer
from models import build_model, stacked
from models.stacked import StackedModel
from tests.training.device_operations import Counts, count, fake_cuda
from training.devices.device import Device
from training.ensemble.update import StackedOptimizer, clip_each
from training.optimizers import build_optimizer

ROWS, SEQ, VOCAB = 2, 16, 257


class WithoutCuda:
    """torch, whose generators are those of a CPU: the CPU build has no others."""

    @staticmethod
    def Generator(device: torch.device) -> torch.Generator:  # noqa: N802
        return torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def step_of(members: int, settings: int, name: str = "adamw") -> Counts:
    """Counts of a steady step. settings: number of different learning rates."""
    config = Optimizer(name=name)
    with fake_cuda():
        models = [
            build_model(Model(d_model=32, n_layers=1), Arch(), VOCAB, SEQ).to("cuda") for _ in range(members)
        ]
        stack = StackedModel(models)
        optimizer = StackedOptimizer([build_optimizer(model, config, "cuda") for model in models], stack)
        limits = torch.ones(members, device="cuda")
        ids = torch.zeros((members * ROWS, SEQ), dtype=torch.int64, device="cuda")
        device = Device("cuda", "bf16", 1)

        def step() -> None:
            stack.begin_step()
            with device.autocast():
                losses = stack(ids, ids, None, members * ROWS * SEQ)
            losses.sum().backward()
            clip_each(stack.gradients, limits)
            optimizer.step({number: float(number * settings // members) for number in range(members)})

        step()
        step()
        return count(step)


@pytest.fixture(autouse=True)
def _generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "torch", WithoutCuda())


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("adam", "lion", "schedule_free")]


@pytest.mark.parametrize("name", ["adamw", *SLOW])
def test_runs_of_equal_settings_cost_no_operation_more(name: str) -> None:
    few, many = step_of(2, 1, name), step_of(8, 1, name)
    assert many.by_name == few.by_name
    assert many.syncs == few.syncs == 0


@pytest.mark.slow
def test_each_learning_rate_costs_two_operations_for_each_group_of_parameters() -> None:
    one, four = step_of(8, 1), step_of(8, 4)
    assert four.operations - one.operations == 3 * 2 * 2
    assert four.syncs == 0
