"""Counts of a run are those of the model that is built, or the run says so."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_run import make_run, tiny_config
from torch import nn

import core
from conf.schema import Arch, Model
from models import build_model, families
from models.blocks import block_of
from models.counts import count_parameters, flops_per_token
from training import built_model, provenance
from training.built_model import DESCRIBED, Counts, counts_of, hash_of_models
from training.checkpoints import checkpoint_folder, load

ROOT = Path(__file__).resolve().parents[2]
ARCHS = sorted((ROOT / "conf" / "arch").glob("*.yaml"))
EXTRA = 16 * 24


class Wider(nn.Module):
    """A block with one product more, as a user may add it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self.block = block_of(*arguments)
        self.extra = nn.Linear(16, 24, bias=False)

    def forward(self, x: torch.Tensor, going: Any) -> Any:
        x, loss = self.block(x, going)
        return x + self.extra(x).sum(-1, keepdim=True), loss


@pytest.mark.parametrize("path", ARCHS, ids=lambda path: path.stem)
def test_every_option_of_arch_builds_what_the_formulas_say(path: Path) -> None:
    arch, model = Arch(**(yaml.safe_load(path.read_text()) or {})), Model(d_model=64, n_layers=2)
    counted = count_parameters(model, arch, 500, 64)
    planned = Counts(counted.total, counted.non_embedding, flops_per_token(model, arch, 500, 64).total)
    built = build_model(model, arch, 500, 64)
    state = torch.get_rng_state()
    found = counts_of(built, 64, planned)
    assert dataclasses.replace(found, flops_per_token=0.0) == dataclasses.replace(
        planned, flops_per_token=0.0
    )
    assert found.flops_per_token == pytest.approx(planned.flops_per_token, rel=0.01)
    assert torch.equal(torch.get_rng_state(), state)
    assert built.training


@pytest.fixture
def wider_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_run(tiny_config(tmp_path, max_steps=4, checkpoint_every=4, evals=1))
    monkeypatch.setitem(families.FAMILIES, "transformer", Wider)
    return folder


def test_the_formulas_describe_the_code_of_models() -> None:
    assert hash_of_models() == DESCRIBED, (
        f"models/ was changed: where models/counts.py still describes it, DESCRIBED is {hash_of_models()!r}"
    )


@pytest.mark.parametrize("is_dirty", [True, False, None])
@pytest.mark.parametrize("is_in_models", [True, False])
def test_a_model_of_edited_code_is_recorded_with_its_own_counts(
    wider_run: Path, is_dirty: bool | None, is_in_models: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = provenance.record_code
    monkeypatch.setattr(provenance, "record_code", lambda folder: {**record(folder), "dirty": is_dirty})
    if is_in_models:
        monkeypatch.setattr(Wider, "__module__", "models.blocks")
        monkeypatch.setattr(built_model, "DESCRIBED", "of other code")
    assert core.main([str(wider_run), "--quiet"]) == 0
    run = json.loads((wider_run / "run.json").read_text())
    config = tiny_config(wider_run.parent)
    formula = count_parameters(config.model, config.arch, run["vocab_size"], 16)
    flops = flops_per_token(config.model, config.arch, run["vocab_size"], 16).total
    assert run["parameters"] == formula.total + EXTRA
    assert run["non_embedding"] == formula.non_embedding + EXTRA
    assert run["flops_per_token"] == flops + 6 * EXTRA
    assert run["total_flops"] == run["flops_per_token"] * run["tokens"]
    checkpoint = load(checkpoint_folder(wider_run / "checkpoints", 4))
    moments = [
        tensor for name, tensor in checkpoint.training.items() if name.endswith(("exp_avg", "exp_avg_sq"))
    ]
    assert run["checkpoint_bytes"] == sum(
        tensor.numel() * 4 for tensor in (*checkpoint.weights.values(), *moments)
    )
    last = (wider_run / "metrics.csv").read_text().splitlines()[-1].split(",")
    assert float(last[6]) == run["total_flops"]
    assert "not that of the formulas in models/counts.py" in (wider_run / "log.txt").read_text()


def test_a_wrong_formula_of_unedited_code_stops_the_run(
    wider_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Wider, "__module__", "models.blocks")
    assert core.main([str(wider_run), "--quiet"]) == 2
    status = json.loads((wider_run / "status.json").read_text())
    assert (status["state"], status["stage"]) == ("failed", "build_model")
    assert "models/counts.py" in status["reason"]
    assert not (wider_run / "metrics.csv").exists()
