"""What an optimizer keeps for a model, and what its step needs for a moment: bytes by formula. No torch."""

from __future__ import annotations

from conf.schema import Arch, Config, Model, Optimizer
from models.counts import FEED_FORWARD_MATRICES, count_parameters
from models.shape import resolve_shape
from training.row_states import row_state_bytes

_FP32 = 4

NUMBERS_A_PARAMETER = {
    "adamw": 2,
    "adam": 2,
    "sgd": 1,
    "rmsprop": 1,
    "adagrad": 1,
    "lion": 1,
    "muon": 1,
    "adafactor": 0,
    "schedule_free": 2,
}
"""In fp32, from the first step on; of muon for the matrices of blocks, AdamW has the rest."""

WORKING_NUMBERS = {"lion": 1}
WORKING_NUMBERS_ON_GPU = WORKING_NUMBERS | {"schedule_free": 2}
"""For all parameters at once during a step; the others work on one tensor at a time or in place."""


def state_bytes(config: Optimizer, model: Model, arch: Arch, vocab_size: int, max_positions: int) -> int:
    """Of the moments; Adafactor has those of rows and columns.

    Raises:
        UserError: as `models.shape.resolve_shape`.
    """
    count = count_parameters(model, arch, vocab_size, max_positions)
    each = float(NUMBERS_A_PARAMETER[config.name])
    if config.name == "muon":
        return _FP32 * (
            count.non_embedding + NUMBERS_A_PARAMETER["adamw"] * (count.total - count.non_embedding)
        )
    if config.name == "sgd" and config.momentum == 0:
        each = 0
    if config.name == "rmsprop" and config.momentum > 0:
        each = 2
    if config.name == "adafactor":
        return _FP32 * _rows_and_columns(model, arch, vocab_size, max_positions)
    return int(_FP32 * each * count.total)


def _rows_and_columns(model: Model, arch: Arch, vocab_size: int, max_positions: int) -> int:
    """Of all matrices, and the numbers of all vectors."""
    shape, count = (
        resolve_shape(model, arch),
        count_parameters(model, arch, vocab_size, max_positions),
    )
    d, h = shape.d_model, shape.ffn_hidden
    tables = (
        vocab_size + d + (0 if arch.tied_head else vocab_size + d) + (vocab_size if arch.head_bias else 0)
    )
    tables += max_positions + d if count.positions else 0
    vectors = count.blocks - count.non_embedding + count.final_norm
    if arch.family == "lstm":  # two matrices from d to four gates of d
        return tables + shape.n_layers * 2 * (4 * d + d) + vectors
    feed_forward = FEED_FORWARD_MATRICES[arch.activation] * h + 2 * d
    experts = arch.n_experts or 1
    mixing = 5 * d if arch.family == "mingru" else 4 * d + 2 * shape.kv_dim
    block = mixing + experts * feed_forward + (d + experts if arch.n_experts else 0)
    return tables + shape.n_layers * block + vectors


def averages(config: Config) -> bool:
    """Whether other weights are evaluated than those that are trained."""
    return config.training.ema is not None or config.optimizer.name == "schedule_free"


def checkpoint_bytes(config: Config, vocab_size: int, max_positions: int) -> int:
    """Of the tensors of a checkpoint: weights, moments; weights as trained too where others are evaluated."""
    count = count_parameters(config.model, config.arch, vocab_size, max_positions)
    copies = 2 if averages(config) else 1
    moments = state_bytes(config.optimizer, config.model, config.arch, vocab_size, max_positions)
    return _FP32 * copies * count.total + moments + row_state_bytes(config)


def working_bytes(config: Optimizer, parameters: int, *, on_gpu: bool) -> int:
    """For a moment in a step, of so many bytes of parameters in fp32."""
    numbers = WORKING_NUMBERS_ON_GPU if on_gpu else WORKING_NUMBERS
    return numbers.get(config.name, 0) * parameters
