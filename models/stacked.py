"""Several language models of one shape as one: each matrix is a stack, each product a batch of theirs.

Members stand one behind another in the batch: rows k B to (k + 1) B of all states are those of member k. So
attention, positions and residuals are those of `models.transformer`, and only what has parameters is another.
A member stays a whole model, whose parameters are views into the stacks: what its optimizer writes, the stack
has, and what it holds beyond its end is its own. No number of a member is made of another's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.layers.basic import Embedding, Linear
from models.layers.blocks import Residual
from models.layers.dropout import LockedDropout
from models.layers.norms import LayerNorm, RMSNorm
from models.layers.positions import Learned
from models.loss.stacked_loss import stacked_loss
from models.transformer import LanguageModel


class StackedModel(nn.Module):
    """Ids and labels (members * batch, seq) -> the loss of each member, fp32 (members,).

    members: of one shape; from here on their parameters and gradients are views into the stacks, until
    `release`. What they hold and compute is as before.
    """

    def __init__(self, members: Sequence[LanguageModel]) -> None:
        super().__init__()
        first = members[0]
        self.size = len(members)
        self.members = list(members)
        self.generators = [torch.Generator(first.embedding.weight.device) for _ in members]
        self.model = _without_weights(first)
        for name, module in list(self.model.named_modules()):
            make = STACKS.get(type(module))
            if make is not None:
                same = [member.get_submodule(name) for member in members]
                self.model.set_submodule(name, make(same, self.generators))
        if first.head_bias is not None:
            self.model.head_bias = stacked([member.head_bias for member in members])
        self.stacks = list(self.model.parameters())
        self._share_gradients()

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor,
        position_ids: Tensor | None,
        chunk: int,
        reduction: str = "mean",
        of_tokens: Tensor | None = None,
    ) -> Tensor:
        """chunk: tokens of all members together, whose logits exist at once. of_tokens: as of `lm_loss`."""
        model = self.model
        hidden, _ = model.states(input_ids, position_ids)
        return stacked_loss(
            hidden.reshape(self.size, -1, hidden.shape[-1]),
            model.output_weight,
            labels.reshape(self.size, -1),
            chunk,
            reduction,
            None if of_tokens is None else of_tokens.view(self.size, -1),
            bias=model.head_bias,
            softcap=model.logit_softcap,
            z_loss=model.z_loss,
        )

    def begin_step(self, seeds: Sequence[int] | None = None) -> None:
        """Gradients become 0; what is dropped follows from these seeds, one of each member."""
        torch._foreach_zero_(self.gradients)
        for generator, seed in zip(self.generators, seeds or (), strict=bool(seeds)):
            generator.manual_seed(seed)

    @property
    def gradients(self) -> list[Tensor]:
        """(members, ...) of each parameter, in the order of a member's."""
        return [stack.grad for stack in self.stacks if stack.grad is not None]

    def release(self) -> None:
        """Each member has its parameters for itself again, and no gradients."""
        for member in self.members:
            for parameter in member.parameters():
                parameter.data = parameter.data.clone()
                parameter.grad = None

    def _share_gradients(self) -> None:
        """Gradients of the members are views as well, that last: nothing is made anew in a step."""
        for stack in self.stacks:
            stack.grad = torch.zeros_like(stack)
        for number, member in enumerate(self.members):
            for parameter, stack in zip(member.parameters(), self.stacks, strict=True):
                assert stack.grad is not None
                parameter.grad = stack.grad[number]


def stacked(parameters: Sequence[Tensor | None]) -> nn.Parameter:
    """(members, ...) of which each parameter becomes a view."""
    there = [parameter for parameter in parameters if parameter is not None]
    whole = nn.Parameter(torch.stack([parameter.detach() for parameter in there]))
    for number, parameter in enumerate(there):
        parameter.data = whole.data[number]
    return whole


