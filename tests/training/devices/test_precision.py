"""Value of `auto` on a device, and fp16: a scaled loss, steps left out on it, a scale that resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import copy_of, make_run, outcome, run_here, tiny_config

from conf.schema import Arch, Model, Optimizer, Training
from experiment_utils.errors import UserError
from models import build_model
from tests.forked import killed_at
from training.devices.device import Device
from training.devices.precision import resolve_precision
from training.optimizers import build_optimizer
from training.step.train_step import Step


@pytest.mark.parametrize(
    ("capability", "options", "precision"),
    [
        ((9, 0), {}, "bf16"),
        ((8, 0), {}, "bf16"),
        ((7, 5), {}, "fp16"),
        ((7, 0), {}, "fp16"),
        ((6, 1), {}, "fp32"),
        ((7, 0), {"parallel": "fsdp"}, "fp32"),
        ((7, 0), {"on_spike": "skip"}, "fp32"),
        ((7, 0), {"precision": "bf16"}, "bf16"),
        ((9, 0), {"precision": "fp16"}, "fp16"),
    ],
)
def test_auto_is_what_the_gpu_has(
    capability: tuple[int, int], options: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert resolve_precision(Training(**options), {}, "cuda") == precision
    assert resolve_precision(Training(), {}, "cpu") == "fp32"
    assert resolve_precision(Training(), {"precision": "fp32"}, "cuda") == "fp32"


def test_an_ensemble_has_no_fp16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    assert resolve_precision(Training(), {}, "cuda", is_ensemble=True) == "fp32"
    with pytest.raises(UserError, match="ensemble"):
        resolve_precision(Training(precision="fp16"), {}, "cuda", is_ensemble=True)


def test_fp16_on_a_cpu_that_auto_chose_is_refused(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    folder = make_run(tiny_config(tmp_path, device="auto", precision="fp16"))
    assert run_here(folder, "--quiet").returncode == 2


def build(precision: str, scale: float | None = None) -> Step:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=1, n_heads=1), Arch(), 50, 8)
    scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale)
    return Step(
        model, build_optimizer(model, Optimizer(), "cpu"), Device("cpu", precision, 1), accumulation=2,
        loss_chunk=256, grad_clip=1.0, scaler=scaler,
    )  # fmt: skip


def batch(number: int = 0) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 50, (4, 9), generator=torch.Generator().manual_seed(number))
    return {"input_ids": ids[:, :-1], "labels": ids[:, 1:]}


def test_fp16_steps_are_those_of_fp32_to_its_digits() -> None:
    """The scale is in no number that is reported: loss and norm are those of the gradients as they are."""
    steps = [build("fp32"), build("fp16", 2.0**10), build("fp16", 2.0**14)]
    found = []
    for step in steps:
        results = [step.take(iter([batch(n), batch(n + 100)]), 0.01, n) for n in range(20)]
        found.append(torch.tensor([[result.loss, result.grad_norm] for result in results]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(found[2], found[1], rtol=1e-2, atol=1e-3)


def test_a_step_whose_gradients_overflow_moves_nothing_and_halves_the_scale() -> None:
    step = build("fp16", 2.0**40)
    step.take(iter([batch(), batch(1)]), 0.01, 0)
    before = {name: tensor.clone() for name, tensor in step.model.state_dict().items()}
    result = step.take(iter([batch(), batch(1)]), 0.01, 1)
    assert result.is_scaled
    assert result.loss.isfinite()
    assert not result.grad_norm.isfinite()
    for name, tensor in step.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert {float(state["step"]) for state in step.optimizer.state.values()} == {0.0}
    assert step.scaler is not None
    assert step.scaler.get_scale() == 2.0**38
    for number in range(30):
        result = step.take(iter([batch(), batch(1)]), 0.01, number)
    assert result.grad_norm.isfinite()
    assert not torch.equal(step.model.state_dict()["embedding.weight"], before["embedding.weight"])


@pytest.fixture
def _fp16_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.devices.device.resolve_precision", lambda *_, **__: "fp16")
    monkeypatch.setattr(
        "training.run.loop.loss_scaler",
        lambda *_: torch.amp.GradScaler("cpu", init_scale=2.0**26, growth_interval=5),
    )


@pytest.mark.usefixtures("_fp16_on_a_cpu")
def test_a_killed_fp16_run_resumes_with_its_scale(tmp_path: Path) -> None:
    config = tiny_config(tmp_path)
    folder, killed = make_run(config), copy_of(config, tmp_path / "killed")
    assert run_here(folder, "--quiet").returncode == 0
    assert (folder / "log.txt").read_text().count("fp16:") > 0
    state = json.loads(next((folder / "checkpoints").glob("step-*0/state.json")).read_text())
    assert state["loss_scale"]["scale"] != 2.0**26
    assert killed_at("checkpoint:after_rename", lambda: run_here(killed, "--quiet"), 3)
    assert run_here(killed, "--quiet").returncode == 0
    assert outcome(killed) == outcome(folder)
    rows = (folder / "metrics.csv").read_text()
    assert "inf" in rows
