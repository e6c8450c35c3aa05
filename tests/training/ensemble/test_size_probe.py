"""How many runs go together: what takes all of them the least time, and never more than one after another."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_run import make_run, tiny_config

from conf.between_keys.ensembles import members_of
from conf.schema import Ensemble
from tests.golden_text import Golden
from tests.training.recorded_operations import RecordedOperations
from training.attempt.run_files import update_run
from training.devices.device import Device
from training.ensemble import graphed
from training.ensemble import size_probe as ensemble_probe
from training.ensemble.graphed import may_be_graphed
from training.ensemble.size_probe import choose, probe, settle_together
from training.step import graphed_step


def test_the_size_with_which_all_take_the_least_time() -> None:
    found = choose({1: [1.0], 2: [1.6], 4: [2.4], 8: [6.4]}, 8)
    assert found.together == 4
    assert found.speedups == pytest.approx({2: 1.25, 4: 8 / 4.8, 8: 1.25})
    assert "4 at a time" in found.words(8)


def test_a_last_group_that_is_smaller_counts() -> None:
    assert choose({1: [1.0], 2: [1.6], 4: [3.0], 5: [3.5]}, 5).together == 5
    assert choose({1: [1.0], 4: [3.9], 5: [5.5]}, 5).together == 1, "of 4 at a time one is left over"


def test_what_does_not_pay_is_left_and_said(golden: Golden) -> None:
    found = choose({1: [1.0], 2: [1.98], 4: [4.5]}, 4)
    assert found.together == 1
    golden.text(found.words(4))


def test_what_pays_in_some_rounds_alone_is_left() -> None:
    alone = [1.0] * 5
    assert choose({1: alone, 2: [1.8, 1.8, 1.8, 2.1, 2.2]}, 2).together == 1
    assert choose({1: alone, 2: [1.8, 1.8, 1.8, 1.9, 2.2]}, 2).together == 2, "one round may be disturbed"
    slower = choose({1: alone, 2: [1.7] * 5, 4: [3.2, 3.2, 3.2, 4.2, 4.2]}, 4)
    assert slower.together == 2, "the one that looks fastest is not sure"
    drifting = {1: [1.0, 2.0, 4.0], 2: [1.6, 3.2, 6.4]}
    assert choose(drifting, 2).speedups == pytest.approx({2: 1.25}), "of the same round"


def test_steps_are_taken_and_leave_nothing_behind(tmp_path: Path) -> None:
    base = tiny_config(tmp_path)
    make_run(base)  # whose tokens it needs
    before = torch.get_rng_state()
    found = probe(base, 3)
    assert set(found.speedups) == {2, 3}
    assert torch.equal(torch.get_rng_state(), before)


def test_the_device_is_taken_before_the_first_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuBLAS reads CUBLAS_WORKSPACE_CONFIG once: after a product without it none is deterministic."""
    import torch

    from training.devices import device
    from training.ensemble import size_probe as module

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    asked = device.Device("cpu", "fp32", 1, "high", is_deterministic=True)
    monkeypatch.setattr(device, "resolve_device", lambda training, kept, **how: asked)
    seen, step_of = [], module._step_of

    def watched(*arguments: Any) -> Callable[[], None]:
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()))
        seen.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG"))
        return step_of(*arguments)

    monkeypatch.setattr(module, "_step_of", watched)
    base = tiny_config(tmp_path)
    make_run(base)
    try:
        probe(base, 2)
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
    assert seen == [(True, "high"), ":4096:8"] * 2


def test_the_probe_steps_as_many_settings_as_the_members_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Ensemble(lr=["1e-3", "2e-3"], seed=["0", "1"])
    base = tiny_config(tmp_path)
    make_run(base)
    folders = [make_run(member) for member in members_of(dataclasses.replace(base, ensemble=asked))]
    from training.ensemble.update import StackedOptimizer

    lrs, step = [], StackedOptimizer.step
    monkeypatch.setattr(
        StackedOptimizer, "step", lambda self, given: (lrs.append(tuple(given.values())), step(self, given))
    )
    settle_together(folders, 4)
    assert set(lrs) == {(0.0, 1.0), (0.0, 0.0, 1.0, 1.0)}


def test_a_run_by_itself_is_timed_with_the_graphs_it_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = RecordedOperations()
    monkeypatch.setattr(graphed, "may_be_graphed", lambda *_: True)
    monkeypatch.setattr(graphed_step, "CudaGraphs", lambda: graphs)
    base = tiny_config(tmp_path, cuda_graph=True)
    make_run(base)
    assert set(probe(base, 2).speedups) == {2}
    timed = graphs.replays[2 * (graphed_step.SETTLED - graphed_step.WARM_UP) :]
    assert len(timed) >= 6
    assert set(timed) == {"_begin_gradients", "_clip_and_move", "on_its_place"}


def test_graphs_are_of_a_gpu_and_of_what_they_go_with(tmp_path: Path) -> None:
    gpu, cpu = Device("cuda", "bf16", 1), Device("cpu", "fp32", 1)
    assert may_be_graphed(tiny_config(tmp_path, device="auto"), gpu)
    assert not may_be_graphed(tiny_config(tmp_path, device="auto"), cpu)
    for changes in ({"cuda_graph": False}, {"on_spike": "skip"}):
        assert not may_be_graphed(tiny_config(tmp_path, device="auto", **changes), gpu)


def test_what_an_earlier_attempt_settled_stays(tmp_path: Path) -> None:
    members = members_of(dataclasses.replace(tiny_config(tmp_path), ensemble=Ensemble(seed=["0", "1"])))
    folders = [make_run(member) for member in members]
    update_run(folders[1], ensemble={"members": [], "together": 2})
    assert settle_together(folders, 2) == 2
    asked = [make_run(dataclasses.replace(member, ensemble=Ensemble(together=1))) for member in members]
    assert settle_together(asked, 2) == 1


def test_sizes_that_a_gpu_has_no_room_for_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def step_of(plan: Any, device: Any, size: int, settings: int = 1) -> Callable[[], None]:
        def step() -> None:
            asked.append(size)
            if size >= 4:
                raise torch.OutOfMemoryError("CUDA out of memory")

        return step

    monkeypatch.setattr(ensemble_probe, "_step_of", step_of)
    make_run(tiny_config(tmp_path, micro_batch=4))  # whose tokens it needs
    found = probe(tiny_config(tmp_path, micro_batch=4), 8)
    assert set(found.speedups) == {2}
    assert asked.count(4) == 1
    assert 8 not in asked, "nor is a larger one tried"
    monkeypatch.setattr(ensemble_probe, "_step_of", lambda *args: step_of(None, None, 4))
    with pytest.raises(torch.OutOfMemoryError):
        probe(tiny_config(tmp_path, micro_batch=4), 8)
