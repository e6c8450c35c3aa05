from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import Arch, Model
from experiment_utils.errors import UserError
from models.options.shape import Shape, resolve_shape, shape_problems
from tests.golden_text import Golden


@pytest.mark.parametrize(("width", "layers"), [(32, 2), (48, 3), (64, 4), (80, 5), (256, 16), (512, 32)])
def test_layers_and_heads_follow_the_width(width: int, layers: int) -> None:
    assert resolve_shape(Model(d_model=width), Arch()) == Shape(
        width, layers, layers, 16, 4 * width, layers, 16
    )


def test_layers_and_heads_can_be_given() -> None:
    shape = resolve_shape(Model(d_model=48, n_layers=1, n_heads=6), Arch(ffn_multiplier=8 / 3))
    assert shape == Shape(48, 1, 6, 8, 128, 6, 8)


def test_heads_that_do_not_divide_the_width_are_refused_with_the_nearest_that_do() -> None:
    with pytest.raises(UserError, match=r"2, 4, 8$") as error:
        resolve_shape(Model(d_model=64, n_heads=5), Arch())
    assert [problem.where for problem in error.value.problems] == ["model.n_heads"]


def test_rotary_needs_heads_of_even_width(golden: Golden) -> None:
    odd = Model(d_model=36, n_heads=4)
    (found,) = shape_problems(odd, Arch(positions="rotary"))
    golden.text(str(found))
    assert shape_problems(odd, Arch(positions="learned")) == []


def test_a_recurrence_has_no_heads() -> None:
    arch = Arch(family="lstm")
    assert resolve_shape(Model(d_model=100), arch).n_layers == 6  # 6 heads would not divide it
    assert shape_problems(Model(d_model=100, n_heads=6), arch) == []  # as a resolved config says
    (found,) = shape_problems(Model(d_model=64, n_heads=8), arch)
    assert found.where == "model.n_heads"


def test_heads_of_keys_are_shared_evenly() -> None:
    model = Model(d_model=96, n_heads=6)
    assert resolve_shape(model, Arch(n_kv_heads=2)).kv_dim == 32
    found = shape_problems(model, Arch(n_kv_heads=4))
    assert found[0].where == "arch.n_kv_heads"
    assert "2, 3, 6" in found[0].what


def test_a_part_of_a_head_is_rotated_in_pairs() -> None:
    model = Model(d_model=32, n_heads=2)
    assert resolve_shape(model, Arch(rope_fraction=0.25)).rotary_dim == 4
    found = shape_problems(model, Arch(rope_fraction=0.2))
    assert found[0].where == "arch.rope_fraction"
    assert {"0.125", "0.25"} <= set(found[0].what.split())


@given(st.integers(1, 600), st.none() | st.integers(1, 40))
def test_a_shape_without_problems_divides_the_width(width: int, heads: int | None) -> None:
    model, arch = Model(d_model=width, n_heads=heads), Arch(positions="learned")
    if not shape_problems(model, arch):
        shape = resolve_shape(model, arch)
        assert shape.n_heads * shape.head_dim == width
        assert min(shape.n_layers, shape.ffn_hidden) >= 1
