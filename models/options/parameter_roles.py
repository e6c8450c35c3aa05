"""What a parameter is for, which says how it is initialized, how it decays and by whom it is updated."""

from __future__ import annotations

from torch import nn

ROLES = ("embedding", "hidden", "output", "vector")
"""embedding: a table looked up by token or position, also where it is the output matrix as well. hidden: a
matrix of a block. output: an output matrix of its own. vector: of one dimension, as gains and biases."""


def roles_of(model: nn.Module) -> dict[str, str]:
    """The role of each parameter by name, in the order of `named_parameters`."""
    tables = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Embedding)}
    return {name: _role(name, parameter, tables) for name, parameter in model.named_parameters()}


def _role(name: str, parameter: nn.Parameter, tables: set[str]) -> str:
    if parameter.ndim < 2:
        return "vector"
    if name in tables:
        return "embedding"
    return "output" if name.removeprefix("own.").startswith("head.") else "hidden"
