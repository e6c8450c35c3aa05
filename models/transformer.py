"""Language models: embedding, blocks of a family, head."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conf.schema import Arch, Model
from models.families import FAMILIES
from models.initialization import initialize
from models.layers.basic import Embedding, Linear
from models.layers.blocks import norm_of
from models.layers.dropout import dropout
from models.layers.forward_context import ForwardPass, begin
from models.layers.positions import POSITIONS
from models.loss.lm_loss import capped
from models.options.family_keys import RECURRENT
from models.options.parameter_roles import roles_of
from models.options.parametrization import parametrization
from models.options.recomputed import recomputed_blocks
from models.options.recurrent_carry import RowMemory
from models.options.shape import Shape, final_norm, positions_of, resolve_shape


class LanguageModel(nn.Module):
    """Token ids to hidden states; the loss multiplies these with `output_weight` (`models.loss.lm_loss`).

    activation_checkpointing: keep only the input of each block, or of the first so many, and compute these
        again in the backward pass (Chen et al., arXiv:1604.06174). Losses and gradients are the same, bit for
        bit.
    memory: of a recurrent model, states that the rows of the next pass begin with; None: zeros.
    scales: of the optimizer's settings by parameter name; one that is not named has `STANDARD`.
    """

    def __init__(
        self,
        shape: Shape,
        arch: Arch,
        vocab_size: int,
        max_positions: int,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        how = parametrization(shape, arch)
        self.max_positions, self.window = max_positions, arch.window
        self.logit_softcap, self.z_loss = arch.logit_softcap, arch.z_loss
        self.output_multiplier = how.output_multiplier
        self.activation_checkpointing: bool | int = False
        self.memory: RowMemory | None = None
        self.embedding = Embedding(vocab_size, shape.d_model)
        self.attends = arch.family not in RECURRENT
        self.positions = POSITIONS[positions_of(arch)](shape, arch, max_positions)
        self.dropout = dropout(arch.dropout_embedding, locked=arch.dropout_locked)
        self.blocks = nn.ModuleList(FAMILIES[arch.family](shape, arch, how) for _ in range(shape.n_layers))
        self.final_norm = norm_of(shape, arch, final_norm(arch))
        self.head = None if arch.tied_head else Linear(shape.d_model, vocab_size)
        self.head_bias = nn.Parameter(torch.zeros(vocab_size)) if arch.head_bias else None
        self.scales = how.scales(roles_of(self))
        initialize(self, shape, arch, how, generator)

    @property
    def output_weight(self) -> Tensor:
        """The output matrix (vocab, d_model): the embedding matrix itself where the head is tied."""
        return self.embedding.weight if self.head is None else self.head.weight

    def hidden(self, input_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Ids int64 (batch, seq) -> states (batch, seq, d_model), of which position t predicts token t + 1.

        position_ids: int64 (batch, seq), 0 where a document begins: then none sees another. None: each row
        is one.

        Raises:
            ValueError: seq is more than max_positions.
        """
        return self.states(input_ids, position_ids)[0]

    def states(self, input_ids: Tensor, position_ids: Tensor | None = None) -> tuple[Tensor, list[Tensor]]:
        """As `hidden`, and what parts of the model want minimized too, in training: scalars, or (batch,)."""
        if input_ids.shape[1] > self.max_positions:
            raise ValueError(
                f"a sequence of {input_ids.shape[1]} tokens in a model of {self.max_positions} positions"
            )
        going = self._begin(input_ids, position_ids)
        x = self.dropout(self.positions.embed(self.embedding(input_ids), position_ids))
        losses = []
        again = recomputed_blocks(self.activation_checkpointing, len(self.blocks))
        for number, block in enumerate(self.blocks):
            if self.memory is not None:
                before, behind = self.memory.before[number], self.memory.behind[number]
                going = replace(going, before=before, behind=behind)
            if number < again and torch.is_grad_enabled():
                x, loss = checkpoint(block, x, going, use_reentrant=False)
            else:
                x, loss = block(x, going)
            if loss is not None:
                losses.append(loss)
        x = self.final_norm(x)
        return x if self.output_multiplier == 1.0 else self.output_multiplier * x, losses

    def _begin(self, input_ids: Tensor, position_ids: Tensor | None) -> ForwardPass:
        if not self.attends:  # nobody to mask
            return ForwardPass(self.positions, position_ids, None)
        return begin(self.positions, input_ids.shape[1], position_ids, self.window, input_ids.device)

    def logits(self, states: Tensor) -> Tensor:
        """States (..., d_model) -> logits (..., vocab)."""
        return capped(F.linear(states, self.output_weight, self.head_bias), self.logit_softcap)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Ids (batch, seq) -> logits (batch, seq, vocab), all of them: for few tokens, not for training."""
        return self.logits(self.hidden(input_ids))


def build_model(
    model: Model,
    arch: Arch,
    vocab_size: int,
    max_positions: int,
    generator: torch.Generator | None = None,
) -> LanguageModel:
    """Build and initialize the model of a configuration, on the CPU and in fp32.

    Move it to its device afterwards: then a seed (of `generator`, or of torch.manual_seed before
    this call) gives the same weights wherever the run goes on.

    Raises:
        UserError: as `resolve_shape`.
    """
    return LanguageModel(resolve_shape(model, arch), arch, vocab_size, max_positions, generator)
