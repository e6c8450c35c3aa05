"""Runs with a model, an optimizer and a schedule of the user's: resume, counts, copies, changed code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forked import killed_at
from tests.own_plugins import MODEL, OPTIMIZER, SCHEDULE, forget_plugins, own_config, write_plugin
from tests.tiny_run import make_run, metrics_without_clock, outcome, run_here
from training.attempt.begin import CodeChanged, create_run
from training.attempt.plugin_copies import copies_of, hashes_of
from training.attempt.run_files import read_run
from training.plan.run_plan import make_plan

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget_plugins()
    yield
    forget_plugins()


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return write_plugin(tmp_path, MODEL, OPTIMIZER, SCHEDULE)


def test_counts_are_those_of_the_model(plugin: Path, tmp_path: Path) -> None:
    plan = make_plan(own_config(tmp_path, plugin), tokenize=True)
    width, hidden, vocab = 16, 8, 257
    matrices = 2 * width * hidden
    assert plan.non_embedding == matrices
    assert plan.parameters == 2 * vocab * width + matrices + hidden + width
    assert plan.flops_per_token == 6 * (matrices + vocab * width)
    assert math.isclose(plan.head_share, vocab * width / (matrices + vocab * width), rel_tol=1e-3)
    parts = plan.memory.estimate.at_host_peak()
    assert plan.memory.estimate.host_bytes > sum(parts.values()) * 0.99


def test_resume_after_kill_is_bit_for_bit(plugin: Path, tmp_path: Path) -> None:
    config = own_config(tmp_path, plugin)
    whole = make_run(config)
    assert run_here(whole, "--quiet").returncode == 0
    killed = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "killed")))
    import core

    assert killed_at("checkpoint:after_rename", lambda: core.main([str(killed), "--quiet"]), 2)
    assert run_here(killed, "--quiet").returncode == 0
    assert metrics_without_clock(killed) == metrics_without_clock(whole)
    assert len(read_run(killed)["attempts"]) == 2
    assert outcome(killed) == outcome(whole)


def test_run_computes_with_its_copy(plugin: Path, tmp_path: Path) -> None:
    folder = make_run(own_config(tmp_path, plugin, max_steps=3, evals=1))
    kept = copies_of(folder)[str(plugin)]
    assert kept.read_text() == plugin.read_text()
    plugin.write_text("raise SystemExit(3)")
    assert run_here(folder, "--quiet").returncode == 0
    assert read_run(folder)["attempts"][0]["code"]["plugins"] == hashes_of(folder)


def test_changed_plugin_is_changed_code(plugin: Path, tmp_path: Path) -> None:
    config = own_config(tmp_path, plugin, max_steps=12)
    folder = make_run(config)
    import core

    assert killed_at("checkpoint:after_rename", lambda: core.main([str(folder), "--quiet"]), 1)
    identity = read_run(folder)["identity"]
    plugin.write_text(plugin.read_text() + "\n# a comment\n")
    assert create_run(config, identity) == folder
    plugin.write_text(plugin.read_text().replace("1 - step", "1.0 - step"))
    with pytest.raises(CodeChanged) as changed:
        create_run(config, identity)
    assert [str(one) for one in changed.value.changes] == ["parts.py (+1 -1)"] or len(
        changed.value.changes
    ) == 1
    assert create_run(dataclasses.replace(config, code="any"), identity) == folder
    assert run_here(folder, "--quiet").returncode == 0


COUNTING = """
class Counting(torch.optim.Optimizer):
    def __init__(self, groups):
        super().__init__(groups, {"k": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["k"] += 1
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["sum"] = torch.zeros_like(weight, dtype=torch.float64)
                state["sum"] += weight.grad
                weight.sub_((group["lr"] * 0.1 * state["sum"] / group["k"] ** 0.5).to(weight.dtype))

@register.optimizer("plain")
def plain(groups, optimizer, options):
    return Counting(groups)
"""


def test_state_of_groups_and_of_other_types_is_resumed(tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path, MODEL, COUNTING, SCHEDULE)
    config = own_config(tmp_path, plugin)
    whole = make_run(config)
    assert run_here(whole, "--quiet").returncode == 0
    killed = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "killed")))
    import core

    assert killed_at("checkpoint:after_rename", lambda: core.main([str(killed), "--quiet"]), 2)
    assert run_here(killed, "--quiet").returncode == 0
    assert metrics_without_clock(killed) == metrics_without_clock(whole)
