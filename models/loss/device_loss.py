"""Cross-entropy of linear heads on a GPU, in chunks of tokens; the forward pass computes the gradients too.

A chunk costs one product for its logits, one kernel that turns the logits into their gradients in place, and
one product for each gradient that is wanted (as in Liger's fused linear cross-entropy, Hsu et al.,
arXiv:2410.10989). The kernel is Triton's (`models.loss.loss_kernel`), or torch's operations replace it.
Nothing waits for the device, and shapes are static, so that a step can be captured as a CUDA graph.

The columns of the logits are padded with those of a zero weight (`padded_vocab`): their gradients are 0.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.function import once_differentiable

from models.loss.chunked_loss import Chunks
from models.loss.loss_chunk import has_triton, padded_vocab

log = logging.getLogger("models")

_FP16_SHARE = 2.0**-8
"""By which states are multiplied before a product in fp16 that sums over tokens: the sums of 65,536 tokens
are above the largest number of fp16 otherwise, whatever the loss scale."""


class DeviceCrossEntropy(torch.autograd.Function):
    """Sum of the losses of each of several heads, fp32 (heads,)."""

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
        """Compute the losses, and the gradients that are wanted.

        Args:
            hidden: (heads, tokens, d).
            weight: (heads, vocab, d).
            bias: (heads, vocab), or None.
            labels: int64 (heads, tokens).
            how: `chunk` counts the tokens of all heads.
            of_tokens: fp32 (heads, tokens), gets the loss of each token.
        """
        wants = [how.with_gradients and need for need in ctx.needs_input_grad[:3]]
        with torch.autocast(hidden.device.type, enabled=False):
            total, *gradients = _losses(hidden, weight, bias, labels, how, of_tokens, wants)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        # In place: a second copy of a (vocab, d) matrix does not exist. Autograd refuses a second backward
        # pass, because a saved tensor was changed.
        grads = [
            None if saved is None else saved.mul_(grad_total.view(-1, *[1] * (saved.ndim - 1)))
            for saved in ctx.saved_tensors
        ]
        return (*grads, None, None, None)


def _losses(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    how: Chunks,
    of_tokens: Tensor | None,
    wants: list[bool],
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Sum of the losses (heads,), and the gradients of hidden, weight and bias; None for those not wanted."""
    heads, tokens, _ = hidden.shape
    vocab_size = weight.shape[1]
    weights = _padded(weight, how.dtype)
    biases = None if bias is None else _padded(bias.unsqueeze(2), how.dtype).mT
    size = min(tokens, max(1, how.chunk // heads))
    memory = weights.new_empty(heads * size * weights.shape[1])
    losses = hidden.new_empty(labels.shape, dtype=torch.float32) if of_tokens is None else of_tokens
    grad_hidden = torch.empty_like(hidden) if wants[0] else None
    grad_weight: Tensor | None = None
    grad_bias: Tensor | None = None
    for first in range(0, tokens, size):
        part = slice(first, first + size)
        states = hidden[:, part].to(how.dtype)
        shape = (heads, states.shape[1], weights.shape[1])
        logits = memory[: heads * states.shape[1] * weights.shape[1]].view(shape)
        if biases is None:
            torch.bmm(states, weights.mT, out=logits)
        else:
            torch.baddbmm(biases, states, weights.mT, out=logits)
        rows = logits.view(-1, weights.shape[1])[:, :vocab_size]
        of_rows = cross_entropy_(rows, labels[:, part].reshape(-1), how, gradient=any(wants))
        losses[:, part] = of_rows.view(shape[:2])
        if grad_hidden is not None:
            grad_hidden[:, part] = torch.bmm(logits, weights)
        if wants[1]:
            summed = states * _FP16_SHARE if how.dtype == torch.float16 else states
            grad_weight = _added(grad_weight, torch.bmm(logits.mT, summed)[:, :vocab_size])
        if wants[2]:
            grad_bias = _added(grad_bias, logits[:, :, :vocab_size].sum(1, dtype=torch.float32))
    if grad_weight is not None and how.dtype == torch.float16:
        grad_weight.div_(_FP16_SHARE)
    return losses.sum(1), grad_hidden, grad_weight, grad_bias


def _padded(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weights (heads, vocab, d) in that type, with rows of zeros up to `padded_vocab`."""
    heads, vocab_size, width = weight.shape
    if padded_vocab(vocab_size) == vocab_size:
        return weight.to(dtype)
    found = weight.new_zeros((heads, padded_vocab(vocab_size), width), dtype=dtype)
    found[:, :vocab_size] = weight
    return found


def _added(total: Tensor | None, more: Tensor) -> Tensor:
    """The sum in fp32, contiguous; in place from the second chunk on."""
    if total is not None:
        return total.add_(more)
    return torch.empty(more.shape, dtype=torch.float32, device=more.device).copy_(more)


def cross_entropy_(logits: Tensor, labels: Tensor, how: Chunks, *, gradient: bool) -> Tensor:
    """Loss of each row of logits, fp32 (rows,), 0 for an ignored label.

    Args:
        logits: (rows, vocab), rows can be further apart than vocab. Overwritten by the gradients of the sum
            of the losses; without `gradient` their content is undefined afterwards.
        labels: int64 (rows,).
        how: the type, the soft-cap and the z-loss.
        gradient: whether gradients are wanted.
    """
    if logits.is_cuda and has_triton() and not _without_triton and not isinstance(logits, FakeTensor):
        try:
            from models.loss import loss_kernel

            return loss_kernel.cross_entropy_(logits, labels, how.ignored, how.softcap, how.z_loss, gradient)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the C compiler or Python's headers that Triton needs are missing
            _without_triton.append(str(error))
            log.warning("Triton cannot build the kernel of the loss, torch computes it, slower: %s", error)
    return _by_operations(logits, labels, how, gradient=gradient)


_without_triton: list[str] = []
"""Why Triton's kernel is not used in this process; empty if it is."""


def _by_operations(logits: Tensor, labels: Tensor, how: Chunks, *, gradient: bool) -> Tensor:
    ignored = labels == how.ignored
    targets = labels.masked_fill(ignored, 0).unsqueeze(1)
    capped = logits if how.softcap is None else (logits.float() / how.softcap).tanh_().mul_(how.softcap)
    log_p = torch.log_softmax(capped, 1, dtype=torch.float32)
    log_p_of_target = log_p.gather(1, targets).squeeze(1)
    losses = log_p_of_target.neg().masked_fill_(ignored, 0.0)
    if not gradient:
        return losses
    one_hot = factor = 1 - ignored.float()
    if how.z_loss:  # the gradient of log(Z)^2 is 2 log(Z) softmax
        log_z = capped.gather(1, targets).squeeze(1) - log_p_of_target
        factor = factor * (1 + 2 * how.z_loss * log_z)
    found = log_p.exp_().mul_(factor.unsqueeze(1)).scatter_add_(1, targets, -one_hot.unsqueeze(1))
    if how.softcap is not None:
        found.mul_(capped.div_(how.softcap).square_().neg_().add_(1))
    logits.copy_(found)
    return losses
