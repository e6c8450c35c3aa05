"""Cross-entropy of a linear head on a CPU, in chunks of tokens, with the gradients computed on the way.

The idea is that of Cut Your Losses (Wijmans et al., arXiv:2411.09009) and of Liger's fused linear
cross-entropy (Hsu et al., arXiv:2410.10989), in plain torch: once the logits of a chunk are there,
so is their gradient, and only its products with the weight and with the hidden states are kept.

A chunk goes through the vocabulary in tiles, so that the softmax finds in the cache what the product has
written; some tiles are one batched product, of which each thread has its own. Each tile has a softmax of
its own; what that lacks of the whole one is a factor for each token (the online softmax of Milakov and
Gimelshein, arXiv:1805.02867), and the small operands of the products take it: states (tokens, d), not logits
(tokens, vocab).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable

from models.loss.loss_chunk import TILES_AT_ONCE, tile_width

TURNED_WIDTH = 64
"""States so wide at most have their gradient of the weight added up transposed; what it saves at 128 is no
more than turning it back costs.
"""

MOST_TIMES = 1e30
"""A sum of exponents is told by what one of them is of it, down to a share that fp32 holds in full; where it
is less, the sum is computed anew.
"""


@dataclass(frozen=True)
class Chunks:
    """How it is computed.

    chunk: tokens at once. ignored: a label. dtype: of the three products. with_gradients: false where
    autograd is off. softcap, z_loss: as of `models.loss.lm_loss`.
    """

    chunk: int
    ignored: int
    dtype: torch.dtype
    with_gradients: bool
    softcap: float | None = None
    z_loss: float = 0.0


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of the losses of all tokens: a scalar in fp32.

    Of `apply`: hidden (tokens, d), weight (vocab, d), bias (vocab,) or None, labels int64 (tokens,),
    how, of_tokens (fp32 (tokens,) that gets the loss of each, or None). Softmax, loss and the sums of the
    gradients of weight and bias are in fp32.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        how: Chunks,
        of_tokens: Tensor | None = None,
    ) -> Tensor:
        for_hidden, for_weight, for_bias = (how.with_gradients and need for need in ctx.needs_input_grad[:3])
        tiles = Tiles.of(weight.to(how.dtype), bias, tile_width(len(weight), how.chunk))
        grad_hidden = torch.empty_like(hidden) if for_hidden else None
        of_weight = WeightGradient(weight, tiles, how.dtype) if for_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if for_bias and bias is not None else None
        logits_of_chunk = hidden.new_empty(how.chunk * len(weight), dtype=torch.float32)
        total = hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(labels), how.chunk):
            part = slice(start, start + how.chunk)
            states = hidden[part].to(how.dtype)
            counts = labels[part] != how.ignored
            targets = labels[part].where(counts, 0)
            shares = _shares(states, tiles, targets, how.softcap, logits_of_chunk)
            log_z = shares.log_z.logsumexp(0)
            losses = (log_z - shares.of_target).where(counts, 0.0)
            total += losses.sum()
            if of_tokens is not None:
                of_tokens[part] = losses
            if not (for_hidden or for_weight or for_bias):
                continue

            # Gradient of the logits: softmax - one-hot; 0 where the label is ignored. That of log(Z)^2 is
            # 2 log(Z) softmax.
            of_softmax, of_one_hot = counts.float(), counts.float()
            if how.z_loss:
                of_softmax = of_softmax * (1 + 2 * how.z_loss * log_z)
            if how.softcap is not None:
                of_one_hot = of_one_hot * (1 - (shares.of_target / how.softcap).square())
            grad_states = None if grad_hidden is None else -of_one_hot.unsqueeze(1) * tiles.weight[targets]
            if of_weight is not None:
                of_weight.add_rows(targets, -of_one_hot, states)
            if grad_bias is not None:
                grad_bias.index_add_(0, targets, -of_one_hot)
            factors = (shares.log_z - log_z).exp_().mul_(of_softmax).unsqueeze(2)
            for n, (group, exponents) in enumerate(zip(tiles.groups, shares.exponents, strict=True)):
                of_group = factors[group.tiles]
                if grad_bias is not None:
                    grad_bias[group.columns] += torch.bmm(exponents.mT, of_group).flatten()
                exponents = exponents.to(how.dtype)
                if grad_states is not None:
                    grad_states += (torch.bmm(exponents, group.weights) * of_group).sum(0)
                if of_weight is not None:
                    of_weight.add_product(n, exponents, states * of_group)
            if grad_hidden is not None and grad_states is not None:
                grad_hidden[part] = grad_states
        ctx.save_for_backward(
            grad_hidden, None if of_weight is None else of_weight.whole(logits_of_chunk), grad_bias
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        # In place, so that no second copy of a (vocab, d) matrix exists; a second backward pass through
        # the same loss is refused by autograd, which sees that a saved tensor was changed.
        grads = [None if saved is None else saved.mul_(grad_total) for saved in ctx.saved_tensors]
        return (*grads, None, None, None)


class Group(NamedTuple):
    """Tiles of one batched product: which of all, their columns of the vocabulary, and what belongs to these.

    weights: (tiles, width, d). biases: (tiles, 1, width).
    """

    tiles: slice
    columns: slice
    weights: Tensor
    biases: Tensor | None


class Tiles(NamedTuple):
    """The vocabulary in parts of one width, the last of what is left.

    weight: (vocab, d), whole. bias: (vocab,). starts, ends: int64 (tiles, 1), of the columns of each.
    """

    weight: Tensor
    bias: Tensor | None
    groups: list[Group]
    starts: Tensor
    ends: Tensor

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, width: int) -> Tiles:
        vocab_size, at_once = len(weight), TILES_AT_ONCE * width
        widths = [(TILES_AT_ONCE, width)] * (vocab_size // at_once)
        widths += [(1, vocab_size % at_once)] if vocab_size % at_once else []
        groups: list[Group] = []
        starts: list[int] = []
        column = 0
        for number, wide in widths:
            columns = slice(column, column + number * wide)
            groups.append(
                Group(
                    slice(len(starts), len(starts) + number),
                    columns,
                    weight[columns].view(number, wide, -1),
                    None if bias is None else bias[columns].view(number, 1, wide),
                )
            )
            starts += range(columns.start, columns.stop, wide)
            column = columns.stop
        borders = torch.tensor([*starts, vocab_size]).unsqueeze(1)
        return cls(weight, bias, groups, borders[:-1], borders[1:])


class WeightGradient:
    """Of (vocab, d), fp32, to which chunks are added.

    Of narrow states it adds up each tile transposed, (d, columns), in the memory that it has in the end:
    BLAS takes a third less for that product at 32 wide, a fifth less at 64.
    """

    def __init__(self, weight: Tensor, tiles: Tiles, dtype: torch.dtype) -> None:
        """dtype: of the products."""
        self._total = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device)
        self._dtype = dtype
        self._parts = [self._total[group.columns].view(group.weights.shape) for group in tiles.groups]
        self._is_turned = dtype == torch.float32 and weight.shape[1] <= TURNED_WIDTH
        self._sums = [part.view(part.mT.shape) if self._is_turned else part for part in self._parts]
        self._rows: list[tuple[Tensor, Tensor, Tensor]] = []

    def add_product(self, n: int, exponents: Tensor, states: Tensor) -> None:
        """Of group n: `exponents.mT @ states`, exponents (tiles, tokens, width), states fp32 (tiles, tokens,
        d).
        """
        if self._is_turned:
            self._sums[n].baddbmm_(states.mT, exponents)
        elif self._dtype == torch.float32:
            self._sums[n].baddbmm_(exponents.mT, states)
        else:
            self._sums[n] += torch.bmm(exponents.mT, states.to(self._dtype))

    def add_rows(self, targets: Tensor, factors: Tensor, states: Tensor) -> None:
        """To the row of each target, its states times its factor."""
        if self._is_turned:
            self._rows.append((targets, factors, states))  # views of the states of all tokens
        else:
            self._add_rows(targets, factors, states)

    def whole(self, room: Tensor) -> Tensor:
        """The sum; nothing is to be added after it. room: memory that has been used, fp32, of any size."""
        if self._is_turned:
            for part, turned in zip(self._parts, self._sums, strict=True):
                held = room[: part.numel()] if part.numel() <= len(room) else part.new_empty(part.numel())
                part.copy_(held.view(part.shape).copy_(turned.mT))
            for rows in self._rows:
                self._add_rows(*rows)
        return self._total

    def _add_rows(self, targets: Tensor, factors: Tensor, states: Tensor) -> None:
        self._total.index_add_(0, targets, factors.unsqueeze(1) * states)


class Shares(NamedTuple):
    """What the logits of each tile have to do with those of the chunk.

    exponents: (tiles, tokens, width) of each group, of which the softmax of the whole chunk is
    `exponents * exp(log_z - log Z)`; times the slopes of the soft-cap. log_z: (tiles, tokens), that of each
    tile alone. of_target: (tokens,), the logit of the target.
    """

    exponents: list[Tensor]
    log_z: Tensor
    of_target: Tensor


def _shares(states: Tensor, tiles: Tiles, targets: Tensor, softcap: float | None, out: Tensor) -> Shares:
    """What can be is computed for all tiles at once: those of a small model are so quick that calls count."""
    tokens = len(states)
    is_here = (targets >= tiles.starts) & (targets < tiles.ends)
    places = (targets.maximum(tiles.starts).minimum(tiles.ends - 1) - tiles.starts).unsqueeze(2)
    size = places.shape
    of_target, sums = out.new_empty(size), out.new_empty(size)
    exponents = []
    for group in tiles.groups:
        here, columns = group.tiles, group.columns
        logits = out[tokens * columns.start : tokens * columns.stop].view(len(group.weights), tokens, -1)
        _products(states, group.weights, group.biases, logits)
        slopes = None if softcap is None else _cap(logits, softcap)
        torch.gather(logits, 2, places[here], out=of_target[here])
        _softmax(logits, places[here], sums[here])
        exponents.append(logits if slopes is None else logits.mul_(slopes))
    log_z = (of_target + sums.log()).squeeze_(2)
    for n in _lost(sums):
        torch.logsumexp(_logits_of(n, states, tiles, softcap), 1, out=log_z[n])
    return Shares(exponents, log_z, of_target.squeeze(2).where(is_here, 0.0).sum(0))


def _lost(sums: Tensor) -> list[int]:
    """Tiles in which a sum is too large to be told so; of tensors without content none."""
    if isinstance(sums, FakeTensor):
        return []
    found: list[int] = (sums > MOST_TIMES).flatten(1).any(1).nonzero().flatten().tolist()
    return found


def _logits_of(n: int, states: Tensor, tiles: Tiles, softcap: float | None) -> Tensor:
    """(tokens, width) of one tile."""
    columns = slice(int(tiles.starts[n]), int(tiles.ends[n]))
    weights, bias = tiles.weight[columns].unsqueeze(0), None if tiles.bias is None else tiles.bias[columns]
    logits = states.new_empty((1, len(states), weights.shape[1]), dtype=torch.float32)
    _products(states, weights, bias, logits)
    if softcap is not None:
        _cap(logits, softcap)
    return logits.squeeze(0)


def _products(states: Tensor, weights: Tensor, biases: Tensor | None, out: Tensor) -> Tensor:
    """Logits in fp32, in `out`; states and weights are of the type in which they are multiplied."""
    states = states.expand(len(weights), *states.shape)
    if states.dtype == torch.float32:
        torch.bmm(states, weights.mT, out=out)
    else:
        out.copy_(torch.bmm(states, weights.mT))
    return out if biases is None else out.add_(biases)


def _softmax(logits: Tensor, place: Tensor, sums: Tensor) -> None:
    """Softmax in place; of each row the sum of the exponents of what its logits are above the one at `place`:
    infinite where that has no probability in fp32.

    torch's kernel takes row by row, which stays in the cache, where one operation after the other reads and
    writes the whole tile (benchmarks/loss.py). It does not return the sum; any probability gives it.
    """
    torch.softmax(logits, -1, out=logits)
    torch.gather(logits, -1, place, out=sums).reciprocal_()


def _cap(logits: Tensor, softcap: float) -> Tensor:
    """`softcap * tanh(logits / softcap)` in place; returns its derivative, of the same size."""
    tanh = logits.div_(softcap).tanh_()
    slopes = tanh.square().neg_().add_(1)
    logits.mul_(softcap)
    return slopes
