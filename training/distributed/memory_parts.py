"""What several ranks change in the memory of a run: DDP's buckets, FSDP2's parts and gathering. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from memory.estimate.estimate import PHASES, STEP, Estimate, Part
from models.memory_parts import StepSizes

_SHARDED = (
    "parameters",
    "gradients",
    "optimizer state",
    "optimizer's step",
    "averaged weights",
    "weights set aside",
)
_GATHERED_AT_ONCE = 2
"""Blocks: the next one is fetched while one computes."""


def of_ranks(
    parts: Iterable[Part],
    parallel: str,
    ranks: int,
    ranks_here: int,
    parameter_bytes: int,
    layers: int,
    block_bytes: int,
    state_bytes: int,
    step: StepSizes,
) -> Iterator[Part]:
    """The parts of one rank, then those of the others on its node as one part of each phase.

    parameter_bytes: of the whole model in fp32, of which each of so many layers has block_bytes. state_bytes:
    of the whole optimizer.
    """
    rest_bytes = max(0, parameter_bytes - layers * block_bytes)
    own = list(
        _of_one(list(parts), parallel, ranks, parameter_bytes, rest_bytes, block_bytes, state_bytes, step)
    )
    yield from own
    estimate = Estimate.of(own)
    for phase in PHASES:
        others = (ranks_here - 1) * estimate.host_at(phase)
        yield Part("other ranks on this node", others, when=(phase,), beside=True)


def _of_one(
    parts: list[Part],
    parallel: str,
    ranks: int,
    parameter_bytes: int,
    rest_bytes: int,
    block_bytes: int,
    state_bytes: int,
    step: StepSizes,
) -> Iterator[Part]:
    """rest_bytes: embedding, head and last norm."""

    def of(name: str, amount: int, *when: str) -> Part:
        return Part(name, *((0, amount) if step.on_gpu else (amount, 0)), when=when)

    if parallel != "fsdp":
        yield from parts
        # Gradients are views of the buckets, which stay when the gradients are dropped; but while
        # micro-batches are accumulated the gradients are apart.
        when = STEP if step.accumulates else ("forward", "loss")
        yield of("gradient buckets", parameter_bytes, *when, "checkpoint", "evaluate")
        return
    for part in parts:
        if part.name not in _SHARDED or part.when == ("build",):
            yield part
            continue
        # The model is built whole on each rank, so that a seed gives the same weights on any number of them.
        if "build" in part.when:
            yield replace(part, when=("build",))
        later = tuple(phase for phase in part.when if phase != "build")
        yield replace(
            part, host_bytes=part.host_bytes // ranks, gpu_bytes=part.gpu_bytes // ranks, when=later
        )
    at_once = rest_bytes + _GATHERED_AT_ONCE * block_bytes
    yield of("gathered parameters", min(at_once, parameter_bytes), *STEP, "evaluate")
    # Gradients of a block before they are divided over the ranks.
    yield of("whole gradients", min(at_once, parameter_bytes), "backward", "backward_end")
    yield Part("gathered for a checkpoint", host_bytes=parameter_bytes + state_bytes, when=("checkpoint",))
