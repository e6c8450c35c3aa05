"""Operations of a training step on a GPU, counted on fake tensors: few, and without a wait of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional as F

from benchmarks.gpu.plain_loop import Loop
from conf.schema import Arch, Model, Optimizer
from models import build_model, lm_loss, resolve_loss_chunk
from tests.training.device_operations import Counts, backward, count, fake_cuda, pinned
from training.devices.device import Device
from training.optimizers import build_optimizer
from training.report.progress import read_scalars
from training.step.graphed_step import RecordedStep
from training.step.train_step import Step, StepResult

D_MODEL, VOCAB, ROWS, SEQ = 32, 50_257, 32, 128
"""The default step."""

MOST_TIMES_PLAIN, MOST_OF_LOSS = 1.15, 60

_LIBRARY = torch.library.Library("aten", "IMPL")
"""torch has no kernel on shapes alone for a learning rate that is a tensor."""
_LIBRARY.impl("_fused_adamw_.tensor_lr", lambda *_, **__: None, "Meta")


def built(
    arch: Arch | None = None, precision: str = "bf16", sources: int = 0, accumulation: int = 1, chunk: int = 0
) -> Step:
    model = build_model(Model(d_model=D_MODEL), arch or Arch(), VOCAB, SEQ).to("cuda")
    scaler = torch.amp.GradScaler("cuda") if precision == "fp16" else None
    return Step(
        model, build_optimizer(model, Optimizer(), "cuda"), Device("cuda", precision, 1),
        accumulation=accumulation, loss_chunk=chunk or resolve_loss_chunk("auto", VOCAB, "cuda"),
        grad_clip=1.0, sources=sources, scaler=scaler,
    )  # fmt: skip


def batch(sources: int = 0) -> dict[str, torch.Tensor]:
    """Batch as the loader gives it."""
    ids = torch.zeros((ROWS, SEQ + 1), dtype=torch.int64)
    source = {"source": torch.zeros(ROWS, dtype=torch.int64)} if sources else {}
    return {"input_ids": ids.narrow(1, 0, SEQ), "labels": ids.narrow(1, 1, SEQ)} | source


def taking(step: Step, sources: int = 0) -> Callable[[], Any]:
    return lambda: step.take(iter([batch(sources)] * step.accumulation), 1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"arch": Arch(n_experts=4)}, {"arch": Arch(head_bias=True, logit_softcap=30.0)},
        {"accumulation": 2}, {"precision": "fp32", "sources": 2, "accumulation": 2},
        {"precision": "fp16", "sources": 2, "accumulation": 2},
    ],
    ids=str,
)  # fmt: skip
def test_steady_step_has_no_synchronization(options: dict[str, Any]) -> None:
    with fake_cuda():
        take = taking(built(**options), options.get("sources", 0))
        take()
        counts = count(take)
    assert counts.syncs_by_name == {}
    assert counts.operations > 100
    copies = options.get("accumulation", 1) * (2 if "sources" in options else 1)
    assert counts.copies == copies, "ids and labels travel together"


def test_step_launches_about_as_much_as_plain_loop() -> None:
    with fake_cuda():
        step = built()
        take, block = taking(step), step.model.blocks[0].attention
        take()
        plain = Loop(VOCAB, D_MODEL, len(step.model.blocks), block.heads[0], ROWS, SEQ, "cuda", "eager").step
        plain()
        ours, theirs = count(take), count(plain)
    assert theirs.syncs == 0
    assert ours.operations <= MOST_TIMES_PLAIN * theirs.operations, ours.by_name - theirs.by_name


class CountedGraphs:
    """Operations that each graph would hold."""

    def __init__(self) -> None:
        self.of_each: list[Counts] = []

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        self.of_each.append(count(work))
        return lambda: None


@pytest.mark.parametrize(("sources", "chunk"), [(0, ROWS * SEQ), (2, ROWS * SEQ // 2)])
def test_what_is_recorded_waits_for_nothing_and_a_replay_launches_little(sources: int, chunk: int) -> None:
    with fake_cuda():
        step = built(sources=sources, accumulation=2, chunk=chunk)
        taking(step, sources)()
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


def test_loss_launches_few_operations() -> None:
    with fake_cuda():
        hidden = torch.zeros((ROWS * SEQ, D_MODEL), device="cuda", requires_grad=True)
        weight = torch.zeros((VOCAB, D_MODEL), device="cuda", requires_grad=True)
        labels = torch.zeros(ROWS * SEQ, dtype=torch.int64, device="cuda")

        def loss() -> None:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                value = lm_loss(hidden, weight, labels, resolve_loss_chunk("auto", VOCAB, "cuda"))
            value.backward()

        counts = count(loss)
    assert counts.operations <= MOST_OF_LOSS, counts.by_name


def test_counts_of_known_operations() -> None:
    with fake_cuda():
        x, host = torch.zeros((4, 4), device="cuda"), torch.zeros(4, 4)
        assert x.is_cuda
        assert not x.is_cpu
        assert count(lambda: (x.view(16), x.t(), torch.empty(3, device="cuda"), host + 1)).operations == 0
        assert dict(count(lambda: (x @ x).relu_()).by_name) == {"mm": 1, "relu_": 1}
        assert count(lambda: x.sum().item()).syncs == 1
        assert count(lambda: bool((x > 0).any())).syncs == 1
        assert count(lambda: x.nonzero()).syncs == 1
        assert count(lambda: x.cpu()).syncs == 1
        assert count(lambda: torch.tensor([1, 2], device="cuda")).syncs == 1


def test_copy_is_a_sync_unless_page_locked_contiguous_and_asynchronous() -> None:
    with fake_cuda():
        pageable, locked = torch.zeros(4, 4), pinned(torch.zeros(4, 4))
        syncs = {
            "pageable": count(lambda: pageable.to("cuda", non_blocking=True)).syncs,
            "blocking": count(lambda: locked.to("cuda")).syncs,
            "strided": count(lambda: locked[:, :2].to("cuda", non_blocking=True)).syncs,
            "direct": count(lambda: locked.to("cuda", non_blocking=True)).syncs,
            "pin_memory": count(lambda: pageable.pin_memory().to("cuda", non_blocking=True)).syncs,
        }
        copies = count(lambda: locked.to("cuda", non_blocking=True)).copies
    assert syncs == {"pageable": 1, "blocking": 1, "strided": 1, "direct": 0, "pin_memory": 0}
    assert copies == 1


def test_backward_in_python_equals_torch() -> None:
    """On real tensors: the counts are of the operations that torch's engine runs."""

    def gradients(run: Callable[[torch.Tensor], None]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = build_model(Model(d_model=32), Arch(), 50, 8)
        ids = torch.randint(50, (2, 9))
        states = model.states(ids[:, :-1])[0]
        run(F.cross_entropy((states @ model.embedding.weight.T).flatten(0, 1), ids[:, 1:].flatten()))
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    ours, torchs = gradients(backward), gradients(torch.Tensor.backward)
    assert len(ours) == len(torchs) > 5
    for one, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(one, other)
