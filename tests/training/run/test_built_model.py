"""Counts of a run are those of the model that is built, or the run says so."""

from __future__ import annotations

import json
import subprocess
import sys
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
from models.layers.blocks import block_of
from models.options.counts import count_parameters, flops_per_token
from training.checkpoint.checkpoints import checkpoint_folder, load
from training.run.built_model import FLOPS_TOLERANCE, Counts, count_flops_per_token, counts_of

ROOT = Path(__file__).resolve().parents[3]
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


class Twice(nn.Module):
    """A block that is applied twice: more FLOPs, the same parameters."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor, going: Any) -> Any:
        x, _ = self.block(x, going)
        return self.block(x, going)


@pytest.mark.parametrize("path", ARCHS, ids=lambda path: path.stem)
def test_every_option_of_arch_builds_what_the_formulas_say(path: Path) -> None:
    arch, model = Arch(**(yaml.safe_load(path.read_text()) or {})), Model(d_model=64, n_layers=2)
    counted = count_parameters(model, arch, 500, 64)
    planned = Counts(counted.total, counted.non_embedding, flops_per_token(model, arch, 500, 64).total)
    built = build_model(model, arch, 500, 64)
    state = torch.get_rng_state()
    assert counts_of(built, 64, planned) == planned
    flops = count_flops_per_token(built, 64)
    assert flops is None or flops == pytest.approx(planned.flops_per_token, rel=FLOPS_TOLERANCE)
    assert (flops is None) == (path.stem in {"lstm", "mingru", "moe"})
    assert torch.equal(torch.get_rng_state(), state)
    assert built.training


@pytest.fixture
def wider_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_run(tiny_config(tmp_path, max_steps=4, checkpoint_every=4, evals=1))
    monkeypatch.setitem(families.FAMILIES, "transformer", Wider)
    return folder


def test_model_of_other_code_is_recorded_with_its_own_counts(wider_run: Path) -> None:
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
    assert "models/options/counts.py" in (wider_run / "log.txt").read_text()


def test_flops_of_a_foreign_module_without_parameters_are_counted() -> None:
    arch, config = Arch(), Model(d_model=64, n_layers=2)
    counted = count_parameters(config, arch, 500, 64)
    formula = flops_per_token(config, arch, 500, 64).total
    planned = Counts(counted.total, counted.non_embedding, formula)
    model = build_model(config, arch, 500, 64)
    model.blocks[0] = Twice(model.blocks[0])
    found = counts_of(model, 64, planned)
    assert (found.parameters, found.non_embedding) == (counted.total, counted.non_embedding)
    assert found.flops_per_token > 1.1 * formula


@pytest.mark.slow
def test_checking_the_counts_of_shipped_models_imports_nothing() -> None:
    """Counting FLOPs on the meta device imports 800 modules of torch, 70 MB."""
    code = """if True:
        import sys
        from conf.schema import Arch, Model
        from models import build_model
        from models.options.counts import count_parameters, flops_per_token
        from training.run.built_model import Counts, counts_of

        arch, config = Arch(), Model(d_model=64, n_layers=2)
        counted = count_parameters(config, arch, 500, 64)
        flops = flops_per_token(config, arch, 500, 64).total
        planned = Counts(counted.total, counted.non_embedding, flops)
        model = build_model(config, arch, 500, 64)
        before = set(sys.modules)
        assert counts_of(model, 64, planned) == planned
        assert set(sys.modules) == before, set(sys.modules) - before
    """
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
