"""A graphed step is the eager one, bit for bit, and is taken only where it can be and pays."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tiny_run import make_run, metrics_without_clock, mixed_config, outcome, run_here, tiny_config

import core
from conf.between_keys.gpu_rules import graph_obstacle
from conf.composing.check import check
from conf.schema import Arch, Config, Model, Optimizer
from experiment_utils.errors import UserError
from models import build_model
from tests.forked import killed_at
from tests.training.recorded_operations import RecordedOperations
from training.attempt.run_files import read_run, read_status, update_run
from training.devices.device import Device
from training.devices.step_clock import HostMark
from training.optimizers import build_optimizer
from training.step import graphed_step
from training.step import train_step as steps
from training.step.graphed_step import TIMED, WARM_UP, GraphedStep, settled_graph
from training.step.train_step import Step

STEPS = WARM_UP + 2 * TIMED + 4


@pytest.fixture(autouse=True)
def _rates_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "FP32_LR_ON", ("cpu", "cuda"))


def build(accumulation: int = 1, sources: int = 0, **optimizer: Any) -> Step:
    torch.manual_seed(0)
    model = build_model(Model(d_model=16, n_layers=2, n_heads=2), Arch(), 50, 8)
    return Step(
        model, build_optimizer(model, Optimizer(**optimizer), "cpu"), Device("cpu", "fp32", 1),
        accumulation=accumulation, loss_chunk=256, grad_clip=1.0, sources=sources,
    )  # fmt: skip


def batches(seed: int = 1) -> Iterator[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        ids = torch.randint(0, 50, (4, 9), generator=generator)
        source = torch.randint(0, 2, (4,), generator=generator)
        yield {"input_ids": ids[:, :-1], "labels": ids[:, 1:], "source": source}


def numbers(taker: Any, step: Step, count: int = STEPS) -> list[Any]:
    """All that each step reports, then all that a checkpoint holds."""
    given, found = batches(), []
    for number in range(count):
        result = taker.take(given, 0.01 / (number + 1), number)
        found.append([result.loss, result.grad_norm, result.norms, result.by_source])
    state = step.optimizer.state_dict()["state"]
    return [*found, step.model.state_dict(), state, torch.get_rng_state()]


def assert_equal(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("accumulation", "sources", "optimizer"),
    [(1, 0, "adamw"), (1, 2, "adam"), (2, 2, "adamw"), (3, 0, "adam")],
)
def test_graphed_steps_are_the_eager_ones_bit_for_bit(
    accumulation: int, sources: int, optimizer: str
) -> None:
    eager = build(accumulation, sources, name=optimizer)
    expected = numbers(eager, eager)
    step, graphs = build(accumulation, sources, name=optimizer), RecordedOperations()
    assert_equal(numbers(GraphedStep(step, graphs, HostMark, is_settled=True), step), expected)
    assert graphs.warm_ups == WARM_UP
    each = ["_begin_gradients", *["_add_gradients"] * (accumulation - 1), "_clip_and_move"]
    assert graphs.replays == each * (STEPS - WARM_UP)


class Marks:
    """Marks of a device: eager steps last 5 ms, replayed ones `replayed_s`, the first of these far longer."""

    def __init__(self, graphs: RecordedOperations, replayed_s: float) -> None:
        self.graphs, self.replayed_s, self.now_s, self.seen = graphs, replayed_s, 0.0, 0

    def __call__(self) -> Any:
        if len(self.graphs.replays) > self.seen:
            self.now_s += self.replayed_s if self.seen else 9.0
            self.seen = len(self.graphs.replays)
        else:
            self.now_s += 0.005
        return SimpleNamespace(at=self.now_s, wait=lambda: None, since=self.since(self.now_s))

    def since(self, now_s: float) -> Any:
        return lambda earlier: now_s - earlier.at


@pytest.mark.parametrize(("replayed_s", "pays"), [(0.001, True), (0.0049, False), (0.02, False)])
def test_auto_keeps_what_is_faster(replayed_s: float, pays: bool) -> None:
    eager = build()
    expected = numbers(eager, eager)
    step, graphs, settled = build(), RecordedOperations(), []
    found = GraphedStep(step, graphs, Marks(graphs, replayed_s), settle=settled.append)  # type: ignore[arg-type]
    assert_equal(numbers(found, step), expected)
    assert settled == [pays]
    assert graphs.kept_when_freed == ([] if pays else [0])
    taken = len(graphs.replays) // 2
    assert taken == (STEPS - WARM_UP - TIMED if pays else TIMED + 1)
    [group, *_] = step.optimizer.param_groups
    assert isinstance(group["lr"], torch.Tensor) == pays
    assert group["capturable"] == pays
    assert all((parameter.grad is not None) == pays for parameter in step.model.parameters())


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("not permitted\nmore")]
)
@pytest.mark.parametrize("is_settled", [False, True])
def test_a_step_that_cannot_be_recorded_is_eager_with_one_warning(
    error: Exception, is_settled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    eager = build(2)
    expected = numbers(eager, eager)
    step, settled = build(2), []
    graphs = RecordedOperations(fails=error)
    found = GraphedStep(step, graphs, HostMark, is_settled=is_settled, settle=settled.append)
    with caplog.at_level(logging.WARNING):
        assert_equal(numbers(found, step), expected)
    assert settled == [False]
    assert graphs.kept_when_freed == [0]
    assert len(caplog.records) == 1
    assert str(error).partition("\n")[0] in caplog.text
    assert not step.optimizer.param_groups[0]["capturable"]


def test_a_value_that_the_host_reads_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    step, settled = build(), []
    clip = step.clip
    monkeypatch.setattr(step, "clip", lambda: (clip()[0].item(), None))
    found = GraphedStep(step, RecordedOperations(), HostMark, is_settled=True, settle=settled.append)
    given = batches()
    for number in range(WARM_UP):
        found.take(given, 0.01, number)
    monkeypatch.setattr(step, "take", lambda *_: None)
    found.take(given, 0.01, WARM_UP)
    assert settled == [False]


OBSTACLES: list[tuple[str, dict[str, Any]]] = [
    ("training.device", {"training": {"device": "cpu"}}),
    ("training.compile", {"training": {"compile": True}}),
    ("training.profile", {"training": {"profile": "3:4"}}),
    ("training.activation_checkpointing", {"training": {"activation_checkpointing": True}}),
    ("training.on_spike", {"training": {"on_spike": "skip"}}),
    ("optimizer.name", {"optimizer": {"name": "lion"}}),
    ("optimizer.grad_noise", {"optimizer": {"grad_noise": 0.1}}),
    ("arch.dropout_*", {"arch": {"dropout_residual": 0.1}}),
    ("arch.n_experts", {"arch": {"n_experts": 4}}),
    ("arch.state_reset", {"arch": {"state_reset": 0.1, "family": "lstm"}}),
    ("dataset.documents", {"dataset": {"documents": "masked"}}),
]


@pytest.mark.parametrize(("key", "changes"), OBSTACLES, ids=[key for key, _ in OBSTACLES])
def test_what_no_graph_goes_with_is_refused_and_named(key: str, changes: dict[str, Any]) -> None:
    config = Config()
    assert graph_obstacle(config) is None
    for group, values in changes.items():
        config = dataclasses.replace(config, **{group: dataclasses.replace(getattr(config, group), **values)})
    assert (graph_obstacle(config) or "").startswith(f"{key}=")
    given = {"training": {}} | changes
    given["training"] = given["training"] | {"cuda_graph": True}
    found = {problem.where: problem.what for problem in check(given)[1]}
    assert f"{key}=" in found["training.cuda_graph"]


def a_run(cuda_graph: bool | str, kind: str = "cuda", ranks: int = 1, precision: str = "bf16") -> Any:
    config = Config()
    config.training.cuda_graph = cuda_graph
    device = SimpleNamespace(kind=kind, precision=precision)
    return cast(Any, SimpleNamespace(
        config=config, device=device, ranks=SimpleNamespace(is_alone=ranks == 1, size=ranks),
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("run", "kept", "settled"),
    [
        (a_run("auto"), "auto", "auto"),
        (a_run("auto"), True, True),
        (a_run("auto"), False, False),
        (a_run(True), False, True),
        (a_run(False), True, False),
        (a_run("auto", kind="cpu"), "auto", False),
        (a_run("auto", ranks=2), True, False),
        (a_run("auto", precision="fp16"), "auto", False),
    ],
)
def test_what_is_settled_before_the_first_step(run: Any, kept: bool | str, settled: bool | str) -> None:
    assert settled_graph(run, kept) == settled


@pytest.mark.parametrize("run", [a_run(True, "cpu"), a_run(True, ranks=2), a_run(True, precision="fp16")])
def test_a_graph_that_cannot_be_here_is_refused(run: Any) -> None:
    with pytest.raises(UserError, match="cuda_graph"):
        settled_graph(run)


def test_true_without_a_gpu_ends_with_the_users_exit_code(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, device="auto", cuda_graph=True)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    folder = make_run(config)
    assert run_here(folder, "--quiet").returncode == 2
    assert "training.cuda_graph" in read_status(folder)["reason"]


@pytest.fixture
def graphed_runs(monkeypatch: pytest.MonkeyPatch) -> list[RecordedOperations]:
    """Runs of this process take graphed steps, on the CPU. Returns the graphs of each attempt."""
    made: list[RecordedOperations] = []

    def graphs() -> RecordedOperations:
        made.append(RecordedOperations())
        return made[-1]

    monkeypatch.setattr(graphed_step, "CudaGraphs", graphs)
    monkeypatch.setattr(graphed_step, "settled_graph", lambda run, kept: kept)
    return made


@pytest.mark.parametrize("make_config", [tiny_config, pytest.param(mixed_config, marks=pytest.mark.slow)])
def test_a_graphed_run_has_the_numbers_of_an_eager_one(
    make_config: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = make_config(tmp_path, ema=0.9)
    eager = make_run(config)
    assert run_here(eager, "--quiet").returncode == 0
    made = request.getfixturevalue("graphed_runs")
    graphed = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "graphed")))
    assert run_here(graphed, "--quiet").returncode == 0
    assert made[0].replays
    assert metrics_without_clock(graphed) == metrics_without_clock(eager)
    assert outcome(graphed) == outcome(eager)
    assert read_run(graphed)["auto"]["cuda_graph"] in (True, False)


@pytest.mark.slow
def test_an_evaluation_without_memory_frees_the_graphs_and_the_run_continues(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph holds the memory of a step also while an evaluation needs some."""
    config = tiny_config(tmp_path)
    eager = make_run(config)
    assert run_here(eager, "--quiet").returncode == 0
    made = request.getfixturevalue("graphed_runs")
    monkeypatch.setattr(graphed_step, "settled_graph", lambda run, kept: True)
    evaluate, calls = core.evaluate_run, []

    def once_without_memory(*arguments: Any, **options: Any) -> float:
        calls.append(len(made[-1].replays))
        if len(calls) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return evaluate(*arguments, **options)

    monkeypatch.setattr(core, "evaluate_run", once_without_memory)
    graphed = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "graphed")))
    assert run_here(graphed, "--quiet").returncode == 0
    assert 0 < calls[1] == len(made[0].replays)
    assert read_run(graphed)["auto"]["cuda_graph"] is False
    assert outcome(graphed) == outcome(eager)


@pytest.mark.slow
def test_a_killed_graphed_run_resumes_with_the_same_numbers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its first steps are eager, where an undisturbed run has graphs; it knows already what pays."""
    config = tiny_config(tmp_path)
    eager = make_run(config)
    assert run_here(eager, "--quiet").returncode == 0
    made = request.getfixturevalue("graphed_runs")
    graphed = make_run(dataclasses.replace(config, runs_dir=str(tmp_path / "graphed")))
    assert killed_at("checkpoint:after_rename", lambda: run_here(graphed, "--quiet"), 3)
    run = read_run(graphed)
    run["auto"]["cuda_graph"] = True
    update_run(graphed, auto=run["auto"])
    assert run_here(graphed, "--quiet").returncode == 0
    assert read_run(graphed)["attempts"][-1]["resumed_from_step"] > 0
    assert made[-1].warm_ups == WARM_UP
    assert made[-1].replays
    assert metrics_without_clock(graphed) == metrics_without_clock(eager)
    assert outcome(graphed) == outcome(eager)
