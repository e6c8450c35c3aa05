"""Precision of a run: what `auto` is on a device, and the loss scale that fp16 needs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from conf import AUTO
from conf.between_keys.gpu_rules import fp16_obstacle
from conf.schema import Training
from experiment_utils.errors import Problem, UserError

if TYPE_CHECKING:
    import torch

log = logging.getLogger("training")

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""Names of torch's dtypes of matrix products."""

BF16_CAPABILITY, FP16_CAPABILITY = (8, 0), (7, 0)
"""First compute capabilities of Nvidia's tensor cores in bf16 (A100) and in fp16 (V100)."""


def resolve_precision(
    training: Training, kept: Mapping[str, object], kind: str, *, is_ensemble: bool = False
) -> str:
    """Return the precision of matrix products: fp32, bf16 or fp16.

    `auto` is bf16 on a GPU that computes in it, fp16 on one that has only that and in a run that fp16 goes
    with (`fp16_obstacle`), and else fp32. A CPU always gets fp32 from it: most lack bf16 and then run it many
    times slower, and the nodes of one cluster differ, so that one study would have two precisions.

    Args:
        kept: what an earlier attempt chose.
        kind: of the device.

    Raises:
        UserError: fp16 is asked for and cannot be.
    """
    import torch

    precision = str(kept.get("precision", training.precision))
    obstacle = fp16_obstacle(training, is_ensemble=is_ensemble, kind=kind)
    if precision == AUTO:
        capability = torch.cuda.get_device_capability() if kind == "cuda" else (0, 0)
        if capability >= BF16_CAPABILITY:
            return "bf16"
        return "fp16" if capability >= FP16_CAPABILITY and obstacle is None else "fp32"
    if precision == "fp16" and obstacle is not None:
        raise UserError(Problem("training.precision", f"fp16 does not go with {obstacle}"))
    if precision == "bf16" and kind == "cpu" and not torch.cpu.get_capabilities().get("avx512_bf16"):
        log.warning(
            "training.precision=bf16: this CPU has no bf16 arithmetic and will be slower than in fp32"
        )
    return precision


def loss_scaler(precision: str, kind: str) -> torch.amp.GradScaler | None:
    """Make what scales the loss, so that small gradients do not become 0 in fp16; None in other precisions.

    It leaves out a step in which a gradient overflows, and halves the scale. With the fused optimizers it
    does so on the device: the host is not waited for.
    """
    if precision != "fp16":
        return None
    import torch

    return torch.amp.GradScaler(kind)
