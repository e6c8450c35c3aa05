"""Attention with every mask and sharing of heads, against scores written out."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from conf.schema import Arch, Model
from models import build_model
from models.layers.forward_context import begin
from models.layers.positions import alibi_slopes

SEQ = 24
LENGTHS = [[5, 1, 18], [24], [12, 12]]


def positions_of_documents() -> Tensor:
    return torch.stack([torch.cat([torch.arange(n) for n in row]) for row in LENGTHS])


@pytest.mark.parametrize("with_documents", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"positions": "none"},
        {"positions": "alibi"},
        {"window": 4},
        {"window": 1},
        {"window": SEQ},
        {"positions": "alibi", "window": 5},
        {"n_kv_heads": 2},
        {"n_kv_heads": 1, "window": 6},
        {"qk_norm": True},
        {"bias": "qkv"},
        {"init": "mup"},
        {"rope_fraction": 0.5},
        {"attention_softcap": 2.0},
        {"attention_softcap": 2.0, "n_kv_heads": 2, "window": 6},
        {"attention_softcap": 2.0, "positions": "alibi", "init": "mup"},
    ],
    ids=str,
)
def test_attention_is_that_of_scores_written_out(options: dict[str, Any], with_documents: bool) -> None:
    arch = Arch(**options)
    model = build_model(Model(d_model=32, n_layers=1, n_heads=4), arch, 50, SEQ, torch.Generator())
    attention = model.blocks[0].attention
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in attention.parameters():  # type: ignore[union-attr]
            parameter.normal_(0, 0.5, generator=generator)
    x = torch.randn(3, SEQ, 32, generator=generator)
    position_ids = positions_of_documents() if with_documents else None
    going = begin(model.positions, SEQ, position_ids, arch.window, x.device)
    found = attention(x, going)  # type: ignore[operator]
    torch.testing.assert_close(
        found, written_out(attention, model, arch, x, position_ids), rtol=1e-4, atol=1e-5
    )


def written_out(attention: Any, model: Any, arch: Arch, x: Tensor, position_ids: Tensor | None) -> Tensor:
    """One head of queries after the other, its mask place by place."""
    kv = arch.n_kv_heads or 4
    projected = attention.qkv(x)
    heads = []
    for head in range(4):
        shared = head * kv // 4
        places = (head, 4 + shared, 4 + kv + shared)
        query, key, value = (projected[..., 8 * i : 8 * i + 8] for i in places)
        query = model.positions.rotate(attention.query_norm(query)[:, None], position_ids)[:, 0]
        key = model.positions.rotate(attention.key_norm(key)[:, None], position_ids)[:, 0]
        scale = math.sqrt(16) / 8 if arch.init == "mup" else 1 / math.sqrt(8)
        scores = scale * query @ key.mT
        if arch.attention_softcap is not None:
            scores = arch.attention_softcap * torch.tanh(scores / arch.attention_softcap)
        for t in range(SEQ):
            for s in range(SEQ):
                distance = t - s
                if arch.positions == "alibi":
                    scores[:, t, s] -= 2.0 ** (-2 * (head + 1)) * distance
                hidden = distance < 0 or (arch.window is not None and distance >= arch.window)
                for row in range(len(x)):
                    other = position_ids is not None and distance > position_ids[row, t]
                    if hidden or other:
                        scores[row, t, s] = -torch.inf
        heads.append(scores.softmax(-1) @ value)
    return attention.output(torch.cat(heads, dim=-1))


def test_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(4) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8]
    # Of 6 heads: those of 4, then the first and third of 8.
    assert alibi_slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    assert len(alibi_slopes(1)) == 1


@pytest.mark.parametrize("window", [1, 3, 8])
def test_a_window_reaches_so_far_a_layer(window: int) -> None:
    model = build_model(Model(d_model=32, n_layers=2, n_heads=2), Arch(window=window), 50, SEQ)
    ids = torch.randint(50, (1, SEQ), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[0, 0] = (ids[0, 0] + 1) % 50
    differs = (model.hidden(ids) != model.hidden(changed)).any(-1)[0]
    reach = 2 * (window - 1)
    assert differs[reach]
    assert not differs[reach + 1 :].any()
