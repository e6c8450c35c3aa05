from __future__ import annotations

import pytest
import torch

from benchmarks.mup_coordinates import PLACES, bytes_of_source, coordinates, slope
from conf.schema import Arch, Model
from models import build_model
from models.options.parametrization import STANDARD, Parametrization, Scales, parametrization
from models.options.shape import resolve_shape


def build(width: int, layers: int = 2, **options: object) -> torch.nn.Module:
    model = Model(d_model=width, n_layers=layers, n_heads=width // 16)
    return build_model(model, Arch(**options), 50, 8, torch.Generator().manual_seed(0))  # type: ignore[arg-type]


def test_the_standard_scales_nothing() -> None:
    shape = resolve_shape(Model(d_model=256), Arch())
    assert parametrization(shape, Arch()) == Parametrization()
    assert build(256).scales == {}


@pytest.mark.parametrize("init", ["mup", "completep"])
def test_at_its_base_a_model_is_the_standard_one(init: str) -> None:
    arch = Arch(init=init, base_width=32)
    found = parametrization(resolve_shape(Model(d_model=32), arch), arch)
    assert found == Parametrization(attention_scale=0.25)  # 1 / sqrt(16), the width of its heads
    assert build(32, init=init, base_width=32).scales == {}


def test_settings_of_mup_are_those_of_table_8() -> None:
    model = build(256, init="mup", base_width=64, tied_head=False, bias="qkv", norm="layer")
    scales = model.scales
    assert scales["blocks.0.attention.qkv.weight"] == Scales(lr=1 / 4, eps=1 / 4)
    assert scales["blocks.1.feed_forward.output.weight"] == Scales(lr=1 / 4, eps=1 / 4)
    for name in ("embedding.weight", "head.weight", "blocks.0.attention.qkv.bias", "final_norm.weight"):
        assert scales[name] == Scales(eps=1 / 4)
    assert model.output_multiplier == 1 / 4
    parameters = dict(model.named_parameters())
    assert parameters["blocks.0.attention.qkv.weight"].std().item() == pytest.approx(0.01, rel=0.05)
    assert parameters["embedding.weight"].std().item() == pytest.approx(0.02, rel=0.05)


def test_completep_scales_branches_and_eps_with_depth() -> None:
    model = build(256, layers=12, init="completep", base_width=64, base_layers=3)
    scales = model.scales
    assert model.blocks[0].residual.multiplier == 1 / 4
    assert scales["blocks.0.attention.qkv.weight"] == Scales(lr=1 / 4, weight_decay=4.0, eps=1 / 16)
    assert scales["blocks.0.attention_norm.weight"] == Scales(eps=1 / 16)
    assert scales["embedding.weight"] == Scales(eps=1 / 4)
    assert STANDARD not in scales.values()


@pytest.mark.slow
def test_what_a_step_changes_is_flat_over_widths_with_mup_and_grows_without() -> None:
    ids = bytes_of_source()[:4]
    widths = (32, 128, 512)
    slopes = {
        init: {
            place: slope({width: found[width][place][-1] for width in widths})
            for found in [{width: coordinates(width, init, 0, steps=3, ids=ids) for width in widths}]
            for place in PLACES
        }
        for init in ("default", "mup")
    }
    assert all(abs(found) < 0.25 for found in slopes["mup"].values()), slopes
    assert slopes["default"]["logits"] > 0.5, slopes
    assert slopes["default"]["attention"] > 0.25, slopes
