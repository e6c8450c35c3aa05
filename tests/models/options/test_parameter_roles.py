from __future__ import annotations

import pytest

from conf.schema import Arch, Model
from models import build_model
from models.options.parameter_roles import ROLES, roles_of


@pytest.mark.parametrize("tied", [True, False])
def test_each_parameter_has_its_role(tied: bool) -> None:
    arch = Arch(positions="learned", norm="layer", tied_head=tied)
    roles = roles_of(build_model(Model(d_model=32), arch, vocab_size=50, max_positions=8))
    assert roles["embedding.weight"] == roles["positions.table.weight"] == "embedding"
    assert roles["blocks.0.attention.qkv.weight"] == roles["blocks.1.feed_forward.output.weight"] == "hidden"
    assert roles["blocks.0.attention_norm.weight"] == roles["final_norm.weight"] == "vector"
    assert roles.get("head.weight") == (None if tied else "output")
    assert set(roles.values()) <= set(ROLES)
