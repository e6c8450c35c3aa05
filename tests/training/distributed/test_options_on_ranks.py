"""Gradients of two ranks, whole or sharded, are those of one process, for parts that are easily lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conf.schema import Arch, Model

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
MODEL = Model(d_model=32, n_layers=2, n_heads=4)
IDS = torch.randint(50, (4, 16), generator=torch.Generator().manual_seed(0))


class Ranks:
    """As much of `training.distributed.ranks.Ranks` as a model is wrapped with."""

    is_alone, size = False, 2


def of_rank(rank: int, kind: str, folder: str) -> None:
    import torch.distributed as dist

    from models import LossModel, build_model
    from training.distributed.parallel import Parallel, whole

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/met", rank=rank, world_size=2)
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
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_gradients_of_ranks_are_those_of_one(kind: str, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(of_rank, (kind, str(tmp_path)), 2)  # type: ignore[no-untyped-call]
