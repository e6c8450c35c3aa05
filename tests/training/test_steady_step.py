"""After the first steps the host never waits for the device, on fake CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from conf.schema import Arch, Model, Optimizer
from models import build_model
from tests.training.device_operations import Counts, count, fake_cuda, pinned
from training.devices.device import Device
from training.optimizers import build_optimizer
from training.report.progress import read_scalars
from training.step.graphed_step import RecordedStep
from training.step.train_step import Step, StepResult

ROWS, SEQ, VOCAB = 8, 16, 257

_LIBRARY = torch.library.Library("aten", "IMPL")
"""torch has no kernel on shapes alone for a learning rate that is a tensor."""
_LIBRARY.impl("_fused_adamw_.tensor_lr", lambda *_, **__: None, "Meta")


def build(precision: str = "bf16", sources: int = 0, chunks: int = 1) -> Step:
    model = build_model(Model(d_model=32, n_layers=2), Arch(), VOCAB, SEQ).to("cuda")
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None
    return Step(
        model, build_optimizer(model, Optimizer(), "cuda"), Device("cuda", precision, 1),
        accumulation=2, loss_chunk=ROWS * SEQ // chunks, grad_clip=1.0, sources=sources, scaler=scaler,
    )  # fmt: skip


def batch(sources: int = 0) -> dict[str, torch.Tensor]:
    """Batch as the loader gives it."""
    ids = pinned(torch.zeros((ROWS, SEQ + 1), dtype=torch.int64))
    source = {"source": pinned(torch.zeros(ROWS, dtype=torch.int64))} if sources else {}
    return {"input_ids": ids.narrow(1, 0, SEQ), "labels": ids.narrow(1, 1, SEQ)} | source


@pytest.mark.parametrize(("precision", "sources"), [("bf16", 0), ("fp32", 2), ("fp16", 2)])
def test_an_eager_step_waits_for_nothing(precision: str, sources: int) -> None:
    with fake_cuda():
        step = build(precision, sources)
        step.take(iter([batch(sources)] * 2), 1e-3)
        counts = count(lambda: step.take(iter([batch(sources)] * 2), 1e-3))
    assert counts.syncs_by_name == {}
    assert counts.operations > 100


class CountedGraphs:
    """Operations that each graph would hold."""

    def __init__(self) -> None:
        self.of_each: list[Counts] = []

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.of_each.append(count(work))
        return lambda: None


@pytest.mark.parametrize(("sources", "chunks"), [(0, 1), (2, 2)])
def test_what_is_recorded_waits_for_nothing_and_a_replay_launches_little(sources: int, chunks: int) -> None:
    with fake_cuda():
        step = build(sources=sources, chunks=chunks)
        step.take(iter([batch(sources)] * 2), 1e-3)
        graphs: Any = CountedGraphs()
        on_device = {name: tensor.to("cuda") for name, tensor in batch(sources).items()}
        recorded = RecordedStep(step, graphs, on_device)
        replayed = count(lambda: recorded.take(iter([batch(sources)] * 2), 1e-3))
    assert len(graphs.of_each) == 3
    assert [counts.syncs_by_name for counts in graphs.of_each] == [{}] * 3
    assert [counts.copies for counts in graphs.of_each] == [0] * 3
    assert replayed.syncs == 0
    assert replayed.operations <= 20, replayed.by_name


@pytest.mark.parametrize("sources", [0, 3])
def test_scalars_of_many_steps_are_one_transfer(sources: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeTensor, "tolist", lambda tensor: [0.0] * tensor.numel())
    with fake_cuda():
        results = [
            StepResult(
                torch.zeros((), device="cuda"),
                torch.zeros((), device="cuda"),
                torch.zeros((2, sources), dtype=torch.float64, device="cuda") if sources else None,
            )
            for _ in range(100)
        ]
        counts = count(lambda: read_scalars(results))
    assert counts.syncs == 1, counts.syncs_by_name
    assert counts.operations <= 5
