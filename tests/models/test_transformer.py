from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from conf.schema import Arch, Model
from models import LanguageModel, LossModel, build_model

VOCAB, SEQ = 61, 24
TINY = Model(d_model=32, n_layers=2, n_heads=2)

VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "layer"},
    {"norm_position": "post"},
    {"norm": "layer", "norm_position": "post"},
    {"positions": "learned"},
    {"positions": "sinusoidal"},
    {"activation": "gelu"},
    {"activation": "relu"},
    {"activation": "silu"},
    {"tied_head": False},
    {"norm": "none", "init_std": 0.1},
    {"norm_position": "sandwich", "qk_norm": True, "n_kv_heads": 1, "init_std": 0.5},
    {"parallel_blocks": True, "positions": "alibi", "bias": "qkv"},
    {"positions": "none", "activation": "relu2", "final_norm": "layer", "bias": "all", "head_bias": True},
    {"window": 7, "activation": "geglu", "rope_fraction": 0.5, "init": "completep", "base_width": 32},
    {"attention_softcap": 5.0, "n_kv_heads": 1},
    {"n_experts": 3, "activation": "gelu_exact", "init": "transformer_scaled"},
    {
        "norm": "layer",
        "norm_position": "post",
        "positions": "learned",
        "activation": "gelu",
        "tied_head": False,
    },
    {
        "norm": "layer",
        "norm_position": "post",
        "positions": "sinusoidal",
        "activation": "relu",
        "ffn_multiplier": 2,
    },
]
each_variant = pytest.mark.parametrize(
    "options", VARIANTS, ids=lambda options: "-".join(str(value) for value in options.values()) or "default"
)


def build(seed: int = 0, model: Model = TINY, max_positions: int = SEQ, **options: Any) -> LanguageModel:
    torch.manual_seed(seed)
    return build_model(model, Arch(**options), VOCAB, max_positions)


def ids(batch: int = 3, seq: int = SEQ) -> Tensor:
    return torch.randint(VOCAB, (batch, seq), generator=torch.Generator().manual_seed(1))


