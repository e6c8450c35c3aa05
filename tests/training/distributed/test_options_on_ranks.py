"""Gradients of two ranks, whole or sharded, are those of one process, for parts that are easily lost."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conf.schema import Arch, Model
from training.devices.device import Device

pytestmark = pytest.mark.slow

CASES: list[dict[str, Any]] = [
    {"n_experts": 4, "balance_loss": 0.1},
    {
        "norm": "layer",
        "norm_position": "sandwich",
        "qk_norm": True,
        "bias": "all",
        "head_bias": True,
        "z_loss": 1e-3,
        "logit_softcap": 10.0,
    },
    {
        "parallel_blocks": True,
        "n_kv_heads": 1,
        "positions": "alibi",
        "window": 9,
        "init": "mup",
        "tied_head": False,
    },
]
LSTM: dict[str, Any] = {"family": "lstm", "bias": "all"}
MODEL = Model(d_model=32, n_layers=2, n_heads=4)
IDS = torch.randint(50, (4, 16), generator=torch.Generator().manual_seed(0))


class Ranks:
    """As much of `training.distributed.ranks.Ranks` as a model is wrapped with."""

    is_alone, size = False, 2


def gradients_are_those_of_one(rank: int, kind: str) -> None:
    from models import LossModel, build_model
    from training.distributed.parallel import Parallel, whole

    for options in CASES:
        for checkpointing in (False, True):
            alone, shared = (
                build_model(MODEL, Arch(**options), 50, 16, torch.Generator().manual_seed(1))
                for _ in range(2)
            )
            alone.activation_checkpointing = shared.activation_checkpointing = checkpointing
            halves = [LossModel(alone)(part, part, None, 16) for part in IDS.split(2)]
            (torch.stack(halves).sum() / 2).backward()
            parallel = Parallel(shared, Ranks(), kind)  # type: ignore[arg-type]
            own = IDS.split(2)[rank]
            with parallel.backward_of(0, 1):
                parallel(own, own, None, 16).backward()
            for (name, one), other in zip(alone.named_parameters(), shared.parameters(), strict=True):
                assert one.grad is not None
                assert other.grad is not None
                worst = (whole(other.grad) - one.grad).abs().max().item()
                assert worst < 1e-6, (options, checkpointing, name, worst)


def gradients_in_bf16(rank: int) -> None:
    """Losses are those of autocast on one rank, bit for bit; gradients to the rounding of bf16."""
    from models import LossModel, build_model
    from training.distributed.parallel import Parallel, whole

    device = Device("cpu", "bf16", 1)
    for options in (*CASES, LSTM):
        model = Model(d_model=32, n_layers=2, n_heads=None if options is LSTM else 4)
        for checkpointing in (False, True):
            alone, shared = (
                build_model(model, Arch(**options), 50, 16, torch.Generator().manual_seed(1))
                for _ in range(2)
            )
            alone.activation_checkpointing = shared.activation_checkpointing = checkpointing
            with device.autocast():
                halves = [LossModel(alone)(part, part, None, 16) for part in IDS.split(2)]
            (torch.stack(halves).sum() / 2).backward()
            parallel = Parallel(shared, Ranks(), "fsdp", gathers_bf16=True)  # type: ignore[arg-type]
            own = IDS.split(2)[rank]
            with device.autocast():
                loss = parallel(own, own, None, 16)
            loss.backward()
            assert loss.item() == halves[rank].item(), options
            for (name, one), other in zip(alone.named_parameters(), shared.parameters(), strict=True):
                assert one.grad is not None
                assert other.grad is not None
                assert other.dtype == other.grad.dtype == torch.float32
                worst = (whole(other.grad) - one.grad).abs().max() / one.grad.abs().max().clamp(min=1e-6)
                assert worst < 2**-6, (options, checkpointing, name, worst)


def clipping(rank: int) -> None:
    """Norm and clipped gradients are torch's, bit for bit, after one collective and no copy to the host."""
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    from models import build_model
    from training.distributed.parallel import Parallel, whole
    from training.step.gradients import clipped

    model = build_model(MODEL, Arch(**CASES[1]), 51, 16, torch.Generator().manual_seed(1))
    parallel = Parallel(model, Ranks(), "fsdp")  # type: ignore[arg-type]
    parallel(IDS[rank:], IDS[rank:], None, 16).backward()
    parameters = list(model.parameters())
    before = [parameter.grad.clone() for parameter in parameters]  # type: ignore[union-attr]
    norms = [whole(gradient).norm() for gradient in before]

    collectives: list[int] = []
    reduce = dist.all_reduce

    def counting(tensor: torch.Tensor, **options: Any) -> object:
        collectives.append(tensor.numel())
        return reduce(tensor, **options)

    def put_back() -> None:
        for parameter, gradient in zip(parameters, before, strict=True):
            parameter.grad = gradient.clone()

    for limit in (1e-2, float("inf")):
        put_back()
        total: Any = torch.nn.utils.clip_grad_norm_(parameters, limit)
        expected = [parameter.grad.to_local() for parameter in parameters]  # type: ignore[union-attr]
        put_back()
        collectives.clear()
        dist.all_reduce = counting  # type: ignore[assignment]
        found, of_each = clipped(parameters, limit)
        dist.all_reduce = reduce  # type: ignore[assignment]
        assert collectives == [len(parameters)]
        assert not isinstance(found, DTensor)
        assert torch.equal(found, total.full_tensor())
        assert of_each is not None
        torch.testing.assert_close(of_each, torch.stack(norms))
        for parameter, gradient in zip(parameters, expected, strict=True):
            assert torch.equal(parameter.grad.to_local(), gradient)  # type: ignore[union-attr]


CHECKS: dict[str, Callable[[int], None]] = {
    "ddp": lambda rank: gradients_are_those_of_one(rank, "ddp"),
    "fsdp": lambda rank: gradients_are_those_of_one(rank, "fsdp"),
    "fsdp in bf16": gradients_in_bf16,
    "fsdp clips": clipping,
}


def be_rank(rank: int, folder: str) -> None:
    """Write what became of each check: an empty text if it passed. None follows one that failed."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
    errors: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check(rank)
            errors[name] = ""
        except Exception:
            errors[name] = traceback.format_exc()
            break
    Path(folder, f"{rank}.json").write_text(json.dumps(errors))
    if not errors[name]:
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Errors of each check by rank. Two processes make all checks: most of their time is importing torch."""
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(be_rank, (str(folder),), 2)  # type: ignore[no-untyped-call]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("check", CHECKS)
def test_two_ranks_compute_what_one_does(check: str, errors: list[dict[str, str]]) -> None:
    assert [of_rank.get(check, "not reached") for of_rank in errors] == ["", ""]
