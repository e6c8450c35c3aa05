"""What an optimizer or a schedule does not have is refused with the reason, and what it has is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conf.between_keys.optimizer_rules import SETTINGS_OF
from conf.composing.check import check
from conf.schema import Optimizer

OTHER: dict[str, Any] = {
    "beta1": 0.5, "beta2": 0.5, "eps": 0.5, "momentum": 0.5, "nesterov": True, "muon_scale": "keller",
}  # fmt: skip


Refused = Callable[..., str]


def problems(**plain: Any) -> dict[str, str]:
    return {problem.where: problem.what for problem in check(plain)[1]}


@pytest.mark.parametrize("name", SETTINGS_OF)
@pytest.mark.parametrize("key", OTHER)
def test_an_optimizer_is_told_only_what_it_has(name: str, key: str) -> None:
    schedule = {"name": "stable"} if name == "schedule_free" else {}
    given = {"name": name, key: OTHER[key]} | ({"momentum": 0.9} if key == "nesterov" else {})
    found = problems(optimizer=given, schedule=schedule)
    if key in SETTINGS_OF[name]:
        assert found == {}
        return
    assert f"optimizer.{key}" in found
    assert (
        ", ".join(other for other, names in SETTINGS_OF.items() if key in names) in found[f"optimizer.{key}"]
    )


def test_every_setting_of_an_optimizer_is_of_some() -> None:
    assert {name for names in SETTINGS_OF.values() for name in names} == set(OTHER)
    assert all(value != getattr(Optimizer(), key) for key, value in OTHER.items())


def test_what_goes_together(refused: Refused) -> None:
    assert "optimizer.nesterov" in problems(optimizer={"name": "sgd", "nesterov": True})
    free = {"name": "schedule_free"}
    assert "schedule=stable" in refused("schedule", optimizer=free)
    assert problems(optimizer=free, schedule={"name": "constant", "warmup_fraction": 0}) == {}
    stable = {"name": "stable"}
    refused("training.ema", optimizer=free, schedule=stable, training={"ema": 0.9})
    assert "optimizer.beta1" in problems(optimizer=free | {"beta1": 0}, schedule=stable)
    stacked = problems(optimizer={"name": "muon"}, arch={"n_experts": 4})
    assert list(stacked) == ["optimizer.name"], "said once"
    factor = {"lr_factor_output": 0.5}
    refused("optimizer.lr_factor_output", optimizer=factor)
    assert problems(optimizer=factor, arch={"tied_head": False}) == {}


def test_no_more_blocks_are_computed_again_than_there_are(refused: Refused) -> None:
    where = "training.activation_checkpointing"
    for given in (True, False, 1, 2):
        assert problems(training={"activation_checkpointing": given}) == {}
    refused(where, training={"activation_checkpointing": 3})
    deep = {"d_model": 32, "n_layers": 5}
    assert problems(training={"activation_checkpointing": 5}, model=deep) == {}
    assert where in problems(training={"activation_checkpointing": 6}, model=deep)


@pytest.mark.parametrize(
    ("schedule", "wrong"),
    [
        ({"name": "cosine", "warmup_fraction": 0, "warmup_steps": 5}, "warmup_steps"),
        ({"name": "constant", "warmup_fraction": 0, "warmup_tokens": "1K"}, "warmup_tokens"),
        ({"warmup_steps": 5, "warmup_tokens": "1K"}, "warmup_tokens"),
        ({"warmup_steps": 5, "warmup_fraction": 0.2}, "warmup_steps"),
        ({"warmup_steps": 5}, None),
        ({"name": "one_cycle", "warmup_fraction": 0.3, "warmup_tokens": "1K"}, None),
        ({"decay_fraction": 0.3}, "decay_fraction"),
        ({"name": "linear_warmup", "decay_shape": "cosine"}, "decay_shape"),
        ({"name": "wsd", "decay_fraction": 0.3, "decay_shape": "cosine"}, None),
        ({"name": "wsd", "warmup_fraction": 0.6, "decay_fraction": 0.5}, "decay_fraction"),
        ({"name": "wsd", "warmup_steps": 6, "decay_fraction": 1}, None),
        ({"name": "inverse_sqrt", "final_lr_fraction": 0}, "final_lr_fraction"),
        ({"name": "stable", "final_lr_fraction": 0}, "final_lr_fraction"),
        ({"name": "constant", "warmup_fraction": 0, "final_lr_fraction": 0.5}, "final_lr_fraction"),
        ({"name": "transformer"}, None),
        ({"name": "one_cycle", "final_lr_fraction": 0}, "final_lr_fraction"),
    ],
)  # fmt: skip
def test_a_schedule_is_told_only_what_it_has(schedule: dict[str, Any], wrong: str | None) -> None:
    assert list(problems(schedule=schedule)) == ([] if wrong is None else [f"schedule.{wrong}"])


@pytest.mark.parametrize(
    ("arch", "wrong"),
    [
        ({"positions": "alibi", "rope_theta": 500}, "arch.rope_theta"),
        ({"name": "llama", "positions": "alibi", "rope_theta": 500_000.0}, None),  # of the option, not typed
        ({"name": "llama", "positions": "alibi", "rope_theta": 500}, "arch.rope_theta"),
        ({"positions": "learned", "rope_factor": 2}, "arch.rope_factor"),
        ({"rope_scaling": "ntk", "rope_factor": 2, "rope_low_frequency": 2}, "arch.rope_low_frequency"),
        ({"rope_high_frequency": 8}, "arch.rope_high_frequency"),
        ({"norm": "none", "norm_eps": 0.1}, "arch.norm_eps"),
        ({"norm": "none", "norm_eps": 0.1, "qk_norm": True}, None),
        ({"norm": "none", "norm_eps": 0.1, "final_norm": "rms"}, None),
        ({"balance_loss": 0.5}, "arch.balance_loss"),
        ({"n_experts": 4, "balance_loss": 0.5}, None),
        ({"init": "gpt2", "init_std": 0.1}, "arch.init_std"),
        ({"init": "transformer_scaled", "init_std": 0.1}, "arch.init_std"),
        ({"init": "xavier", "init_std": 0.1}, None),
        ({"family": "lstm", "dropout_locked": True}, "arch.dropout_locked"),
        ({"family": "mingru", "dropout_locked": True, "dropout_embedding": 0.1}, None),
    ],
)  # fmt: skip
def test_a_number_that_nothing_looks_at_is_refused(arch: dict[str, Any], wrong: str | None) -> None:
    """Two values of it would be two runs of the same numbers."""
    assert list(problems(arch=arch)) == ([] if wrong is None else [wrong])


def test_max_time_is_a_time_above_0(refused: Refused) -> None:
    for given in ("0s", "soon", "auto"):
        refused("training.max_time", training={"max_time": given})


def test_what_does_not_follow_the_width_does_not_go_with_mup(refused: Refused) -> None:
    mup = {"init": "mup"}
    refused("optimizer.weight_decay", arch=mup, optimizer={"name": "adam", "weight_decay": 0.1})
    assert problems(arch=mup, optimizer={"name": "adam", "weight_decay": 0}) == {}
    assert problems(arch=mup, optimizer={"name": "adamw", "weight_decay": 0.1}) == {}
    refused("optimizer.grad_noise", arch=mup, optimizer={"grad_noise": 0.1})
    refused("arch.init", arch=mup, optimizer={"name": "sgd"})