def losses_on_copying(model: LanguageModel, back: int, steps: int) -> list[float]:
    """Train to name the token `back` places before, of 8 equally likely ones."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of, generator = LossModel(model), torch.Generator().manual_seed(0)
    losses = []
    for _ in range(steps):
        tokens = torch.randint(8, (16, SEQ), generator=generator)
        labels = tokens.roll(back, 1)
        labels[:, :back] = -100
        loss = loss_of(tokens, labels, None, 64)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@each_variant
def test_a_variant_learns_to_copy_in_20_steps(options: dict[str, Any]) -> None:
    losses = losses_on_copying(build(**options), back=0, steps=20)
    assert losses[0] > math.log(VOCAB) - 1
    assert losses[-1] < math.log(8) / 4


@pytest.mark.parametrize(
    ("positions", "norm_position"), [("rotary", "pre"), ("learned", "post"), ("sinusoidal", "pre")]
)
def test_attention_learns_to_look_one_place_back(positions: str, norm_position: str) -> None:
    model = build(positions=positions, norm_position=norm_position, init_std=0.2)
    losses = losses_on_copying(model, back=1, steps=60)
    # ln 8 is what can be had without looking back, and from a mean over all places before not much less.
    assert losses[-1] < math.log(8) - 0.5


@each_variant
def test_activation_checkpointing_changes_no_bit(options: dict[str, Any]) -> None:
    results = []
    for checkpointing, expected in ((False, [1, 1]), (True, [2, 2]), (1, [2, 1]), (2, [2, 2])):
        model = build(**options)
        model.activation_checkpointing = checkpointing
        runs = [0, 0]
        for number, block in enumerate(model.blocks):
            block.register_forward_pre_hook(
                lambda *_, runs=runs, at=number: runs.__setitem__(at, runs[at] + 1)
            )
        loss = LossModel(model)(ids(), ids().roll(-1, 1), None, 16)
        loss.backward()
        assert runs == expected
        results.append([loss.detach(), *(p.grad for p in model.parameters())])
    for found in zip(*results, strict=True):
        assert all(torch.equal(found[0], other) for other in found[1:])


@each_variant
def test_no_position_sees_a_later_one(options: dict[str, Any]) -> None:
    model, tokens = build(**options), ids()
    changed = tokens.clone()
    changed[:, 10] = (changed[:, 10] + 1) % VOCAB
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :10], after[:, :10], rtol=0, atol=0)
    assert not torch.equal(before[:, 10:], after[:, 10:])


@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal"])
def test_the_order_of_earlier_tokens_matters(positions: str) -> None:
    model = build(model=Model(d_model=32, n_layers=1, n_heads=2), positions=positions, init_std=0.3)
    tokens = ids(1)
    reordered = torch.cat((tokens[:, :-1].flip(1), tokens[:, -1:]), dim=1)
    assert (model(tokens)[:, -1] - model(reordered)[:, -1]).abs().max() > 1e-3


def test_rotary_scores_depend_on_distance_alone() -> None:
    rotate = build(max_positions=50).positions.rotate
    query, key = torch.randn(2, 1, 1, 1, 16).expand(2, 1, 1, 50, 16)
    scores = (rotate(query) @ rotate(key).mT)[0, 0]
    torch.testing.assert_close(scores[:-7, :-7], scores[7:, 7:], rtol=1e-4, atol=1e-5)
    assert scores[20, 10] != scores[20, 15]


def test_sinusoids_are_those_of_the_paper() -> None:
    table = build(positions="sinusoidal").positions.table
    assert table.shape == (SEQ, 32)
    for t, i in [(0, 0), (5, 0), (5, 3), (23, 15)]:
        angle = t / 10_000 ** (2 * i / 32)
        assert table[t, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[t, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_post_norm_ends_each_block_with_a_norm() -> None:
    assert build(norm_position="post").hidden(ids()).pow(2).mean(-1).sub(1).abs().max() < 1e-3


def test_first_weights_follow_the_seed_and_the_rule() -> None:
    wide = Model(d_model=128, n_layers=8, n_heads=8)
    one, same, other = (dict(build(seed, wide).named_parameters()) for seed in (0, 0, 1))
    assert all(torch.equal(one[name], same[name]) for name in one)
    for name, parameter in one.items():
        if parameter.ndim == 1:
            assert (parameter == 1).all()
            continue
        assert not torch.equal(parameter, other[name])
        expected = 0.02 / 4 if name.endswith("output.weight") else 0.02
        assert parameter.std().item() == pytest.approx(expected, rel=0.05)
        assert abs(parameter.mean().item()) < 0.05 * expected
    assert build(init_std=0.1).embedding.weight.std().item() == pytest.approx(0.1, rel=0.1)


def test_a_generator_of_ones_own_leaves_the_global_one_alone() -> None:
    state = torch.get_rng_state()
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    first, second = (build_model(TINY, Arch(), VOCAB, SEQ, generator) for generator in generators)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.blocks[1].attention.qkv.weight, second.blocks[1].attention.qkv.weight)


def test_a_tied_matrix_is_saved_once() -> None:
    model = build()
    assert model.output_weight is model.embedding.weight
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    assert build(tied_head=False).output_weight.data_ptr() != model.embedding.weight.data_ptr()


def test_a_sequence_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\b25\b.*\b24\b"):
        build().hidden(ids(seq=SEQ + 1))


@each_variant
def test_documents_in_a_row_are_as_if_each_stood_alone(options: dict[str, Any]) -> None:
    model = build(**options)
    lengths = [[5, 1, 18], [24], [12, 12]]
    position_ids = torch.stack([torch.cat([torch.arange(n) for n in row]) for row in lengths])
    found = model.hidden(ids(), position_ids)
    for row, of_row in enumerate(lengths):
        parts = ids()[row].split(of_row)
        alone = torch.cat([model.hidden(part.unsqueeze(0)) for part in parts], dim=1)[0]
        torch.testing.assert_close(found[row], alone, rtol=1e-5, atol=1e-5)
    model.activation_checkpointing = True
    assert torch.equal(model.hidden(ids(), position_ids), found)
