"""Parameters and floating-point operations by formula. No torch; tests hold them to the built model."""

from __future__ import annotations

from dataclasses import dataclass

from conf.schema import Arch, Model
from models.options.activations import activation_costs
from models.options.family_keys import RECURRENT
from models.options.shape import Shape, final_norm, positions_of, resolve_shape

NORMS_OF_BLOCK = {"pre": 2, "post": 2, "sandwich": 4}

MATRICES_OF_LSTM = 8
"""Of (d_model, d_model): four gates, each of the input and of the state; and so many biases of d_model."""

BACKWARD_OVER_FORWARD = 2
"""A product's backward pass is two products of its size: by its input and by its weight."""


@dataclass(frozen=True)
class ParameterCounts:
    """Numbers of parameters.

    blocks: all of the blocks, gains and biases included.
    head: 0 where the output matrix is the embedding matrix and there is no output bias.
    non_embedding: the N of scaling laws: the weights of the blocks that multiply matrices,
        16 L d^2 for SwiGLU of hidden 4 d. active: those of them that multiply one token: of experts a few.
    """

    embedding: int
    positions: int
    blocks: int
    final_norm: int
    head: int
    non_embedding: int
    active: int

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
    d, layers = shape.d_model, shape.n_layers
    matrices = layers * block_matrices(shape, arch)
    vectors = norms_of_block(arch) * norm_parameters(d, arch, arch.norm) + _biases(shape, arch)
    vectors += 2 * shape.head_dim if arch.qk_norm else 0
    return ParameterCounts(
        embedding=vocab_size * d,
        positions=max_positions * d if positions_of(arch) == "learned" else 0,
        blocks=matrices + layers * vectors,
        final_norm=norm_parameters(d, arch, final_norm(arch)),
        head=vocab_size * ((0 if arch.tied_head else d) + (1 if arch.head_bias else 0)),
        non_embedding=matrices,
        active=layers * block_matrices(shape, arch, active=True),
    )


def block_matrices(shape: Shape, arch: Arch, *, active: bool = False) -> int:
    """Numbers in the matrices of a block; active: in those that multiply one token."""
    d = shape.d_model
    if arch.family == "lstm":
        return MATRICES_OF_LSTM * d * d
    attention = 3 * d * d if arch.family == "mingru" else 2 * d * d + 2 * d * shape.kv_dim
    feed_forward = activation_costs(arch.activation).matrices * d * shape.ffn_hidden
    if arch.n_experts is None:
        return attention + feed_forward
    parts = arch.experts_per_token if active else arch.n_experts
    return attention + parts * feed_forward + d * arch.n_experts


def norms_of_block(arch: Arch) -> int:
    """A layer of an LSTM has one."""
    if arch.family == "lstm" or arch.parallel_blocks:
        return 1
    return NORMS_OF_BLOCK[arch.norm_position]


def norm_parameters(width: int, arch: Arch, kind: str) -> int:
    """Gains, and of LayerNorm biases where all that can have some do."""
    if kind == "none":
        return 0
    return 2 * width if kind == "layer" and arch.bias == "all" else width


def _biases(shape: Shape, arch: Arch) -> int:
    """Of the products of a block."""
    if arch.bias == "none":
        return 0
    if arch.family == "lstm":
        return MATRICES_OF_LSTM * shape.d_model
    of_qkv = 2 * shape.d_model if arch.family == "mingru" else shape.d_model + 2 * shape.kv_dim
    if arch.bias == "qkv":
        return of_qkv
    inner = (activation_costs(arch.activation).matrices - 1) * shape.ffn_hidden
    return of_qkv + shape.d_model + inner + shape.d_model


def flops_per_token(model: Model, arch: Arch, vocab_size: int, seq_len: int) -> FlopCounts:
    """Count the FLOPs of one training step per token, for windows of `seq_len` tokens.

    Raises:
        UserError: as `resolve_shape`.
    """
    shape = resolve_shape(model, arch)
    matrices = count_parameters(model, arch, vocab_size, seq_len).active
    passes = 1 + BACKWARD_OVER_FORWARD
    return FlopCounts(
        blocks=passes * 2 * matrices,
        attention=0 if arch.family in RECURRENT else passes * 4 * shape.n_layers * shape.d_model * seq_len,
        head=passes * 2 * vocab_size * shape.d_model,
    )
