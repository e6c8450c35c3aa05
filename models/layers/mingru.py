"""Blocks of minGRU: a recurrence whose gates read the input alone, so that all positions go at once."""

from __future__ import annotations

from torch import Tensor, nn

from conf.schema import Arch
from models.layers.basic import Linear
from models.layers.blocks import Residual, Result, norm_of
from models.layers.feedforward import feed_forward
from models.layers.forward_context import ForwardPass
from models.layers.scan import min_gru_states
from models.options.parametrization import Parametrization
from models.options.shape import Shape


class MinGru(nn.Module):
    """`h_t = (1 - z_t) h_(t-1) + z_t g(v_t)` (Feng et al., arXiv:2410.01201) with a product behind it.

    z and v are products of the input; of documents in a window, each begins with a state of zeros.
    """

    def __init__(self, shape: Shape, arch: Arch) -> None:
        super().__init__()
        width, has_bias = shape.d_model, arch.bias in ("linear", "all")
        self.input = Linear(width, 2 * width, bias=has_bias, parts=(width, width))
        self.output = Linear(width, width, bias=has_bias)

    def forward(self, x: Tensor, going: ForwardPass) -> Tensor:
        """(batch, seq, d_model) -> the same."""
        begins = None if going.position_ids is None else going.position_ids == 0
        states = min_gru_states(self.input(x), begins, None if going.before is None else going.before[0])
        if going.behind is not None:
            going.behind[0].copy_(states[:, -1].detach())
        found: Tensor = self.output(states)
        return found


class MinGruBlock(nn.Module):
    """`x + recurrence(norm(x))`, then `x + feed_forward(norm(x))`."""

    def __init__(self, shape: Shape, arch: Arch, how: Parametrization) -> None:
        super().__init__()
        self.recurrence_norm = norm_of(shape, arch)
        self.recurrence = MinGru(shape, arch)
        self.feed_forward_norm = norm_of(shape, arch)
        self.feed_forward = feed_forward(shape, arch)
        self.residual = Residual(arch.dropout_residual, how.branch_multiplier, locked=arch.dropout_locked)

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        x = self.residual(x, self.recurrence(self.recurrence_norm(x), going))
        branch, loss = self.feed_forward(self.feed_forward_norm(x))
        return self.residual(x, branch), loss
