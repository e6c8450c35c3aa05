"""A plain training loop as in nanoGPT, to compare the product's step with.

Pre-norm RMSNorm, rotary positions, SwiGLU, tied head, bf16 autocast, logits of all tokens, fused AdamW,
clipping. Nothing of the product is imported here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(d_model, eps=1e-5), nn.RMSNorm(d_model, eps=1e-5)
        sizes = ((1, 3), (1, 1), (1, 8), (4, 1))
        linear = (nn.Linear(a * d_model, b * d_model, bias=False) for a, b in sizes)
        self.qkv, self.out, self.up, self.down = linear

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: (batch, seq, d_model)."""
        batch, seq, d_model = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq, d_model))
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Gpt(nn.Module):
    def __init__(self, vocab: int, d_model: int, layers: int, heads: int, seq: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, d_model)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(d_model, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(d_model, eps=1e-5)
        half = d_model // heads // 2
        angles = torch.outer(torch.arange(seq).float(), 10000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cos", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sin", angles.sin().bfloat16(), persistent=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Loop:
    """The training loop of one shape; `step()` takes one step and returns its loss on the device.

    kind: eager; compile (model and loss compiled); graph (the whole step is one CUDA graph).
    """

    def __init__(
        self, vocab: int, d_model: int, layers: int, heads: int, batch: int, seq: int, device: str, kind: str
    ) -> None:
        torch.manual_seed(0)
        self.device = device
        self.model = Gpt(vocab, d_model, layers, heads, seq).to(device)
        is_graph = kind == "graph"
        lr = torch.tensor(1e-3, device=device) if is_graph else 1e-3
        how = {"betas": (0.9, 0.95), "weight_decay": 0.1, "fused": True, "capturable": is_graph}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, **how)
        self.batches = [torch.randint(vocab, (batch, seq + 1)) for _ in range(8)]
        if device == "cuda":
            self.batches = [ids.pin_memory() for ids in self.batches]
        self.ids = torch.empty((batch, seq + 1), dtype=torch.int64, device=device)
        self.ids.copy_(self.batches[0])
        self.loss_of = torch.compile(self.model) if kind == "compile" else self.model
        self.number, self.loss = 0, torch.zeros(())
        self.graph: torch.cuda.CUDAGraph | None = None
        if is_graph:
            self._capture()

    def step(self) -> Tensor:
        self.number += 1
        self.ids.copy_(self.batches[self.number % len(self.batches)], non_blocking=True)
        if self.graph is not None:
            self.graph.replay()
            return self.loss
        return self._compute()

    def _compute(self) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.loss_of(self.ids[:, :-1], self.ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        return loss.detach()

    def _capture(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._compute()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self._compute()
