"""The step of a run on shapes alone: hands the model and the step to `memory.trace` as functions."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from conf import Config
from memory.estimate.estimate import STEP, Estimate, Part
from memory.estimate.trace import Traced, traced
from models.loss_chunk import AUTO_CHUNK
from models.memory_parts import StepSizes

_REPLACED = (
    "parameters", "gradients", "activations", "backward pass", "optimizer state", "logits and loss",
)  # fmt: skip
"""Parts of the formula that the trace stands for at the peak of a step."""
_LR = 1e-3
"""Any but 0, which weights its average by the rate divide by."""


def trace_run(config: Config, sizes: StepSizes, vocab_size: int) -> Traced:
    """Bytes of tensors at the worst moment of a step of this configuration, on a CPU.

    The loss of a GPU is not traced: it is replaced by that of small chunks, and the formula is kept for it.
    """
    micro_batch, precision = sizes.micro_batch, sizes.precision
    loss_chunk = AUTO_CHUNK if sizes.on_gpu else sizes.loss_chunk
    shape = {
        "model": asdict(config.model),
        "arch": asdict(config.arch),
        "vocab_size": vocab_size,
        "seq_len": config.training.seq_len,
        "micro_batch": micro_batch,
        "accumulates": sizes.accumulates,
        "loss_chunk": loss_chunk,
        "precision": precision,
        "activation_checkpointing": config.training.activation_checkpointing,
        "optimizer": [config.optimizer.name, config.optimizer.momentum > 0],
        "code": code_digest(Path(__file__).parents[1]),
    }

    def build() -> tuple[Any, Any]:
        from models import build_model
        from training.optimizers import build_optimizer

        positions = config.arch.max_positions or config.training.seq_len
        model = build_model(config.model, config.arch, vocab_size, positions)
        model.activation_checkpointing = config.training.activation_checkpointing
        return model, build_optimizer(model, config.optimizer, "cpu")

    def step(model: Any, optimizer: Any) -> None:
        import torch

        from models import LossModel
        from training.device import Device
        from training.distributed.parallel import Parallel
        from training.step import Step

        class RootAnew(Parallel):
            """MemTracker takes the second call of an outermost module for the next step, and refuses it.

            All are kept: of one that is gone in the backward pass it warns.
            """

            def __call__(self, *arguments: Any, **options: Any) -> torch.Tensor:
                roots.append(LossModel(self.model))
                found: torch.Tensor = roots[-1](*arguments, **options)
                return found

        roots: list[LossModel] = []
        ids = torch.zeros((micro_batch, config.training.seq_len), dtype=torch.int64)
        batch = {"input_ids": ids, "labels": ids}
        Step(
            model,
            optimizer,
            Device("cpu", precision, 1),
            accumulation=2 if sizes.accumulates else 1,
            loss_chunk=loss_chunk,
            grad_clip=config.optimizer.grad_clip,
            parallel=RootAnew(model),
        ).take(iter([batch] * 2), _LR)

    return traced(build, step, shape=shape)


def code_digest(root: Path) -> str:
    """Of the code that a step runs: a changed block takes other memory in the same shape."""
    digest = hashlib.sha256()
    for room in ("models", "training"):
        for path in sorted((root / room).rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def with_trace(estimate: Estimate, found: Traced, *, sees_loss: bool) -> Estimate:
    """The estimate with the traced peak in place of the formula's in the phases of a step.

    sees_loss: ordinary cross-entropy. What happens inside a loss of chunks is one operation to a trace: there
    the formula is kept.
    """
    kept = []
    phases = tuple(phase for phase in STEP if sees_loss or phase != "loss")
    for part in estimate.parts:
        if part.name not in _REPLACED:
            kept.append(part)
            continue
        others = tuple(phase for phase in part.when if phase not in phases)
        if others:
            kept.append(replace(part, when=others))
    on_gpu = any(part.gpu_bytes for part in estimate.parts if part.name == "parameters")
    for name, amount in found.parts.items():
        kept.append(Part(f"{name} (traced)", *((0, amount) if on_gpu else (amount, 0)), when=phases))
    return Estimate.of(kept)
