"""Families of models: what their blocks are made by. All else they share."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from conf.schema import Arch
from models.layers.blocks import block_of
from models.layers.lstm import lstm_block
from models.layers.mingru import MinGruBlock
from models.options.parametrization import Parametrization
from models.options.shape import Shape

FAMILIES: dict[str, Callable[[Shape, Arch, Parametrization], nn.Module]] = {
    "transformer": block_of,
    "lstm": lstm_block,
    "mingru": MinGruBlock,
}
"""A block is called with the residual stream and the ForwardPass, and gives a `blocks.Result`."""
