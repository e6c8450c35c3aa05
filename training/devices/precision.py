"""Precision of a run: the value of `auto` on a device, and the loss scale that fp16 needs."""

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

    `auto` is bf16 on a GPU that has it, fp16 on one that has only that if the run allows fp16
    (`fp16_obstacle`), and otherwise fp32. On a CPU it is fp32: most lack bf16 and then compute it many times
    slower, and nodes of one cluster differ, so that one study would have two precisions.

    Args:
        kept: choices of an earlier attempt.
        kind: kind of the device, cpu or cuda.

    Raises:
        UserError: the config requires fp16, and the run cannot use it.
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
    """Make the loss scaler that keeps small gradients from becoming 0 in fp16; None in other precisions.

    It skips a step in which a gradient overflows, and halves the scale. With the fused optimizers this
    happens on the device, without a wait of the host.
    """
    if precision != "fp16":
        return None
    import torch

    return torch.amp.GradScaler(kind)
