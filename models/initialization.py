"""First values of the weights: one rule for all matrices, that says from how wide a distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from conf.schema import Arch
from models.layers.basic import Embedding, ExpertLinear, Linear
from models.options.parameter_roles import roles_of
from models.options.parametrization import Parametrization
from models.options.shape import Shape


@dataclass(frozen=True)
class Matrix:
    """One to be drawn. role: of `parameter_roles`. to_residual: it writes to the residual stream.

    inputs, outputs: numbers in and out. of_positions: the table of learned ones.
    """

    role: str
    inputs: int
    outputs: int
    to_residual: bool
    of_positions: bool


Rule = Callable[[Matrix, Shape, Arch, Parametrization], float]
"""The standard deviation of a matrix' numbers, which are normal around 0."""


def default(matrix: Matrix, shape: Shape, arch: Arch, how: Parametrization) -> float:
    """init_std, and `/ sqrt(2 n_layers)` where written to the residual stream, whose variance then does not
    grow with depth (Radford et al. 2019, GPT-2, section 2.3).
    """
    return arch.init_std / math.sqrt(2 * shape.n_layers) if matrix.to_residual else arch.init_std


def gpt2(matrix: Matrix, shape: Shape, arch: Arch, how: Parametrization) -> float:
    """As released: 0.02, positions 0.01, and as `default` where written to the residual stream."""
    if matrix.of_positions:
        return 0.01
    return 0.02 / math.sqrt(2 * shape.n_layers) if matrix.to_residual else 0.02


def xavier(matrix: Matrix, shape: Shape, arch: Arch, how: Parametrization) -> float:
    """Variance 2 / (inputs + outputs) (Glorot & Bengio 2010); tables as `default`."""
    if matrix.role == "embedding":
        return arch.init_std
    return math.sqrt(2 / (matrix.inputs + matrix.outputs))


def kaiming(matrix: Matrix, shape: Shape, arch: Arch, how: Parametrization) -> float:
    """Variance 2 / inputs (He et al., arXiv:1502.01852); tables as `default`."""
    return arch.init_std if matrix.role == "embedding" else math.sqrt(2 / matrix.inputs)


def transformer_scaled(matrix: Matrix, shape: Shape, arch: Arch, how: Parametrization) -> float:
    """Variance 2 / (5 d_model) (Nguyen & Salazar, arXiv:1910.05895), and `2 / (n_layers sqrt(d_model))` where
    written to the residual stream, both as in GPT-NeoX-20B (arXiv:2204.06745).
    """
    if matrix.to_residual:
        return 2 / (shape.n_layers * math.sqrt(shape.d_model))
    return math.sqrt(2 / (5 * shape.d_model))


def by_size(matrix: Matrix, shape: Shape, arch: Arch, how: Parametrization) -> float:
    """init_std, for matrices of blocks at the base width: `models.options.parametrization`."""
    return arch.init_std * (how.hidden_init if matrix.role == "hidden" else 1.0)


INITS: dict[str, Rule] = {
    "default": default,
    "xavier": xavier,
    "kaiming": kaiming,
    "transformer_scaled": transformer_scaled,
    "gpt2": gpt2,
    "mup": by_size,
    "completep": by_size,
}


@torch.no_grad()
def initialize(
    model: nn.Module, shape: Shape, arch: Arch, how: Parametrization, generator: torch.Generator | None
) -> None:
    """Draw every matrix in the order of `model.modules()`; gains are left at 1, biases are their own layer's.

    Draws are made where the weights are: build on the CPU and move the model, and a seed means the same
    weights on every device. generator: None for torch's global one.
    """
    roles = roles_of(model)
    for name, module in model.named_modules():
        if not isinstance(module, Linear | ExpertLinear | Embedding):
            continue
        outputs, inputs = module.weight.shape[-2:]
        parts = (outputs,) if isinstance(module, Embedding) else module.parts
        to_residual, of_positions = name.endswith(".output"), name.startswith("positions.")
        stds = [
            INITS[arch.init](
                Matrix(roles[f"{name}.weight"], inputs, part, to_residual, of_positions), shape, arch, how
            )
            for part in parts
        ]
        if len(set(stds)) == 1:  # drawn at once, whatever its parts: a seed keeps its meaning
            module.weight.normal_(0.0, stds[0], generator=generator)
        else:
            for part, std in zip(module.weight.split(parts, dim=-2), stds, strict=True):
                part.normal_(0.0, std, generator=generator)
        if isinstance(module, Linear) and module.bias is not None:
            module.begin_bias()