def _without_weights(model: LanguageModel) -> LanguageModel:
    """A copy that shares the tables of positions, and has no parameters of its own."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def _by_member(x: Tensor, members: int) -> Tensor:
    """(members * rows, ...) -> (members, rows, ...)"""
    return x.unflatten(0, (members, -1))


class StackedLinear(nn.Module):
    """`models.layers.basic.Linear` of each: weight (members, outputs, inputs)."""

    def __init__(self, members: Sequence[Linear]) -> None:
        super().__init__()
        self.weight = stacked([member.weight for member in members])
        self.bias = stacked([member.bias for member in members]) if members[0].bias is not None else None

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(len(self.weight), -1, x.shape[-1])
        if self.bias is None:
            found = torch.bmm(rows, self.weight.mT)
        else:
            found = torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight.mT)
        return found.view(*x.shape[:-1], -1)


class StackedEmbedding(nn.Module):
    """`models.layers.basic.Embedding` of each: weight (members, rows, width), looked up as one table."""

    first_rows: Tensor

    def __init__(self, members: Sequence[Embedding]) -> None:
        super().__init__()
        self.weight = stacked([member.weight for member in members])
        count, rows, _ = self.weight.shape
        first_rows = rows * torch.arange(count, device=self.weight.device)
        self.register_buffer("first_rows", first_rows, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        rows = _by_member(ids, len(self.weight)) + self.first_rows.view(-1, *[1] * ids.ndim)
        return F.embedding(rows.flatten(0, 1), self.weight.flatten(0, 1))


class StackedRMSNorm(nn.Module):
    """`models.layers.norms.RMSNorm` of each: weight (members, width)."""

    def __init__(self, members: Sequence[RMSNorm]) -> None:
        super().__init__()
        self.weight = stacked([member.weight for member in members])
        self.width, self.eps = members[0].normalized_shape, members[0].eps

    def forward(self, x: Tensor) -> Tensor:
        normed = _by_member(F.rms_norm(x.float(), self.width, None, self.eps), len(self.weight))
        return (normed * _along(self.weight, normed)).flatten(0, 1)


class StackedLayerNorm(nn.Module):
    """`models.layers.norms.LayerNorm` of each: weight and bias (members, width)."""

    def __init__(self, members: Sequence[LayerNorm]) -> None:
        super().__init__()
        self.weight = stacked([member.weight for member in members])
        self.bias = stacked([member.bias for member in members]) if members[0].bias is not None else None
        self.width, self.eps = members[0].normalized_shape, members[0].eps

    def forward(self, x: Tensor) -> Tensor:
        normed = _by_member(F.layer_norm(x.float(), self.width, None, None, self.eps), len(self.weight))
        found = normed * _along(self.weight, normed)
        return (found if self.bias is None else found + _along(self.bias, normed)).flatten(0, 1)


class StackedLearned(nn.Module):
    """`models.layers.positions.Learned` of each."""

    def __init__(self, members: Sequence[Learned]) -> None:
        super().__init__()
        self.table = StackedEmbedding([member.table for member in members])

    def embed(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is not None:
            return x + self.table(position_ids)
        weight = self.table.weight
        return (_by_member(x, len(weight)) + weight[:, None, : x.shape[1]]).flatten(0, 1)

    def rotate(self, x: Tensor, position_ids: Tensor | None = None) -> Tensor:
        return x

    def slopes(self) -> None:
        return None


def _along(of_members: Tensor, x: Tensor) -> Tensor:
    """(members, width) to be multiplied with (members, ..., width)."""
    return of_members.view(len(of_members), *[1] * (x.ndim - 2), -1)


class StackedDropout(nn.Module):
    """What each member drops is drawn from its own generator, as a model by itself draws it."""

    def __init__(self, share: float, generators: Sequence[torch.Generator], *, locked: bool) -> None:
        super().__init__()
        self.share, self.generators, self.locked = share, generators, locked

    def forward(self, x: Tensor) -> Tensor:
        if not self.share or not self.training:
            return x
        rows = _by_member(x, len(self.generators))
        kept = torch.empty(
            (*rows.shape[:2], 1, rows.shape[3]) if self.locked else rows.shape, device=x.device
        )
        for of_member, generator in zip(kept, self.generators, strict=True):
            of_member.bernoulli_(1 - self.share, generator=generator)
        return (rows * kept.div_(1 - self.share)).flatten(0, 1)


class StackedResidual(nn.Module):
    """`models.layers.blocks.Residual` of each."""

    def __init__(self, members: Sequence[Residual], generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.dropout = StackedDropout(members[0].dropout, generators, locked=members[0].locked)
        self.multiplier = members[0].multiplier

    def forward(self, x: Tensor, branch: Tensor) -> Tensor:
        branch = self.dropout(branch)
        return x + (branch if self.multiplier == 1.0 else self.multiplier * branch)


STACKS: dict[type[nn.Module], Callable[..., nn.Module]] = {
    Linear: lambda members, generators: StackedLinear(members),
    Embedding: lambda members, generators: StackedEmbedding(members),
    RMSNorm: lambda members, generators: StackedRMSNorm(members),
    LayerNorm: lambda members, generators: StackedLayerNorm(members),
    Learned: lambda members, generators: StackedLearned(members),
    nn.Dropout: lambda members, generators: StackedDropout(members[0].p, generators, locked=False),
    LockedDropout: lambda members, generators: StackedDropout(members[0].share, generators, locked=True),
    Residual: StackedResidual,
}
"""What stands for a module in the stack; one that is not named has no parameters and draws nothing."""
