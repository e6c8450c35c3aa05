"""Steps that stand far out are skipped by a robust rule; gradients that are not finite are named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import copy_of, make_run, metrics_without_clock, outcome, run_here, tiny_config

from conf.schema import Arch, Model, Training
from models import build_model
from tests.forked import killed_at
from tests.golden_text import Golden
from training.attempt.run_files import read_run, read_status
from training.step.gradients import clipped, where_not_finite
from training.step.spike_guard import IN_A_ROW, Diverged, SpikeGuard
from training.step.train_step import Step


def guard(**options: Any) -> SpikeGuard:
    return SpikeGuard(Training(on_spike="skip", **({"spike_window": 10} | options)))


def refuses(of: SpikeGuard, loss: float, norm: float = 1.0) -> bool:
    return of.refuses(torch.tensor(loss), torch.tensor(norm), 7)


def test_what_is_a_spike() -> None:
    found = guard()
    assert not any(refuses(found, 5.0 + 0.1 * (step % 3)) for step in range(9))
    assert not refuses(found, 50.0), "of too few steps nothing is said"
    assert not refuses(found, 5.5), "one outlier among those seen moves neither median nor deviation much"
    assert refuses(found, 50.0)
    assert refuses(found, 5.0, norm=1.2)
    assert not refuses(found, 5.0, norm=1.05)
    assert not refuses(found, 0.1), "better is no spike"
    for bad in (float("nan"), float("inf")):
        assert refuses(found, bad)
        assert refuses(found, 5.0, bad)
    assert found.skipped == 6
    assert refuses(guard(), float("nan")), "what is not finite is one from the first step on"


def test_the_threshold_is_in_robust_deviations() -> None:
    """Of 1 to 10: median 5.5, median absolute deviation 2.5, so that 10 deviations end at 42.565."""
    for loss, is_one in ((42.5, False), (42.6, True)):
        found = guard(spike_threshold=10.0)
        assert not any(refuses(found, float(value)) for value in range(1, 11))
        assert refuses(found, loss) is is_one


def test_a_state_is_gone_on_with() -> None:
    one, two = guard(), guard()
    values = [5.0 + 0.1 * (step % 4) for step in range(12)]
    for value in values:
        refuses(one, value)
    two.load(one.state())
    for value in (5.3, 9.0, 5.1, 6.0):
        assert refuses(one, value) == refuses(two, value)
    assert one.state() == two.state()


def test_skipping_does_not_help_for_ever() -> None:
    found = guard()
    for _ in range(IN_A_ROW):
        assert refuses(found, float("nan"))
    with pytest.raises(Diverged, match=r"\b10\b"):
        refuses(found, float("nan"))


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of the steps that read a certain batch is a hundred times as large, in any attempt."""
    take = Step.take

    def with_spike(step: Step, batches: Any, lr: float, number: int) -> Any:
        hits = []

        def each() -> Any:
            for batch in batches:
                hits.append(batch["input_ids"].sum().item() % 9 == 0)
                yield batch

        whole = step.parallel.__class__.__call__

        def larger(self: Any, *arguments: Any, **named: Any) -> torch.Tensor:
            loss: torch.Tensor = whole(self, *arguments, **named)
            return loss * (100.0 if hits[-1] else 1.0)

        monkeypatch.setattr(step.parallel.__class__, "__call__", larger)
        try:
            return take(step, each(), lr, number)
        finally:
            monkeypatch.setattr(step.parallel.__class__, "__call__", whole)

    monkeypatch.setattr(Step, "take", with_spike)


def test_a_run_skips_them_and_resumes_exactly(poisoned: None, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, on_spike="skip", spike_window=6, checkpoint_every=5)
    folder, killed = make_run(config), copy_of(config, tmp_path / "killed")
    assert run_here(folder, "--quiet").returncode == 0
    skipped = read_run(folder)["results"]["skipped_steps"]
    assert skipped == (folder / "log.txt").read_text().count(" skipped: ") > 0
    rows = metrics_without_clock(folder)
    assert len(rows) == 40
    assert sum(float(row["train_loss"]) > 20 for row in rows) >= skipped
    assert float(rows[-1]["val_loss"]) < float(rows[9]["val_loss"])
    assert killed_at("checkpoint:after_rename", lambda: run_here(killed, "--quiet"), count=5)
    assert run_here(killed, "--quiet").returncode == 0
    assert outcome(killed) == outcome(folder)
    assert read_run(killed)["results"]["skipped_steps"] == skipped


@pytest.mark.parametrize("limit", [0.1, 1e9, float("inf")])
def test_clipping_is_that_of_torch_bit_for_bit(limit: float) -> None:
    torch.manual_seed(0)
    parameters = list(build_model(Model(d_model=32), Arch(), 40, 12).parameters())
    gradients = [torch.randn_like(parameter) for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    total, norms = clipped(parameters, limit)
    assert norms is not None
    assert norms.tolist() == pytest.approx([gradient.norm().item() for gradient in gradients])
    ours = [parameter.grad for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    assert torch.equal(total, torch.nn.utils.clip_grad_norm_(parameters, limit))
    assert all(torch.equal(a, b.grad) for a, b in zip(ours, parameters, strict=True) if a is not None)
    parameters[1].grad = None
    assert clipped(parameters, limit)[1] is None


def test_gradients_that_are_not_finite_are_named_from_the_loss_on(golden: Golden) -> None:
    names = ["a", "b", "c", "d", "e"]
    told = where_not_finite(names, [float("nan"), float("inf"), 1.0, float("nan"), float("nan")])
    assert "e, d, b" in told
    golden.text(f"{told}\n{where_not_finite(names, [1e30] * 5)}")
    assert where_not_finite(names, None) == ""


@pytest.mark.parametrize("where", ["backward", "forward"])
def test_a_run_names_them(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    from models.layers.blocks import PreNorm as Block

    forward = Block.forward

    def broken(self: Any, x: torch.Tensor, *others: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(self, x, *others)
        if where == "forward":
            return forward(self, x * float("nan"), *others)
        x.register_hook(lambda gradient: gradient * float("nan"))
        return forward(self, x, *others)

    monkeypatch.setattr(Block, "forward", broken)
    config = tiny_config(tmp_path)
    folder = make_run(dataclasses.replace(config, model=dataclasses.replace(config.model, n_layers=2)))
    assert run_here(folder, "--quiet").returncode == 1
    reason = read_status(folder)["reason"]
    assert ("blocks.0." in reason) == (where == "backward")
    golden.text(reason, numbers=False)
