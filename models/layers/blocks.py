"""Blocks: attention and feed-forward, and how each is normed and added to the residual stream."""

from __future__ import annotations

from torch import Tensor, nn

from conf.schema import Arch
from models.layers.attention import Attention
from models.layers.dropout import dropped
from models.layers.feedforward import feed_forward
from models.layers.forward_context import ForwardPass
from models.layers.norms import NORMS
from models.options.parametrization import Parametrization
from models.options.shape import Shape

Result = tuple[Tensor, Tensor | None]
"""The residual stream behind a block, and a loss that the block wants minimized besides, in training."""


def norm_of(shape: Shape, arch: Arch, kind: str | None = None) -> nn.Module:
    """A norm over the residual stream; kind: another than arch.norm."""
    return NORMS[kind or arch.norm](shape.d_model, arch.norm_eps, arch.bias == "all")


class Residual(nn.Module):
    """`x + multiplier * dropout(branch)`, (batch, seq, d_model). locked: as of `models.layers.dropout`."""

    def __init__(self, dropout: float, multiplier: float, *, locked: bool = False) -> None:
        super().__init__()
        self.dropout, self.multiplier, self.locked = dropout, multiplier, locked

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        branch = dropped(branch, self.dropout, self.training, locked=self.locked)
        return x + (branch if self.multiplier == 1.0 else self.multiplier * branch)


class PreNorm(nn.Module):
    """`x + f(norm(x))` (Radford et al. 2019, GPT-2)."""

    def __init__(self, shape: Shape, arch: Arch, how: Parametrization) -> None:
        super().__init__()
        self.attention_norm = norm_of(shape, arch)
        self.attention = Attention(shape, arch, how.attention_scale)
        self.feed_forward_norm = norm_of(shape, arch)
        self.feed_forward = feed_forward(shape, arch)
        self.residual = Residual(arch.dropout_residual, how.branch_multiplier)

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        x = self.residual(x, self.attention(self.attention_norm(x), going))
        branch, loss = self.feed_forward(self.feed_forward_norm(x))
        return self.residual(x, branch), loss


class PostNorm(PreNorm):
    """`norm(x + f(x))` (Vaswani et al., arXiv:1706.03762)."""

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        x = self.attention_norm(self.residual(x, self.attention(x, going)))
        branch, loss = self.feed_forward(x)
        return self.feed_forward_norm(self.residual(x, branch)), loss


class Sandwich(PreNorm):
    """`x + norm(f(norm(x)))` (Ding et al., arXiv:2105.13290)."""

    def __init__(self, shape: Shape, arch: Arch, how: Parametrization) -> None:
        super().__init__(shape, arch, how)
        self.attention_end_norm = norm_of(shape, arch)
        self.feed_forward_end_norm = norm_of(shape, arch)

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        x = self.residual(x, self.attention_end_norm(self.attention(self.attention_norm(x), going)))
        branch, loss = self.feed_forward(self.feed_forward_norm(x))
        return self.residual(x, self.feed_forward_end_norm(branch)), loss


class Parallel(nn.Module):
    """`x + attention(norm(x)) + feed_forward(norm(x))`, of one norm (Wang & Komatsuzaki 2021, GPT-J)."""

    def __init__(self, shape: Shape, arch: Arch, how: Parametrization) -> None:
        super().__init__()
        self.norm = norm_of(shape, arch)
        self.attention = Attention(shape, arch, how.attention_scale)
        self.feed_forward = feed_forward(shape, arch)
        self.residual = Residual(arch.dropout_residual, how.branch_multiplier)

    def forward(self, x: Tensor, going: ForwardPass) -> Result:
        normed = self.norm(x)
        x = self.residual(x, self.attention(normed, going))
        branch, loss = self.feed_forward(normed)
        return self.residual(x, branch), loss


Block = PreNorm | Parallel
BLOCKS: dict[str, type[PreNorm]] = {"pre": PreNorm, "post": PostNorm, "sandwich": Sandwich}


def block_of(shape: Shape, arch: Arch, how: Parametrization) -> Block:
    """One block of the configuration."""
    kind: type[Block] = Parallel if arch.parallel_blocks else BLOCKS[arch.norm_position]
    return kind(shape, arch, how)
