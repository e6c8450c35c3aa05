"""Times are those of the device: a simulated one that computes behind the host, on a virtual clock."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_run import make_run, run_here, tiny_config

from training.attempt.run_files import read_run, read_status
from training.devices import step_clock
from training.devices.step_clock import AHEAD_S, LEAST_AHEAD, HostMark, StepClock
from training.report import progress
from training.run import loop
from training.step.train_step import Step, StepResult

DEVICE_S, LAUNCH_S = 0.02, 0.002
TOKENS = 16 * 4


class SimulatedDevice:
    """Takes `device_s` for a step. The host takes LAUNCH_S to hand one over, and waits if the queue is full.

    now_s: the host's clock. free_s: when the device has done all it was given.
    """

    def __init__(self, queue: int, device_s: float = DEVICE_S) -> None:
        self.queue, self.device_s = queue, device_s
        self.now_s = self.free_s = 1000.0
        self.ends: list[float] = []
        self.longest_wait_s = 0.0

    def hand_over(self) -> None:
        waiting = [end for end in self.ends if end > self.now_s]
        if len(waiting) >= self.queue:
            self.wait_until(waiting[-self.queue])
        self.now_s += LAUNCH_S
        self.free_s = max(self.free_s, self.now_s) + self.device_s
        self.ends.append(self.free_s)

    def wait_until(self, at_s: float) -> None:
        self.longest_wait_s = max(self.longest_wait_s, at_s - self.now_s)
        self.now_s = max(self.now_s, at_s)

    def mark(self) -> SimulatedMark:
        return SimulatedMark(self)


class SimulatedMark:
    def __init__(self, device: SimulatedDevice) -> None:
        self.device, self.at_s = device, max(device.free_s, device.now_s)

    def wait(self) -> None:
        self.device.wait_until(self.at_s)

    def since(self, earlier: SimulatedMark) -> float:
        assert self.device.now_s >= self.at_s  # as CUDA, which knows no time of an event to come
        return self.at_s - earlier.at_s


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SimulatedDevice]:
    """Runs of this process are computed once and then only simulated."""

    def simulated(queue: int, device_s: float = DEVICE_S) -> SimulatedDevice:
        device = SimulatedDevice(queue, device_s)
        take, read, first = Step.take, progress.read_scalars, []

        def handed_over(step: Step, batches: Iterator[Any], lr: float, number: int) -> StepResult:
            if first:
                next(batches)
            else:
                first.append(take(step, batches, lr, number))
            device.hand_over()
            return first[0]

        def read_when_done(results: Any) -> Any:
            device.wait_until(device.free_s)
            return read(results)

        monkeypatch.setattr(Step, "take", handed_over)
        monkeypatch.setattr(progress, "read_scalars", read_when_done)
        monkeypatch.setattr(loop, "marker_of", lambda _: device.mark)
        monkeypatch.setattr(step_clock, "time", SimpleNamespace(monotonic=lambda: device.now_s))
        return device

    return simulated


@pytest.mark.parametrize("queue", [4, 20, 1000])
def test_rows_and_train_seconds_are_those_of_the_device(
    queue: int, simulate: Callable[..., SimulatedDevice], tmp_path: Path
) -> None:
    device = simulate(queue)
    options = {"micro_batch": 4, "evals": 1, "checkpoint_every": 100}
    config = tiny_config(tmp_path, max_steps=200, **options)
    config.memory.every_steps = 100
    folder = make_run(config)
    assert run_here(folder, "--quiet").returncode == 0
    sections = 3  # up to step 1, 100 and 200: in each the device waits for its first step
    true_s = 200 * DEVICE_S + sections * LAUNCH_S
    results = read_run(folder)["results"]
    assert results["train_seconds"] == pytest.approx(true_s, rel=0.02)
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    speeds = [float(row["tokens_per_s"]) for row in rows]
    for step, speed in enumerate(speeds, 1):
        lasted_s = DEVICE_S + (LAUNCH_S if step in (1, 2, 101) else 0.0)
        assert speed == pytest.approx(TOKENS / lasted_s, rel=0.02), step
    assert float(rows[-1]["seconds"]) == pytest.approx(true_s, rel=0.02)
    assert len(device.ends) == 200


def test_max_time_ends_a_run_by_the_time_of_the_device(
    simulate: Callable[..., SimulatedDevice], tmp_path: Path
) -> None:
    simulate(1000)
    config = tiny_config(tmp_path, max_steps=500, micro_batch=4, evals=1, checkpoint_every=500, max_time="2s")
    config.memory.every_steps = 500
    folder = make_run(config)
    assert run_here(folder, "--quiet").returncode == 1
    step = read_status(folder)["step"]
    assert 2.0 <= step * DEVICE_S + LAUNCH_S <= 2.0 + AHEAD_S + 2 * DEVICE_S


@pytest.mark.parametrize("device_s", [0.0001, 0.02, 3.0])
def test_the_host_runs_ahead_by_a_quarter_of_a_second_or_two_steps(
    device_s: float, simulate: Callable[..., SimulatedDevice]
) -> None:
    """A stop that is asked for waits no longer than that; the device never waits for the host."""
    device = simulate(1000, device_s)
    clock = StepClock(device.mark)
    clock.begin(0.0)
    for _ in range(500):
        device.hand_over()
        clock.step()
    assert device.free_s - device.now_s <= max(AHEAD_S, LEAST_AHEAD * device_s) + device_s
    assert device.ends[-1] - device.ends[9] == pytest.approx(490 * max(device_s, LAUNCH_S), rel=0.01)


def test_seconds_add_up_over_sections_without_what_lies_between(
    simulate: Callable[..., SimulatedDevice],
) -> None:
    device = simulate(1000)
    clock = StepClock(device.mark)
    clock.begin(5.0)
    for _ in range(3):
        device.hand_over()
        first = clock.step()
    train_s = clock.end()
    assert train_s == pytest.approx(5.0 + 3 * DEVICE_S + LAUNCH_S)
    assert first.seconds() == pytest.approx(train_s)
    device.now_s += 60.0  # an evaluation
    clock.begin(train_s)
    device.hand_over()
    last = clock.step()
    assert clock.end() == pytest.approx(train_s + DEVICE_S + LAUNCH_S)
    assert last.seconds() == pytest.approx(clock.now())


def test_a_host_that_computes_has_its_own_clock() -> None:
    clock = StepClock(HostMark)
    clock.begin(1.0)
    seconds = [clock.step().seconds() for _ in range(3)]
    assert seconds == sorted(seconds)
    assert 1.0 <= seconds[0] <= clock.now() <= clock.end()
