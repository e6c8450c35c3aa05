"""Whatever decides a step is in a checkpoint: a run that is killed behind one is the undisturbed one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import copy_of, make_run, metrics_without_clock, outcome, run_here, tiny_config

from conf import Config
from conf.schema import Arch, Optimizer, Schedule
from tests.forked import killed_at
from tests.training.test_optimizers import option
from training.checkpoint.checkpoints import Checkpoints
from training.optimizers import OPTIMIZERS

SHORT = {"max_steps": 8, "evals": 2, "checkpoint_every": 5, "eval_tokens": 128}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"optimizer": option(name)} for name in sorted(OPTIMIZERS)},
    "ema": {"training": {"ema": 0.9}},
    "noise": {"optimizer": Optimizer(grad_noise=0.01)},
    "dropout": {"arch": Arch(dropout_embedding=0.1, dropout_attention=0.1, dropout_residual=0.1)},
    "experts": {"arch": Arch(n_experts=4, init="gpt2", z_loss=1e-3, logit_softcap=15.0, head_bias=True)},
    "lstm": {
        "arch": Arch(
            family="lstm", bias="linear", dropout_residual=0.1, dropout_recurrent=0.1, dropout_locked=True
        )
    },
    "states of rows": {
        "arch": Arch(family="lstm", bias="linear", state_reset=0.2),
        "dataset": {"windows": "streams"},
    },
    "states of rows of a minGRU": {
        "arch": Arch(family="mingru", state_reset=0.0),
        "dataset": {"windows": "streams"},
        "training": {"activation_checkpointing": True, "micro_batch": 1},
    },
    "mingru": {"arch": Arch(family="mingru", dropout_residual=0.1)},
    "mup": {"arch": Arch(init="completep", base_width=16)},
    "wsd": {"schedule": Schedule("wsd", warmup_steps=3, decay_fraction=0.3)},
}


def config_of(case: dict[str, Any], folder: Path) -> Config:
    config = tiny_config(folder, **SHORT, **case.get("training", {}))
    config = dataclasses.replace(config, optimizer=case.get("optimizer", config.optimizer))
    config = dataclasses.replace(config, arch=case.get("arch", config.arch))
    config = dataclasses.replace(
        config, dataset=dataclasses.replace(config.dataset, **case.get("dataset", {}))
    )
    schedule = Schedule("stable") if config.optimizer.name == "schedule_free" else config.schedule
    return dataclasses.replace(config, schedule=case.get("schedule", schedule))


QUICK = {"adamw", "muon", "schedule_free", "ema", "dropout", "states of rows", "wsd"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CASES]
)
def test_killed_after_a_checkpoint(name: str, tmp_path: Path) -> None:
    config = config_of(CASES[name], tmp_path)
    undisturbed, killed = make_run(config), copy_of(config, tmp_path / "killed")
    assert run_here(undisturbed, "--quiet").returncode == 0
    # The second checkpoint is that of step 5: the first evaluation, the best so far, has its own at 4.
    assert killed_at("checkpoint:after_rename", lambda: run_here(killed, "--quiet"), count=2)
    assert run_here(killed, "--quiet").returncode == 0
    assert outcome(killed) == outcome(undisturbed)


@pytest.mark.parametrize("name", ["ema", "schedule_free"])
def test_what_is_evaluated_stands_in_the_checkpoint(name: str, tmp_path: Path) -> None:
    """The loss of model.safetensors is the val loss; the weights as trained are others."""
    from data_loading import open_held_out, prepare_data
    from models import build_model
    from training.devices.device import Device
    from training.evaluation.evaluate import evaluate

    config = config_of(CASES[name], tmp_path)
    folder = make_run(config)
    assert run_here(folder, "--quiet").returncode == 0
    checkpoint = Checkpoints(folder / "checkpoints", 2).newest()
    assert checkpoint is not None
    data = prepare_data(config.dataset, config.tokenizer, tokenize=False, log=print)
    model = build_model(config.model, config.arch, data.vocab_size, 16)
    losses = []
    trained = {key.removeprefix("trained."): value for key, value in checkpoint.training.items()}
    for weights in (checkpoint.weights, {key: trained[key] for key in checkpoint.weights}):
        model.load_state_dict(weights)
        val = open_held_out(data, "val", config.dataset, 16)
        found = evaluate(
            model, val, windows=8, batch_size=2, loss_chunk=16384, device=Device("cpu", "fp32", 1)
        )
        losses.append(found.loss)
    val_loss = float(metrics_without_clock(folder)[-1]["val_loss"])
    assert losses[0] == pytest.approx(val_loss, abs=1e-6)
    assert abs(losses[1] - val_loss) > 1e-3


def test_noise_is_what_seed_and_step_say() -> None:
    from training.step.gradient_noise import add_noise, deviation

    def drawn(step: int, seed: int) -> torch.Tensor:
        parameter = torch.nn.Parameter(torch.zeros(100_000))
        parameter.grad = torch.zeros_like(parameter)
        add_noise([parameter], 0.3, step, seed)
        return parameter.grad

    assert torch.equal(drawn(5, 1), drawn(5, 1))
    assert not torch.equal(drawn(5, 1), drawn(6, 1))
    assert not torch.equal(drawn(5, 1), drawn(5, 2))
    for step in (0, 5, 500):
        assert deviation(0.3, step) == pytest.approx((0.3 / (1 + step) ** 0.55) ** 0.5)
        assert drawn(step, 1).std().item() == pytest.approx(deviation(0.3, step), rel=0.02)


@pytest.mark.parametrize("steps", [3, 200])
def test_the_moving_average_is_its_formula(steps: int) -> None:
    from training.step.weight_average import Ema, evaluated

    torch.manual_seed(0)
    model = torch.nn.Linear(5, 3)
    ema = Ema(model, 0.9)
    expected = {name: p.detach().double().clone() for name, p in model.named_parameters()}
    for step in range(1, steps + 1):
        for parameter in model.parameters():
            parameter.data = torch.randn_like(parameter)
        ema.after_step(step)
        decay = min(0.9, (1 + step) / (10 + step))
        for name, parameter in model.named_parameters():
            expected[name] = decay * expected[name] + (1 - decay) * parameter.detach().double()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with evaluated(model, ema):
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(parameter.detach().double(), expected[name], rtol=1e-5, atol=1e-6)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
