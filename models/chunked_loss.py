"""Cross-entropy of a linear head in chunks of tokens, with the gradients computed on the way.

The idea is that of Cut Your Losses (Wijmans et al., arXiv:2411.09009) and of Liger's fused linear
cross-entropy (Hsu et al., arXiv:2410.10989), in plain torch: once the logits of a chunk are there,
so is their gradient, and only its products with the weight and with the hidden states are kept.

On a CPU a chunk goes through the vocabulary in tiles, so that the softmax finds in the cache what the product
has written. Each tile has a softmax of its own; what that lacks of the whole one is a factor for each token
(the online softmax of Milakov and Gimelshein, arXiv:1805.02867), and the small operands of the products take
it: states (tokens, d), not logits (tokens, vocab).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.loss_chunk import tile_width


@dataclass(frozen=True)
class Chunks:
    """How it is computed.

    chunk: tokens at once. ignored: a label. dtype: of the three products. with_gradients: false where
    autograd is off. softcap, z_loss: as of `models.lm_loss`.
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
        grad_hidden = torch.empty_like(hidden) if for_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=torch.float32) if for_weight else None
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if for_bias and bias is not None else None
        weight = weight.to(how.dtype)
        tiles = _tiles(len(weight), tile_width(len(weight), how.chunk) if hidden.is_cpu else len(weight))
        logits_of_chunk = hidden.new_empty(how.chunk * len(weight), dtype=torch.float32)
        total = hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(labels), how.chunk):
            part = slice(start, start + how.chunk)
            states = hidden[part].to(how.dtype)
            counts = labels[part] != how.ignored
            targets = labels[part].where(counts, 0)
            shares = [
                _share(states, weight, bias, targets, how.softcap, columns, logits_of_chunk)
                for columns in tiles
            ]
            log_z = torch.stack([share.log_z for share in shares]).logsumexp(0)
            of_target = torch.stack([share.of_target for share in shares]).sum(0)
            losses = (log_z - of_target).where(counts, 0.0)
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
                of_one_hot = of_one_hot * (1 - (of_target / how.softcap).square())
            grad_states = None if grad_hidden is None else -of_one_hot.unsqueeze(1) * weight[targets]
            if grad_weight is not None:
                grad_weight.index_add_(0, targets, -of_one_hot.unsqueeze(1) * states)
            if grad_bias is not None:
                grad_bias.index_add_(0, targets, -of_one_hot)
            for share in shares:
                factors = (share.shift - log_z).exp_().mul_(of_softmax)
                exponents, columns = share.exponents.to(how.dtype), share.columns
                if grad_bias is not None:
                    grad_bias[columns] += share.exponents.T.mv(factors)
                if grad_states is not None:
                    grad_states.addcmul_(exponents @ weight[columns], factors.unsqueeze(1))
                if grad_weight is not None:
                    _add_product(
                        grad_weight[columns], exponents.T, (states * factors.unsqueeze(1)).to(how.dtype)
                    )
            if grad_hidden is not None and grad_states is not None:
                grad_hidden[part] = grad_states
        ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        # In place, so that no second copy of a (vocab, d) matrix exists; a second backward pass through
        # the same loss is refused by autograd, which sees that a saved tensor was changed.
        grads = [None if saved is None else saved.mul_(grad_total) for saved in ctx.saved_tensors]
        return (*grads, None, None, None)


def _tiles(vocab_size: int, width: int) -> list[slice]:
    return [slice(start, min(start + width, vocab_size)) for start in range(0, vocab_size, width)]


class Share(NamedTuple):
    """What the logits of a tile have to do with those of a chunk.

    columns: of the vocabulary. exponents: (tokens, columns), of which the softmax of the whole chunk is
    `exponents * exp(shift - log Z)`; times the slopes of the soft-cap. shift, log_z: (tokens,), log_z of this
    tile alone. of_target: (tokens,), the logit of the target, 0 where it is in another tile.
    """

    columns: slice
    exponents: Tensor
    shift: Tensor
    log_z: Tensor
    of_target: Tensor


def _share(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    softcap: float | None,
    columns: slice,
    out: Tensor,
) -> Share:
    tokens, width = len(states), columns.stop - columns.start
    logits = out[tokens * columns.start : tokens * columns.stop].view(tokens, width)
    _products(states, weight[columns], None if bias is None else bias[columns], logits)
    slopes = None if softcap is None else _cap(logits, softcap)
    places = targets - columns.start
    is_here = (places >= 0) & (places < width)
    of_target = logits.gather(1, places.clamp_(0, width - 1).unsqueeze(1)).squeeze(1).where(is_here, 0.0)
    shift, log_z = _softmax(logits) if logits.is_cpu else _exponents(logits)
    if slopes is not None:
        logits.mul_(slopes)
    return Share(columns, logits, shift, log_z, of_target)


def _products(states: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
    """Logits in fp32, in `out`; states and weight are of the type in which they are multiplied."""
    if states.dtype == torch.float32:
        torch.mm(states, weight.T, out=out)
    else:
        out.copy_(states @ weight.T)
    return out if bias is None else out.add_(bias)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    if right.dtype == torch.float32:
        total.addmm_(left, right)
    else:
        total += left @ right


def _softmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax in place; returns log(Z), twice: it is what the exponents lack.

    On a CPU torch's kernel takes row by row, which stays in its cache, where one operation after the other
    reads and writes the whole tile (benchmarks/loss.py). It does not tell Z, which the largest logit does.
    """
    largest = logits.amax(1)
    torch.softmax(logits, 1, out=logits)
    log_z = largest - logits.amax(1).log_()
    return log_z, log_z


def _exponents(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Exponents of logits less the largest of their row, in place; returns that and log(Z)."""
    largest = logits.amax(1)
    sums = logits.sub_(largest.unsqueeze(1)).exp_().sum(1)
    return largest, largest + sums.log_()


def _cap(logits: Tensor, softcap: float) -> Tensor:
    """`softcap * tanh(logits / softcap)` in place; returns its derivative, of the same size."""
    tanh = logits.div_(softcap).tanh_()
    slopes = tanh.square().neg_().add_(1)
    logits.mul_(softcap)
    return slopes
