"""What an optimizer keeps for a model, and what its step needs for a moment: bytes by formula. No torch."""

from __future__ import annotations

from conf.schema import Arch, Config, Model, Optimizer
from models.options.activations import activation_costs
from models.options.counts import count_parameters
from models.options.family_keys import is_own
from models.options.shape import positions_of, resolve_shape
from training.own_parts.facts import facts_of
from training.own_parts.model_counts import parameter_counts
from training.step.recurrent_state import row_state_bytes

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

_SIDES_SHARE = 0.1
"""Rows and columns of matrices, relative to their numbers."""

WORKING_NUMBERS = {"lion": 1}
WORKING_NUMBERS_ON_GPU = WORKING_NUMBERS | {"schedule_free": 2}
"""For all parameters at once during a step; the others work on one tensor at a time or in place."""


def state_bytes(config: Config, vocab_size: int, max_positions: int) -> int:
    """Bytes of the optimizer's state. Adafactor keeps sums of rows and columns.

    Raises:
        UserError: sizes do not fit together, or a part of the user's cannot be used.
    """
    count = parameter_counts(config, vocab_size, max_positions)
    if config.optimizer.name == "adafactor" and not is_own(config.arch):
        return _FP32 * _rows_and_columns(config.model, config.arch, vocab_size, max_positions)
    if config.optimizer.name not in NUMBERS_A_PARAMETER:
        facts = facts_of(config, vocab_size)
        return int(_FP32 * (facts.state_numbers if facts is not None else 2) * count.total)
    return _moment_bytes(config.optimizer, count.total, count.non_embedding)


def _moment_bytes(config: Optimizer, total: int, non_embedding: int) -> int:
    """Bytes for this number of parameters; for Adafactor a bound, as its moments go by shapes."""
    if config.name == "adafactor":
        return int(_FP32 * _SIDES_SHARE * total)
    each = float(NUMBERS_A_PARAMETER[config.name])
    if config.name == "muon":
        return _FP32 * (non_embedding + NUMBERS_A_PARAMETER["adamw"] * (total - non_embedding))
    if config.name == "sgd" and config.momentum == 0:
        each = 0
    if config.name == "rmsprop" and config.momentum > 0:
        each = 2
    return int(_FP32 * each * total)


def _rows_and_columns(model: Model, arch: Arch, vocab_size: int, max_positions: int) -> int:
    """Rows and columns of all matrices, and the numbers in all vectors."""
    matrices = _matrices(model, arch, vocab_size, max_positions)
    in_matrices = sum(tensors * stacked * rows * columns for tensors, stacked, rows, columns in matrices)
    count = count_parameters(model, arch, vocab_size, max_positions)
    sides = sum(tensors * stacked * (rows + columns) for tensors, stacked, rows, columns in matrices)
    return sides + count.total - in_matrices


def _matrices(
    model: Model, arch: Arch, vocab_size: int, max_positions: int
) -> list[tuple[int, int, int, int]]:
    """Weight matrices as (tensors of this shape, matrices stacked in each, rows, columns)."""
    shape = resolve_shape(model, arch)
    d, h, layers = shape.d_model, shape.ffn_hidden, shape.n_layers
    found = [(1 if arch.tied_head else 2, 1, vocab_size, d)]
    if positions_of(arch) == "learned":
        found.append((1, 1, max_positions, d))
    if arch.family == "lstm":  # four gates, of the input and of the state
        return [*found, (2 * layers, 1, 4 * d, d)]
    mixing = 2 * d if arch.family == "mingru" else d + 2 * shape.kv_dim
    inner = (activation_costs(arch.activation).matrices - 1) * h
    experts = arch.n_experts or 1
    found += [(layers, 1, mixing, d), (layers, 1, d, d), (layers, experts, inner, d), (layers, experts, d, h)]
    return [*found, (layers, 1, arch.n_experts, d)] if arch.n_experts else found


def averages(config: Config) -> bool:
    """Whether other weights are evaluated than those that are trained."""
    return config.training.ema is not None or config.optimizer.name == "schedule_free"


def checkpoint_bytes(
    config: Config,
    vocab_size: int,
    max_positions: int,
    *,
    total: int | None = None,
    non_embedding: int | None = None,
) -> int:
    """Of the tensors of a checkpoint: weights, moments; weights as trained too where others are evaluated.

    total, non_embedding: parameters of a model that is not the one of the formulas.
    """
    moments = state_bytes(config, vocab_size, max_positions)
    if total is None or non_embedding is None:
        total = parameter_counts(config, vocab_size, max_positions).total
    elif config.optimizer.name in NUMBERS_A_PARAMETER and config.optimizer.name != "adafactor":
        moments = _moment_bytes(config.optimizer, total, non_embedding)
    return _FP32 * (2 if averages(config) else 1) * total + moments + row_state_bytes(config)


def staged_bytes(config: Config, vocab_size: int, max_positions: int) -> int:
    """Bytes of page-locked memory that hold the tensors of a checkpoint of a GPU run.

    torch rounds each tensor up to a power of two (ATen/core/CachingHostAllocator.h, PowerOf2Ceil). Moments
    have the shapes of the weights, so they grow by the same share.
    """
    if is_own(config.arch):  # at most twice as large
        return 2 * checkpoint_bytes(config, vocab_size, max_positions)
    matrices = _matrices(config.model, config.arch, vocab_size, max_positions)
    sizes = [(tensors, _FP32 * stacked * rows * columns) for tensors, stacked, rows, columns in matrices]
    exact = sum(tensors * size for tensors, size in sizes)
    rounded = sum(tensors * (1 << (size - 1).bit_length()) for tensors, size in sizes)
    return checkpoint_bytes(config, vocab_size, max_positions) * rounded // exact


def working_bytes(config: Optimizer, parameters: int, *, on_gpu: bool) -> int:
    """For a moment in a step, of so many bytes of parameters in fp32."""
    numbers = WORKING_NUMBERS_ON_GPU if on_gpu else WORKING_NUMBERS
    return numbers.get(config.name, 0) * parameters
