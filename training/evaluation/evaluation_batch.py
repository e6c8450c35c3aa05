"""Number of windows of an evaluation that are computed at once. No torch: the memory estimate counts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from conf import Config
from memory.estimate.estimate import Part
from models.costs.memory_parts import StepSizes
from training.own_parts.model_counts import memory_of_model

TOKENS_AT_ONCE = 65_536
"""Most tokens of a forward pass without gradients on a GPU: fewer leave it waiting for the host."""
LEAST_ROOM_BYTES = 256 << 20
"""GPU memory that an evaluation can take in any case: the matrices of MFU's peak took it before."""
MORE_ROOM = 1.25
"""Memory of a larger batch at most, relative to that of the step's."""


def evaluation_step(config: Config, vocab_size: int, step: StepSizes) -> StepSizes:
    """Sizes of an evaluation's forward pass, by the configuration and the step alone: a resume has the same.

    On a CPU they are those of the step. On a GPU the batch is doubled up to `TOKENS_AT_ONCE` while it takes
    little more memory than that of the step, whose logits are most of it. A compiled model keeps its shape.
    """
    if not step.on_gpu or step.compiled or step.members > 1:
        return step
    found = larger = replace(step, loss_chunk=min(step.loss_chunk, step.tokens))
    room = max(LEAST_ROOM_BYTES, MORE_ROOM * evaluation_bytes(config, vocab_size, step))
    while larger.tokens <= TOKENS_AT_ONCE and evaluation_bytes(config, vocab_size, larger) <= room:
        found, larger = larger, replace(larger, micro_batch=2 * larger.micro_batch)
    return found


def evaluation_bytes(config: Config, vocab_size: int, step: StepSizes) -> int:
    """Bytes that a forward pass without gradients makes on a GPU."""
    positions = config.arch.max_positions or config.training.seq_len
    parts = memory_of_model(config, vocab_size, positions, step)
    return sum(part.gpu_bytes for part in evaluation_parts(parts))


def evaluation_parts(parts: Iterator[Part]) -> Iterator[Part]:
    """The parts of a model that exist in evaluations alone."""
    return (part for part in parts if part.when == ("evaluate",))
