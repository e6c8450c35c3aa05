"""Units that do nothing are told by layer, and looking changes no number."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from tiny_run import copy_of, make_run, metrics_without_clock, run_here, tiny_config

from conf.schema import Arch, Model
from models import build_model
from training.evaluation.dead_units import watched, words


@pytest.mark.parametrize("arch", [Arch(activation="relu"), Arch(), Arch(activation="relu", n_experts=2)])
def test_units_that_were_silenced_are_counted(arch: Arch) -> None:
    torch.manual_seed(0)
    model = build_model(Model(d_model=32, n_layers=2, n_heads=2), arch, 40, 12)
    hidden = 128
    with torch.no_grad():
        weight = dict(model.named_parameters())["blocks.1.feed_forward.input.weight"]
        weight[..., :32, :] = 0.0
    with watched(model, is_on=True) as units:
        for _ in range(3):
            model(torch.randint(0, 40, (8, 12)))
    found = units.shares()
    assert found == {"blocks.0.feed_forward": 0.0, "blocks.1.feed_forward": 32 / hidden}
    assert words(found).split()[-2:] == ["blocks.1.feed_forward", "25.0%"]
    with watched(model, is_on=False) as none:
        model(torch.zeros(1, 4, dtype=torch.int64))
    assert none.shares() == units.shares() or none.shares() == {}
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_run_tells_of_them(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, max_steps=8)
    looking = dataclasses.replace(config, training=dataclasses.replace(config.training, dead_units=True))
    plain, folder = make_run(config), copy_of(looking, tmp_path / "looking")
    assert folder.name == plain.name
    for each in (plain, folder):
        assert run_here(each, "--quiet").returncode == 0
    assert metrics_without_clock(folder) == metrics_without_clock(plain)
    records = [json.loads(line) for line in (folder / "evals.jsonl").read_text().splitlines()]
    assert all(record["dead_units"].keys() == {"blocks.0.feed_forward"} for record in records)
