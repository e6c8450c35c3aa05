"""Operations and synchronizations that one training step costs a GPU, counted on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from benchmarks.gpu.plain_loop import Loop
from conf.schema import Arch, Model, Optimizer
from models import build_model, lm_loss, resolve_loss_chunk
from tests.training.device_operations import backward, count, fake_cuda, pinned
from training.devices.device import Device
from training.optimizers import build_optimizer
from training.step.train_step import Step

D_MODEL, VOCAB, ROWS, SEQ = 32, 50_257, 32, 128
"""The default step."""

MOST_TIMES_PLAIN, MOST_OF_LOSS = 1.15, 60


def product_step(arch: Arch | None = None) -> tuple[torch.nn.Module, Callable[[], Any]]:
    """The model and a call that takes one step, with a batch as the loader gives it."""
    model = build_model(Model(d_model=D_MODEL), arch or Arch(), VOCAB, SEQ).to("cuda")
    optimizer = build_optimizer(model, Optimizer(), "cuda")
    ids = torch.zeros((ROWS, SEQ + 1), dtype=torch.int64)
    batch = {"input_ids": ids.narrow(1, 0, SEQ), "labels": ids.narrow(1, 1, SEQ)}
    step = Step(
        model,
        optimizer,
        Device("cuda", "bf16", 1),
        accumulation=1,
        loss_chunk=resolve_loss_chunk("auto", VOCAB, "cuda"),
        grad_clip=1.0,
    )
    return model, lambda: step.take(iter([batch]), 1e-3)


@pytest.mark.parametrize(
    "arch", [Arch(), Arch(n_experts=4), Arch(head_bias=True, logit_softcap=30.0)], ids=["", "experts", "head"]
)
def test_steady_step_has_no_synchronization(arch: Arch) -> None:
    with fake_cuda():
        _, step = product_step(arch)
        step()
        counts = count(step)
    assert not counts.syncs_by_name
    assert counts.copies == 1, "ids and labels travel together"


def test_step_launches_about_as_much_as_plain_loop() -> None:
    with fake_cuda():
        model, step = product_step()
        step()
        block = model.blocks[0].attention
        plain = Loop(VOCAB, D_MODEL, len(model.blocks), block.heads[0], ROWS, SEQ, "cuda", "eager").step
        plain()
        ours, theirs = count(step), count(plain)
    assert theirs.syncs == 0
    assert ours.operations <= MOST_TIMES_PLAIN * theirs.operations, ours.by_name - theirs.by_name


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
