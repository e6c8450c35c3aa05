"""Parameters, FLOPs and memory of a configuration's model: by formula, or counted on one of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from conf import Config
from memory.estimate.constants import HEAP_SHARE
from memory.estimate.estimate import AFTER_FIRST_STEP, ALWAYS, COMPILE_EVALUATION, Part
from models.costs.memory_loss import evaluation_loss_bytes, loss_kept_bytes, loss_peak_bytes
from models.costs.memory_parts import ALLOCATOR, StepSizes, model_parts
from models.costs.memory_sizes import FP32
from models.options import counts
from models.options.counts import FlopCounts, ParameterCounts
from models.options.family_keys import is_own
from models.options.shape import resolve_shape
from training.own_parts.facts import facts_of
from training.own_parts.part_facts import Facts


def own_facts(config: Config, vocab_size: int) -> Facts | None:
    """Facts of the user's model; None: the model is one of ours."""
    return facts_of(config, vocab_size) if is_own(config.arch) else None


def parameter_counts(config: Config, vocab_size: int, positions: int) -> ParameterCounts:
    """Count the parameters of the model.

    Raises:
        UserError: sizes do not fit together, or the user's model cannot be used.
    """
    facts = own_facts(config, vocab_size)
    if facts is None:
        return counts.count_parameters(config.model, config.arch, vocab_size, positions)
    rest = facts.parameters - facts.non_embedding
    return ParameterCounts(rest, 0, facts.non_embedding, 0, 0, facts.non_embedding, facts.non_embedding)


def flop_counts(config: Config, vocab_size: int) -> FlopCounts:
    """Count the FLOPs of one training step per token.

    Raises:
        UserError: as `parameter_counts`.
    """
    facts = own_facts(config, vocab_size)
    if facts is None:
        return counts.flops_per_token(config.model, config.arch, vocab_size, config.training.seq_len)
    head = round(min(facts.head_flops_per_token, facts.flops_per_token))
    return FlopCounts(round(facts.flops_per_token) - head, 0, head)


def memory_of_model(config: Config, vocab_size: int, positions: int, step: StepSizes) -> Iterator[Part]:
    """Parts of the memory of the model by phase.

    Raises:
        UserError: as `parameter_counts`.
    """
    facts = own_facts(config, vocab_size)
    if facts is None:
        yield from model_parts(config.model, config.arch, vocab_size, positions, step)
    else:
        yield from _own_parts(config, facts, vocab_size, step)
    if (
        config.logging.metrics
    ):  # logits of a window or a chunk, in fp32, and as much again of the user's twice
        tokens = min(step.tokens, max(step.loss_chunk, config.training.seq_len))
        yield Part.on(step.on_gpu, "logits and loss", 3 * FP32 * vocab_size * tokens, "evaluate")


def _own_parts(config: Config, facts: Facts, vocab_size: int, step: StepSizes) -> Iterator[Part]:
    """Parts of a model whose saved tensors were measured on shapes.

    The backward pass is taken to hold the gradients of one layer's share of them.
    """
    part, shape = partial(Part.on, step.on_gpu), resolve_shape(config.model, config.arch)
    parameters = FP32 * facts.parameters
    yield part("parameters", parameters, *ALWAYS)
    yield part("gradients", parameters, "backward_end", "optimizer_step")
    if step.accumulates or step.keeps_gradients:
        yield part("gradients", parameters, "forward", "loss", "backward")
    saved = facts.saved_bytes + step.micro_batch * facts.saved_bytes_per_window
    layer = saved // max(1, shape.n_layers)
    yield part("activations", saved, "forward", "loss", "backward")
    if facts.has_head:
        kept = loss_kept_bytes(shape, config.arch, vocab_size, step)
        peak = loss_peak_bytes(shape, config.arch, vocab_size, step)
        evaluated = evaluation_loss_bytes(shape, config.arch, vocab_size, step)
    else:  # all logits, their probabilities, and gradients
        logits = FP32 * vocab_size * step.tokens
        kept, peak, evaluated = 2 * logits, 3 * logits, 2 * logits
    yield part("logits and loss", kept, "loss")
    yield part("logits and loss", peak - kept, "loss", in_turn=True)
    yield part("backward pass", layer + parameters // max(1, shape.n_layers), "backward")
    yield part("activations", layer + evaluated, "evaluate")
    if not step.on_gpu:
        holes = int(HEAP_SHARE.value * saved)
        yield Part(ALLOCATOR, holes, when=(*AFTER_FIRST_STEP, COMPILE_EVALUATION))
