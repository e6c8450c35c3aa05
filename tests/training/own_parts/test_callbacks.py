"""Registered callbacks: they see a run, keep their state through a resume, and change no loss."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from tiny_run import column, copy_of, make_run, outcome, run_here

from conf.own_parts.use import use_plugins
from conf.schema import Arch
from experiment_utils.errors import UserError
from tests.forked import killed_at
from tests.own_plugins import forget_plugins
from tests.training.own_parts.conftest import Own
from training.attempt.run_files import read_status
from training.checkpoint.checkpoints import Checkpoints
from training.own_parts.facts import facts_of

WATCHER = """
import torch
from highwater import register

@register.callback("watcher")
class Watcher:
    def __init__(self):
        self.calls, self.mean = [], torch.zeros(())

    def on_step(self, view):
        torch.rand(7)
        view.model.eval()
        self.mean = 0.5 * self.mean + view.loss
        self.calls.append(["step", view.step, view.tokens, view.lr])

    def on_eval(self, view):
        self.calls.append(["eval", view.step, view.val_loss])
        with torch.enable_grad():
            view.model(torch.zeros(1, 4, dtype=torch.long)).sum().backward()

    def on_checkpoint(self, view):
        (view.folder / f"{view.step}").write_text("here")

    def state_dict(self):
        return {"calls": self.calls, "mean": self.mean}

    def load_state_dict(self, state):
        self.calls, self.mean = state["calls"], state["mean"]
"""


def state_of(folder: Path) -> tuple[list[list[object]], float]:
    checkpoint = Checkpoints(folder / "checkpoints", 2).newest()
    assert checkpoint is not None
    return checkpoint.state["callbacks"]["watcher"]["calls"], checkpoint.training[
        "callback.watcher.mean"
    ].item()


def test_losses_are_those_without_a_callback(own: Own, tmp_path: Path) -> None:
    config = dataclasses.replace(
        own(WATCHER, callbacks=["watcher"]), arch=Arch(dropout_embedding=0.1, dropout_residual=0.1)
    )
    training = dataclasses.replace(config.training, callbacks=[])
    plain = dataclasses.replace(config, training=training, runs_dir=str(tmp_path / "plain"))
    folders = [make_run(config), make_run(plain)]
    for folder in folders:
        assert run_here(folder, "--quiet").returncode == 0
    for name in ("train_loss", "val_loss", "grad_norm"):
        assert column(folders[0], name) == column(folders[1], name)
    calls, _ = state_of(folders[0])
    assert [call[1] for call in calls if call[0] == "step"] == [*range(1, 9)]
    assert [call[2] for call in calls if call[0] == "eval"] == column(folders[0], "val_loss")
    assert {path.name for path in (folders[0] / "own" / "watcher").iterdir()} == {"4", "5", "8"}


def test_state_is_restored_after_a_kill(own: Own, tmp_path: Path) -> None:
    config = own(WATCHER, callbacks=["watcher"])
    undisturbed, killed = make_run(config), copy_of(config, tmp_path / "killed")
    assert run_here(undisturbed, "--quiet").returncode == 0
    assert killed_at("checkpoint:after_rename", lambda: run_here(killed, "--quiet"), count=2)
    assert run_here(killed, "--quiet").returncode == 0
    assert outcome(killed) == outcome(undisturbed)
    assert state_of(killed) == state_of(undisturbed)
    assert state_of(killed)[1] > 0


@pytest.mark.parametrize(
    ("body", "line"),
    [("next(view.model.parameters()).mul_(2)", 4), ("raise ValueError('enough')", 7)],
    ids=["changes a weight", "fails"],
)
def test_a_callback_that_does_wrong_ends_the_run(own: Own, body: str, line: int) -> None:
    source = (
        "import torch\nfrom highwater import register\n\n@register.callback('watcher')\nclass Watcher:\n"
        f"    def on_step(self, view):\n        if view.step == 3: {body}\n"
    )
    folder = make_run(own(source, callbacks=["watcher"]))
    forget_plugins()  # a run begins in a process of its own
    assert run_here(folder, "--quiet").returncode == 2
    status = read_status(folder)
    assert status["state"] == "failed"
    assert f"mine.py:{line}:" in status["reason"]


METHODS = "    def on_step(self, view): pass\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("    pass\n", "callback-method"),
        ("    def on_steps(self, view): pass\n", "callback-method"),
        (METHODS + "    def state_dict(self): return {}\n", "callback-method"),
        ("    def on_eval(self, view): view.nothing\n", "part-fails"),
        ("    def on_step(self, view): next(view.model.parameters()).zero_()\n", "part-changes-weights"),
        (
            METHODS + "    def state_dict(self): return {'a': {1, 2}}\n"
            "    def load_state_dict(self, state): pass\n",
            "callback-state",
        ),
        ("    def __init__(self): raise OSError('no')\n" + METHODS, "part-fails"),
    ],
)
def test_wrong_callbacks_are_refused(own: Own, body: str, code: str) -> None:
    source = f"from highwater import register\n@register.callback('watcher')\nclass Watcher:\n{body}"
    config = own(source, callbacks=["watcher"])
    use_plugins(config.plugins, around=False)
    with pytest.raises(UserError) as raised:
        facts_of(config, 64)
    assert raised.value.problems[0].code == code
    assert raised.value.problems[0].where.startswith(f"{config.plugins[0]}:")


def test_random_numbers_stay_as_they_were(own: Own) -> None:
    from conf.parts_table import Part
    from training.own_parts.step_view import Guard

    before = torch.get_rng_state()
    part = Part("callback", "mine", "mine.py", Path("mine.py"), 1)
    assert Guard(torch.nn.Linear(1, 1)).call(part, torch.rand, 3).shape == (3,)
    expected = torch.nn.Linear(1, 1)
    torch.set_rng_state(before)
    torch.nn.Linear(1, 1)  # the guard's
    assert torch.equal(torch.nn.Linear(1, 1).weight, expected.weight)
