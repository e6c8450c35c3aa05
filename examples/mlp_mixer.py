"""A model of one's own: an MLP-mixer (Tolstikhin et al., arXiv:2105.01601) of earlier positions.

python experiments.py plugins=[examples/mlp_mixer.py] arch=mixer model=32d own.mixer.expansion=4
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from highwater import option, register


@dataclass
class MixerOptions:
    expansion: int = option(4, "hidden width of the channel MLP / d_model", at_least=1)


class Block(nn.Module):
    def __init__(self, width: int, seq_len: int, hidden: int) -> None:
        super().__init__()
        self.norm_tokens, self.norm_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Parameter(torch.randn(seq_len, seq_len) / seq_len)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seq = x.shape[1]
        x = x + torch.tril(self.tokens)[:seq, :seq] @ self.norm_tokens(x)  # (seq, seq) @ (batch, seq, width)
        return x + self.down(F.gelu(self.up(self.norm_channels(x))))


@register.model("mixer", options=MixerOptions)
class Mixer(nn.Module):
    """input_ids int64 (batch, seq) -> hidden states (batch, seq, d_model), which `head` makes logits of."""

    def __init__(self, options: MixerOptions, size, vocab_size: int, seq_len: int) -> None:
        super().__init__()
        width = size.d_model
        self.embedding = nn.Embedding(vocab_size, width)
        self.blocks = nn.Sequential(
            *(Block(width, seq_len, options.expansion * width) for _ in range(size.n_layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size, bias=False)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(self.embedding(input_ids)))
