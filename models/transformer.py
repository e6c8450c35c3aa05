"""The decoder-only transformer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from conf.schema import Arch, Model
from models.attention import Attention, Documents, documents_of
from models.feedforward import FEED_FORWARDS
from models.initialization import initialize
from models.layers import Embedding, Linear
from models.norms import NORMS
from models.parametrization import Scales
from models.positions import POSITIONS, Positions
from models.shape import Shape, resolve_shape


class Block(nn.Module):
    """Attention, then feed-forward, each added to the residual stream (batch, seq, d_model).

    pre: `x + f(norm(x))` (Radford et al. 2019, GPT-2); post: `norm(x + f(x))` (Vaswani et al.,
    arXiv:1706.03762).
    """

    def __init__(self, shape: Shape, arch: Arch) -> None:
        super().__init__()
        self.attention_norm = NORMS[arch.norm](shape.d_model, arch.norm_eps)
        self.attention = Attention(shape)
        self.feed_forward_norm = NORMS[arch.norm](shape.d_model, arch.norm_eps)
        self.feed_forward = FEED_FORWARDS[arch.activation](shape.d_model, shape.ffn_hidden)
        self.pre_norm = arch.norm_position == "pre"

    def forward(self, x: Tensor, positions: Positions, documents: Documents | None = None) -> Tensor:
        if self.pre_norm:
            x = x + self.attention(self.attention_norm(x), positions, documents)
            return x + self.feed_forward(self.feed_forward_norm(x))
        x = self.attention_norm(x + self.attention(x, positions, documents))
        return self.feed_forward_norm(x + self.feed_forward(x))


class LanguageModel(nn.Module):
    """Token ids to hidden states; the loss multiplies these with `output_weight` (`models.lm_loss`).

    activation_checkpointing: keep only the input of each block and compute the block again in the
        backward pass (Chen et al., arXiv:1604.06174). Losses and gradients are the same, bit for bit.
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
        self.max_positions = max_positions
        self.activation_checkpointing = False
        self.scales: dict[str, Scales] = {}
        self.embedding = Embedding(vocab_size, shape.d_model)
        self.positions = POSITIONS[arch.positions](shape, max_positions, arch.rope_theta)
        self.blocks = nn.ModuleList(Block(shape, arch) for _ in range(shape.n_layers))
        # A post-norm block ends with a norm already.
        pre_norm = arch.norm_position == "pre"
        self.final_norm = NORMS[arch.norm](shape.d_model, arch.norm_eps) if pre_norm else nn.Identity()
        self.head = None if arch.tied_head else Linear(shape.d_model, vocab_size)
        initialize(self, arch.init_std, shape.n_layers, generator)

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
        if input_ids.shape[1] > self.max_positions:
            raise ValueError(
                f"a sequence of {input_ids.shape[1]} tokens in a model of {self.max_positions} positions"
            )
        documents = documents_of(position_ids) if position_ids is not None else None
        x = self.positions.embed(self.embedding(input_ids), position_ids)
        for block in self.blocks:
            if self.activation_checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, self.positions, documents, use_reentrant=False)
            else:
                x = block(x, self.positions, documents)
        return self.final_norm(x)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Ids (batch, seq) -> logits (batch, seq, vocab), all of them: for few tokens, not for training."""
        return F.linear(self.hidden(input_ids), self.output_weight)


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
