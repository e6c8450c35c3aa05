"""Memory of a run on several ranks: DDP's buckets, FSDP2's shards and gathering. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from memory.estimate.estimate import PHASES, STEP, Estimate, Part
from models.costs.memory_parts import StepSizes

_SHARDED = (
    "parameters",
    "gradients",
    "optimizer state",
    "optimizer's step",
    "averaged weights",
    "weights set aside",
)
_GATHERED_AT_ONCE = 2
"""Blocks: the next one is gathered while one computes."""


def parts_of_ranks(
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
    """Parts of one rank, then the other ranks on its node as one part for each phase.

    Args:
        parts: parts of the run on one rank.
        parameter_bytes: fp32 parameters of the whole model.
        block_bytes: parameters of each of its `layers`.
        state_bytes: state of the whole optimizer.
    """
    own = Estimate.of(
        _with_buckets(parts, parameter_bytes, step)
        if parallel != "fsdp"
        else _sharded(parts, ranks, parameter_bytes, layers, block_bytes, state_bytes, step)
    )
    yield from own.parts
    for phase in PHASES:
        others = (ranks_here - 1) * own.host_at(phase)
        yield Part("other ranks on this node", others, when=(phase,), in_other_process=True)


def _with_buckets(parts: Iterable[Part], parameter_bytes: int, step: StepSizes) -> Iterator[Part]:
    """Add DDP's buckets. Gradients are views of them, and they stay when the gradients are dropped; while
    micro-batches are accumulated, gradients are separate.
    """
    yield from parts
    when = STEP if step.accumulates else ("forward", "loss")
    yield Part.on(step.on_gpu, "gradient buckets", parameter_bytes, *when, "checkpoint", "evaluate")


def _sharded(
    parts: Iterable[Part],
    ranks: int,
    parameter_bytes: int,
    layers: int,
    block_bytes: int,
    state_bytes: int,
    step: StepSizes,
) -> Iterator[Part]:
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
    rest_bytes = max(0, parameter_bytes - layers * block_bytes)  # embedding, head and last norm
    at_once = min(rest_bytes + _GATHERED_AT_ONCE * block_bytes, parameter_bytes)
    yield Part.on(step.on_gpu, "gathered parameters", at_once, *STEP, "evaluate")
    # Gradients of a block before they are divided over the ranks.
    yield Part.on(step.on_gpu, "whole gradients", at_once, "backward", "backward_end")
    yield Part("gathered for a checkpoint", host_bytes=parameter_bytes + state_bytes, when=("checkpoint",))
