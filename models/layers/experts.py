"""A mixture of experts: feed-forward parts side by side, of which each token goes through few."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from conf.schema import Arch
from models.layers.basic import ExpertLinear, Linear
from models.options.activations import activation_costs
from models.options.shape import Shape


class Experts(nn.Module):
    """`sum_i g_i(x) expert_i(x)` over the k experts that a router likes best (Shazeer et al., 1701.06538).

    The weights g are the softmax over the chosen k, as in Mixtral (arXiv:2401.04088). No token is dropped.
    """

    def __init__(self, shape: Shape, arch: Arch, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        assert arch.n_experts is not None
        self.per_token = arch.experts_per_token
        self.balance_loss = arch.balance_loss
        self.balance_is_of_sequences = arch.balance_over == "sequence"
        parts = (shape.ffn_hidden,) * (activation_costs(arch.activation).matrices - 1)
        self.router = Linear(shape.d_model, arch.n_experts)
        self.input = ExpertLinear(arch.n_experts, shape.d_model, sum(parts), parts=parts)
        self.output = ExpertLinear(arch.n_experts, shape.ffn_hidden, shape.d_model)
        self.activation = activation

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(batch, seq, d_model) -> the same; and in training the loss that keeps experts in balance.

        That loss is fp32 (batch,), or a scalar of all tokens (arch.balance_over).
        """
        tokens = x.flatten(0, -2)
        scores = self.router(tokens).float()
        best, chosen = scores.topk(self.per_token, dim=-1)
        weights = best.softmax(dim=-1).to(x.dtype)
        loss = None
        if self.balance_loss and self.training and torch.is_grad_enabled():
            shape = x.shape[:-1] if self.balance_is_of_sequences else (len(tokens),)
            loss = self.balance_loss * balance(scores.view(*shape, -1), chosen.view(*shape, -1))
        # Pairs of token and place among its k, those of one expert next to each other.
        sorted_experts, order = chosen.flatten().sort(stable=True)
        experts = torch.arange(scores.shape[-1], device=x.device)
        ends = torch.searchsorted(sorted_experts, experts, right=True, out_int32=True)
        found = self._of_sorted(tokens[order // self.per_token], ends)
        weighted = found * weights.flatten()[order].unsqueeze(1)
        # Back in the order of tokens, so that the k results of each are summed in the order of the router.
        return weighted[order.argsort()].view(len(tokens), self.per_token, -1).sum(1).view_as(x), loss

    def _of_sorted(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """Results of tokens (pairs, d_model) that are sorted by expert. ends: int32 (experts,)."""
        if has_grouped_products(tokens, (tokens.shape[1], self.output.weight.shape[2])):
            # Called as modules, whose hooks gather the parameters of FSDP.
            found: Tensor = self.output(self.activation(self.input(tokens, ends)), ends)
            return found
        # The sizes are read by the host: on a GPU that waits for the device.
        sizes = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()
        return torch.cat(self.output([self.activation(x) for x in self.input(tokens.split(sizes))]))


def has_grouped_products(x: Tensor, widths: Sequence[int]) -> bool:
    """Whether torch has a kernel for products of groups of rows whose sizes only the device knows.

    It is for bf16 on compute capability 9 and 10, and for widths that are a multiple of 16 bytes. Elsewhere
    torch's own fallback asks the device for the sizes in every product.
    """
    is_bf16 = torch.bfloat16 == (
        torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    )
    return (
        x.is_cuda
        and is_bf16
        and torch.cuda.get_device_capability(x.device)[0] in (9, 10)
        and all(width % 8 == 0 for width in widths)
    )


def balance(scores: Tensor, chosen: Tensor) -> Tensor:
    """`n sum_i f_i P_i`: f the shares of the choices, P the means of the router's probabilities.

    1 where experts are used equally (Fedus et al., arXiv:2101.03961, section 2.2).

    Args:
        scores: fp32 (..., tokens, n).
        chosen: int64 (..., tokens, k).

    Returns:
        fp32 (...).
    """
    n = scores.shape[-1]
    shares = torch.nn.functional.one_hot(chosen, n).float().mean((-3, -2))
    return n * (shares * scores.softmax(dim=-1).mean(-2)).sum(-1)
