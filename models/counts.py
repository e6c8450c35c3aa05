"""Parameters and floating-point operations by formula. No torch; tests hold them to the built model."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema import Arch, Model
from models.shape import resolve_shape

FEED_FORWARD_MATRICES = {"swiglu": 3, "gelu": 2, "relu": 2, "silu": 2}
"""Matrices of (d_model, ffn_hidden): a gated unit has one more than a plain one."""

BACKWARD_OVER_FORWARD = 2
"""A product's backward pass is two products of its size: by its input and by its weight."""


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of parameters.

    blocks: all of the blocks, the gains of their norms included.
    head: 0 where the output matrix is the embedding matrix.
    non_embedding: the N of scaling laws: the weights of the blocks that multiply matrices,
        16 L d^2 for SwiGLU of hidden 4 d.
    """

    embedding: int
    positions: int
    blocks: int
    final_norm: int
    head: int
    non_embedding: int

    @property
    def total(self) -> int:
        """All parameters, a tied matrix once."""
        return self.embedding + self.positions + self.blocks + self.final_norm + self.head


@dataclass(frozen=True)
class FlopCounts:
    """FLOPs of training on one token, forward and backward; a multiplication and an addition are two.

    Matrix products only, as in MFU (PaLM, arXiv:2204.02311, appendix B). What activation
    checkpointing computes again is not counted.

    attention: scores and their product with the values, over the whole window: the causal half
        is not taken off, as in PaLM and in torch's FlopCounterMode.
    """

    blocks: int
    attention: int
    head: int

    @property
    def total(self) -> int:
        return self.blocks + self.attention + self.head


def count_parameters(model: Model, arch: Arch, vocab_size: int, max_positions: int) -> ParameterCounts:
    """Count the parameters of the model that `build_model` builds from the same arguments.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    d = shape.d_model
    attention = 4 * d * d
    feed_forward = FEED_FORWARD_MATRICES[arch.activation] * d * shape.ffn_hidden
    matrices = shape.n_layers * (attention + feed_forward)
    return ParameterCounts(
        embedding=vocab_size * d,
        positions=max_positions * d if arch.positions == "learned" else 0,
        blocks=matrices + shape.n_layers * 2 * d,
        final_norm=d if arch.norm_position == "pre" else 0,
        head=0 if arch.tied_head else vocab_size * d,
        non_embedding=matrices,
    )


def flops_per_token(model: Model, arch: Arch, vocab_size: int, seq_len: int) -> FlopCounts:
    """Count the FLOPs of one training step per token, for windows of `seq_len` tokens.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    matrices = count_parameters(model, arch, vocab_size, seq_len).non_embedding
    passes = 1 + BACKWARD_OVER_FORWARD
    return FlopCounts(
        blocks=passes * 2 * matrices,
        attention=passes * 4 * shape.n_layers * shape.d_model * seq_len,
        head=passes * 2 * vocab_size * shape.d_model,
    )
