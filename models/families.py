"""Families of models: what their blocks are made by. All else they share."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from conf.schema import Arch
from models.blocks import block_of
from models.lstm import lstm_block
from models.mingru import MinGruBlock
from models.parametrization import Parametrization
from models.shape import Shape

FAMILIES: dict[str, Callable[[Shape, Arch, Parametrization], nn.Module]] = {
    "transformer": block_of,
    "lstm": lstm_block,
    "mingru": MinGruBlock,
}
"""A block is called with the residual stream and the ForwardPass, and gives a `models.blocks.Result`."""
