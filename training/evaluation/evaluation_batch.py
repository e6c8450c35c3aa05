"""Number of windows in a batch of an evaluation. No torch: the memory estimate uses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from conf import Config
from memory.estimate.estimate import Part
from models.costs.memory_parts import StepSizes
from training.own_parts.model_counts import memory_of_model

TOKENS_AT_ONCE = 65_536
"""Most tokens of a forward pass without gradients on a GPU; with fewer it waits for the host."""
LEAST_ROOM_BYTES = 256 << 20
"""GPU memory that an evaluation can always use: the matrices of MFU's peak used it before."""
MORE_ROOM = 1.25
"""Most memory of a larger batch, relative to the batch of the step."""


def evaluation_step(config: Config, vocab_size: int, step: StepSizes) -> StepSizes:
    """Sizes of an evaluation's forward pass, from configuration and step alone: a resume has the same.

    On a CPU they are those of the step. On a GPU the batch is doubled up to `TOKENS_AT_ONCE` while it needs
    little more memory than that of the step. A compiled model keeps its shape.
    """
    if not step.on_gpu or step.compiled or step.members > 1:
        return step
    found = larger = replace(step, loss_chunk=min(step.loss_chunk, step.tokens))
    room = max(LEAST_ROOM_BYTES, MORE_ROOM * evaluation_bytes(config, vocab_size, step))
    while larger.tokens <= TOKENS_AT_ONCE and evaluation_bytes(config, vocab_size, larger) <= room:
        found, larger = larger, replace(larger, micro_batch=2 * larger.micro_batch)
    return found


def evaluation_bytes(config: Config, vocab_size: int, step: StepSizes) -> int:
    """Bytes that a forward pass without gradients allocates on a GPU."""
    positions = config.arch.max_positions or config.training.seq_len
    parts = memory_of_model(config, vocab_size, positions, step)
    return sum(part.gpu_bytes for part in evaluation_parts(parts))


def evaluation_parts(parts: Iterator[Part]) -> Iterator[Part]:
    """The parts of a model that exist in evaluations alone."""
    return (part for part in parts if part.when == ("evaluate",))
