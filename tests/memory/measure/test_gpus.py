"""GPUs that CUDA shows to a process, asked of a faked driver."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fake_gpus import GB, fake_nvml, gpu, no_nvml
from hypothesis import given
from hypothesis import strategies as st

from memory.estimate import constants
from memory.estimate.available import _gpu_by_driver, room
from memory.measure.gpus import (
    GpuDevice,
    _entries,
    _warn,
    driver_version,
    has_driver,
    is_ordered,
    read_gpus,
    select_visible,
    visible_gpus,
)

FOUR = tuple(gpu(number) for number in range(4))


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "machine/dev").mkdir(parents=True)
    (tmp_path / "machine/dev/nvidiactl").touch()
    _warn.cache_clear()
    return str(tmp_path / "machine")


def uuids(root: str, **environ: str) -> list[str]:
    return [one.uuid for one in visible_gpus(environ, root)]


def test_nothing_is_asked_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(tmp_path, monkeypatch, *FOUR)
    assert not has_driver(str(tmp_path))
    assert visible_gpus({}, str(tmp_path)) == ()


def test_facts_of_a_gpu(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml(tmp_path, monkeypatch, gpu(used=30 * GB))
    (one,) = visible_gpus({}, root)
    assert (one.index, one.uuid, one.name, one.total_bytes, one.used_bytes, one.driver, one.capability) == (
        0, "GPU-00aa-1", "H100", 80 * GB, 30 * GB, "550.54.15", (9, 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2", [2]),
        ("3,1", [3, 1]),
        (" 3 , 1 ", [3, 1]),
        ("0,9,1", [0]),
        ("1,-1,2", [1]),
        ("1,x,2", [1]),
        ("1,,2", [1]),
        ("1,1", []),
        ("none", []),
        ("NoDevFiles", []),
        ("1gpu2,2ampere", [1, 2]),
        ("GPU-22aa-1", [2]),
        ("GPU-2", [2]),
        ("GPU-3,GPU-1", [3, 1]),
        ("GPU-3, GPU-1", [3]),
        ("GPU-3,0", [3]),
        ("GPU-", []),
        ("GPU-2,GPU-22", []),
        ("GPU-9,GPU-1", []),
        ("0,GPU-1", [0]),
        ("MIG-1", []),
    ],
)
def test_cuda_visible_devices(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str | None, numbers: list[int]
) -> None:
    fake_nvml(tmp_path, monkeypatch, *FOUR)
    gpus, _ = read_gpus(root)
    assert [one.index for one in select_visible(gpus, value)] == numbers


@given(st.lists(st.sampled_from(["0", "1", "07", "-1", "x", "", " 2", "3x", "GPU-1", "GPU-12", "MIG-1"])))
def test_entries_are_those_that_torch_reads(entries: list[str]) -> None:
    from torch.cuda import _parse_visible_devices

    value = ",".join(entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", value)
        assert _entries(value) == _parse_visible_devices()


def test_an_environment_without_gpus_asks_no_driver(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_nvml(tmp_path, monkeypatch, fails=("init",))
    assert uuids(root, CUDA_VISIBLE_DEVICES="") == []
    assert caplog.records == []


def test_order_of_gpus_that_differ_is_not_guessed(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml(tmp_path, monkeypatch, gpu(0, "T400"), gpu(1, "A100"))
    by_bus = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    both = visible_gpus({}, root)
    assert [one.name for one in both] == ["T400", "A100"]
    assert not is_ordered(both, {})
    assert is_ordered(both, by_bus)
    assert uuids(root, CUDA_VISIBLE_DEVICES="0") == []
    assert uuids(root, CUDA_VISIBLE_DEVICES="0", **by_bus) == ["GPU-00aa-1"]
    assert uuids(root, CUDA_VISIBLE_DEVICES="GPU-1") == ["GPU-11aa-1"]


def test_mig_instances(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slices = [{"uuid": f"MIG-{n}", "name": "A100 MIG 1g.10gb", "total": 10 * GB, "used": 0} for n in range(2)]
    fake_nvml(tmp_path, monkeypatch, gpu(0), gpu(1, instances=slices))
    assert uuids(root, CUDA_VISIBLE_DEVICES="MIG-1") == ["MIG-1"]
    assert uuids(root, CUDA_VISIBLE_DEVICES="MIG-1,MIG-0") == ["MIG-1"]
    assert uuids(root, CUDA_VISIBLE_DEVICES="1") == ["MIG-0"]
    assert uuids(root, CUDA_VISIBLE_DEVICES="0") == ["GPU-00aa-1"]
    (one,) = visible_gpus({}, root)
    assert (one.uuid, one.total_bytes, one.capability, one.index) == ("MIG-0", 10 * GB, (9, 0), 1)


@pytest.mark.parametrize("missing", [False, True])
def test_driver_that_answers_nothing_is_logged_once(
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    missing: bool,
) -> None:
    if missing:
        no_nvml(tmp_path, monkeypatch)
    else:
        fake_nvml(tmp_path, monkeypatch, fails=("init",))
    assert visible_gpus({}, root) == visible_gpus({}, root) == ()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_driver_that_hangs_is_asked_once(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_nvml(tmp_path, monkeypatch, hangs_s=600)
    gpus, why = read_gpus(root, limit_s=2.0)
    assert gpus == ()
    assert why is not None
    assert visible_gpus({}, root) == ()
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n", "535.183.01"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release\n", "570.86.15"),
        ("garbage\n", None),
    ],
)
def test_version_of_the_loaded_driver(tmp_path: Path, text: str, version: str | None) -> None:
    assert driver_version(str(tmp_path)) is None
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text(text)
    assert driver_version(str(tmp_path)) == version


def test_room_of_a_run_is_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's 30 GB are in use; this run's own 10 GB and its context are not counted."""
    import torch

    own = 10 * GB
    taken = 30 * GB + own + constants.CUDA_CONTEXT.in_bytes
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (80 * GB - taken, 80 * GB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: own)
    found = room(own=True, gpu=True)
    assert (found.gpu_total_bytes, found.gpu_used_bytes, found.gpu_free_bytes) == (80 * GB, 30 * GB, 50 * GB)


@pytest.mark.parametrize("known", [True, False])
def test_room_before_a_run_is_what_the_driver_says(monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """Memory of the GPU that CUDA numbers 0, if that is known."""
    names = ("A100", "A100") if known else ("T400", "A100")
    gpus = tuple(GpuDevice(n, f"GPU-{n}", name, (80 - n) * GB, GB) for n, name in enumerate(names))
    monkeypatch.setattr("memory.estimate.available.visible_gpus", lambda: gpus)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _gpu_by_driver.cache_clear()
    found = room(gpu=True)
    _gpu_by_driver.cache_clear()
    assert (found.gpu_total_bytes, found.gpu_used_bytes) == ((80 * GB, GB) if known else (None, 0))
    assert room().gpu_total_bytes is None
