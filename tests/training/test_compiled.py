"""Every option of a model that may be compiled is: three steps in one graph, losses as eager ones have.

Compilation ends before kernels are generated (`aot_eager`), which takes minutes of a C++ compiler for all of
them; one case goes all the way.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import column, make_run, run_here, tiny_config, with_documents

import core
from conf.composing.check import check, to_plain
from conf.schema import Arch, Config, Model
from training.attempt.run_files import read_status
from training.plan.run_plan import make_plan

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

CASES: dict[str, dict[str, Any]] = {
    "rotary": {
        "arch": {
            "qk_norm": True, "n_kv_heads": 1, "window": 7, "attention_softcap": 5.0, "bias": "qkv",
            "logit_softcap": 20.0, "rope_theta": 500.0, "norm_eps": 1e-6,
        },
        "training": {"activation_checkpointing": 1},
    },
    "gpt2": {
        "arch": {
            "norm": "layer", "norm_position": "post", "positions": "learned", "activation": "gelu",
            "bias": "all", "tied_head": False, "ffn_multiplier": 2.0, "head_bias": True, "init": "gpt2",
        },
        "training": {"ema": 0.9},
    },
    "sandwich": {
        "arch": {
            "norm_position": "sandwich", "positions": "alibi", "activation": "geglu", "z_loss": 1e-3,
            "final_norm": "rms", "init": "xavier", "init_std": 0.1,
        },
        "optimizer": {"name": "muon", "momentum": 0.95, "nesterov": True},
    },
    "parallel": {
        "arch": {
            "parallel_blocks": True, "positions": "sinusoidal", "activation": "silu", "final_norm": "layer",
            "bias": "linear", "init": "kaiming",
        },
        "training": {"precision": "bf16"},
    },
    "plain": {
        "arch": {
            "norm": "none", "positions": "none", "activation": "gelu_exact", "final_norm": "none",
            "init": "transformer_scaled",
        },
        "training": {"activation_checkpointing": True},
    },
    "mup": {
        "arch": {
            "rope_scaling": "llama3", "rope_factor": 2.0, "rope_fraction": 0.5, "activation": "relu",
            "init": "mup", "base_width": 16,
        },
        "dataset": {"documents": "masked"},
    },
    "completep": {
        "arch": {"rope_scaling": "ntk", "rope_factor": 2.0, "activation": "relu2", "init": "completep"},
        "optimizer": {"name": "schedule_free"},
        "schedule": {"name": "stable"},
    },
    "dropout": {
        "arch": {
            "dropout_embedding": 0.1, "dropout_attention": 0.1, "dropout_residual": 0.1,
            "rope_scaling": "linear", "rope_factor": 2.0,
        },
    },
}  # fmt: skip

REFUSED = {
    "family", "n_experts", "experts_per_token", "balance_loss", "balance_over", "state_reset",
    "dropout_locked", "dropout_recurrent", "lstm_residual", "lstm_forget_bias",
}  # fmt: skip
"""Options of what is not compiled: experts, and families that go from token to token."""


def config_of(case: dict[str, Any], folder: Path, **training: Any) -> Config:
    config = tiny_config(folder, **({"max_steps": 3, "evals": 1} | case.get("training", {}) | training))
    if "documents" in case.get("dataset", {}):
        config = with_documents(config)
    named = {name: case.get(name, {}) for name in ("optimizer", "schedule", "dataset")}
    groups = {name: dataclasses.replace(getattr(config, name), **given) for name, given in named.items()}
    size = Model(name="tiny", d_model=32, n_layers=2, n_heads=2)
    return dataclasses.replace(config, model=size, arch=Arch(**case["arch"]), **groups)


def test_the_cases_have_every_option() -> None:
    for field in fields(Arch):
        if field.name in REFUSED | {"name", "base_layers", "max_positions"}:
            continue
        given = {case["arch"][field.name] for case in CASES.values() if field.name in case["arch"]}
        if field.name.startswith("rope_") and field.metadata["choices"] is None:
            continue
        choices = field.metadata["choices"] or ()
        assert given | {field.default} >= set(choices), field.name
        assert given - {field.default}, field.name


@pytest.mark.parametrize(
    ("name", "backend", "by_block"),
    [
        *((name, "aot_eager", number % 2 == 1) for number, name in enumerate(CASES)),
        ("rotary", "inductor", True),  # one block: whole models are captured alike by aot_eager
    ],
)
def test_compiled_steps_are_the_eager_ones(
    name: str, backend: str, by_block: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "COMPILED_BY_BLOCK", ("cpu",) if by_block else ())
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    case = CASES[name]
    losses = []
    for compiled in (False, True):
        config = config_of(case, tmp_path, compile=compiled)
        assert check(to_plain(make_plan(config, tokenize=True).config))[1] == []
        folder = make_run(config)
        torch._dynamo.reset()  # else the cases are versions of one function, of which only a few are made
        torch._dynamo.utils.counters.clear()
        assert run_here(folder, "--quiet").returncode == 0, (folder / "log.txt").read_text()
        assert read_status(folder)["state"] == "done"
        losses.append([*column(folder, "train_loss"), *column(folder, "val_loss")])
        assert (torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0) is compiled
        assert not torch._dynamo.utils.counters["graph_break"]
    assert len(losses[0]) == len(losses[1]) == 4
    assert all(map(math.isfinite, losses[1]))
    if name == "dropout":  # drawn otherwise
        assert losses[0] == pytest.approx(losses[1], rel=0.1)
        return
    tolerance = 2e-2 if case.get("training", {}).get("precision") == "bf16" else 1e-4
    assert losses[0] == pytest.approx(losses[1], rel=tolerance)
