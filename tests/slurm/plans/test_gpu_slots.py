"""Runs in parallel are spread over the visible GPUs, and share their memory."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_run import make_run, tiny_config

import slurm.launch.work_through
import slurm.plans.gpu_slots
from memory.estimate.available import GPU_SHARE
from memory.measure.gpus import GpuDevice
from slurm.launch.work_through import work_through
from slurm.plans.gpu_slots import gpu_slots, idle_gpus, planned_with

GB = 1 << 30
Machine = Callable[..., None]


def gpu(index: int, *, name: str = "A100", used: int = 0, instances: int = 0) -> GpuDevice:
    parts = tuple(GpuDevice(part, f"MIG-{index}{part}", name, 10 * GB, 0) for part in range(instances))
    return GpuDevice(index, f"GPU-{index}a", name, 80 * GB, used, instances=parts)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make this a machine with these GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def has(*gpus: GpuDevice) -> None:
        monkeypatch.setattr(slurm.plans.gpu_slots, "read_gpus", lambda: (gpus, None))

    has()
    return has


def names(slots: int, visible: str | None = None) -> list[str]:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in gpu_slots(slots, environ)]


def test_slots_take_gpus_in_turn(machine: Machine) -> None:
    machine(gpu(0), gpu(1))
    assert names(4) == ["0", "1", "0", "1"]
    assert names(3) == ["0", "1", "0"]
    assert names(1) == [], "a run alone sees all"


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("1,0", ["1", "0", "1"]),
        ("GPU-1,GPU-0", ["GPU-1", "GPU-0", "GPU-1"]),
        ("0,-1,1", ["0", "0", "0"]),
        ("0,7", ["0", "0", "0"]),
        ("", []),
        ("-1", []),
        ("0,0", []),
    ],
)
def test_names_of_the_visible_list_are_kept(machine: Machine, visible: str, expected: list[str]) -> None:
    machine(gpu(0), gpu(1))
    assert names(3, visible) == expected


def test_each_run_gets_a_mig_instance(machine: Machine) -> None:
    machine(gpu(0, instances=2))
    assert names(2) == ["MIG-00", "MIG-01"]
    assert names(3, "MIG-01,MIG-00") == ["MIG-01", "MIG-00", "MIG-01"]
    assert [slot.free_bytes for slot in gpu_slots(2, {})] == [10 * GB, 10 * GB]


def test_memory_is_shared_by_the_runs_of_a_gpu(machine: Machine) -> None:
    machine(gpu(0, used=20 * GB), gpu(1))
    slots = gpu_slots(3, {})
    assert [slot.runs for slot in slots] == [2, 1, 2]
    assert [slot.share for slot in slots] == [{GPU_SHARE: str(30 * GB)}, {}, {GPU_SHARE: str(30 * GB)}]


def test_gpus_whose_order_is_unknown_are_spread_without_memory(machine: Machine) -> None:
    """CUDA numbers different models by speed."""
    machine(gpu(0), gpu(1, name="T4"))
    assert names(2) == ["0", "1"]
    assert [slot.free_bytes for slot in gpu_slots(4, {})] == [None] * 4
    assert [slot.free_bytes for slot in gpu_slots(2, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})] == [80 * GB] * 2


def test_list_is_spread_also_if_the_driver_does_not_answer(machine: Machine) -> None:
    machine()
    assert names(2) == []
    assert names(3, "2,3") == ["2", "3", "2"]


def test_idle_gpus_are_reported(machine: Machine) -> None:
    machine(gpu(0), gpu(1), gpu(2))
    assert idle_gpus(3, {}) is None
    assert idle_gpus(1, {}) is None
    assert "1 of 3 GPUs" in str(idle_gpus(2, {}))


def test_plans_take_the_least_share(machine: Machine) -> None:
    machine(gpu(0, used=20 * GB), gpu(1))
    with planned_with(gpu_slots(4, {})):
        assert os.environ[GPU_SHARE] == str(30 * GB)
    assert GPU_SHARE not in os.environ


def test_local_runs_in_parallel_see_one_gpu_each(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(gpu(0), gpu(1))
    folders = [make_run(dataclasses.replace(tiny_config(tmp_path), seed=seed)) for seed in range(4)]
    script = (
        "import os, sys, time, pathlib\n"
        "pathlib.Path(sys.argv[1], 'seen').write_text(os.environ.get('CUDA_VISIBLE_DEVICES', '-'))\n"
        "pathlib.Path(sys.argv[1], 'share').write_text(os.environ.get('HIGHWATER_GPU_SHARE', '-'))\n"
        "time.sleep(0.2)"
    )

    def command(folder: Path, **options: Any) -> list[str]:
        return [sys.executable, "-c", script, str(folder)]

    monkeypatch.setattr(slurm.launch.work_through, "run_command", command)

    def seen(jobs: int) -> list[tuple[str, str]]:
        units = [[folder] for folder in folders]
        work_through(units, jobs, quiet=True, note=lambda outcome: None)
        return [((run / "seen").read_text(), (run / "share").read_text()) for run in folders]

    assert sorted(seen(4)) == sorted([("0", str(40 * GB)), ("1", str(40 * GB))] * 2)
    assert {name for name, _ in seen(2)} == {"0", "1"}
    assert seen(1) == [("-", "-")] * 4
