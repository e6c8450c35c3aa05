"""Every row of the table of options is trained for 20 steps: the loss falls, gradients reach every place."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch

from conf.schema import Arch, Model
from models import LossModel, build_model
from models.options.option_conflicts import combination_problems
from tests.models.options_table import OPTIONS

pytestmark = pytest.mark.slow

LSTM = {"family": "lstm", "init": "xavier"}
NUMBERS: dict[str, dict[str, Any]] = {
    "norm_eps": {"norm_eps": 1e-3},
    "rope_theta": {"rope_theta": 500.0},
    "rope_fraction": {"rope_fraction": 0.5},
    "n_kv_heads": {"n_kv_heads": 2},
    "window": {"window": 5},
    "ffn_multiplier": {"ffn_multiplier": 1.5},
    "n_experts": {"n_experts": 4},
    "experts_per_token": {"n_experts": 4, "experts_per_token": 1},
    "balance_loss": {"n_experts": 4, "balance_loss": 0.1},
    "dropout_embedding": {"dropout_embedding": 0.1},
    "dropout_attention": {"dropout_attention": 0.1},
    "dropout_residual": {"dropout_residual": 0.1},
    "dropout_recurrent": {"dropout_recurrent": 0.1, **LSTM},
    "state_reset": {"state_reset": 0.1, **LSTM},
    "lstm_forget_bias": {"lstm_forget_bias": 2.0, "bias": "linear", **LSTM},
    "logit_softcap": {"logit_softcap": 10.0},
    "attention_softcap": {"attention_softcap": 10.0},
    "z_loss": {"z_loss": 1e-3},
    "init_std": {"init_std": 0.1},
}
"""A value for each row that says `number`, with what it needs."""

NEEDS: dict[str, dict[str, Any]] = {
    "linear": {"rope_factor": 2.0},
    "ntk": {"rope_factor": 2.0},
    "llama3": {"rope_factor": 2.0, "rope_original_positions": 8},
}
OF_LSTM = {"dropout_locked", "lstm_residual"}
IS_BOOL = {field.name for field in fields(Arch) if isinstance(field.default, bool)}


def options_of(key: str, choice: str) -> dict[str, Any]:
    if choice == "number":
        return NUMBERS[key]
    if choice == "null":
        return {key: None}
    if key in IS_BOOL:
        return {key: choice == "true", **(LSTM if key in OF_LSTM else {})}
    value: Any = int(choice) if choice.isdigit() else choice
    needs = NEEDS.get(choice, {}) if key == "rope_scaling" else {}
    return {key: value, **needs}


ROWS = {f"{key}-{choice}": options_of(key, choice) for key, choices in OPTIONS.items() for choice in choices}
EACH_MODEL_ONCE = {repr(Arch(**options)): name for name, options in ROWS.items()}
"""Rows by their model: those with a default value have the same one, and the last of them stays."""


@pytest.mark.parametrize("name", EACH_MODEL_ONCE.values())
def test_an_option_trains(name: str) -> None:
    options = ROWS[name]
    torch.manual_seed(0)
    assert combination_problems(Arch(**options)) == []
    heads = None if "family" in options else 4
    model = build_model(Model(d_model=32, n_layers=2, n_heads=heads), Arch(**options), 61, 16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loss_of, losses = LossModel(model), []
    reached = {name: False for name, _ in model.named_parameters()}
    for _ in range(20):
        tokens = torch.randint(8, (16, 16))
        loss = loss_of(tokens, tokens, None, 64)
        loss.backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            reached[name] |= bool((parameter.grad != 0).any())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert all(reached.values()), [name for name, found in reached.items() if not found]
    assert losses[-1] < 0.6 * losses[0]
