"""GPUs for machines without one: a pynvml that prints what a test names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

GB = 1 << 30
_NVML = """
import json, time
from types import SimpleNamespace as _Row
_SAID = json.loads({said!r})
def _fail(name):
    if name in _SAID["fails"]:
        raise RuntimeError(name + " failed")
def nvmlInit():
    time.sleep(_SAID["hangs_s"])
    _fail("init")
nvmlSystemGetDriverVersion = lambda: _SAID["driver"]
nvmlDeviceGetCount = lambda: len(_SAID["gpus"])
nvmlDeviceGetHandleByIndex = lambda number: _SAID["gpus"][number]
def nvmlDeviceGetMemoryInfo(gpu):
    _fail("memory")
    return _Row(total=gpu["total"], used=gpu["used"])
def nvmlDeviceGetComputeRunningProcesses(gpu):
    _fail("processes")
    return [_Row(pid=pid, usedGpuMemory=used) for pid, used in gpu.get("processes", ())]
nvmlDeviceGetUUID = lambda gpu: gpu["uuid"].encode()
def nvmlDeviceGetName(gpu):
    _fail("name")
    return gpu["name"]
nvmlDeviceGetCudaComputeCapability = lambda gpu: tuple(gpu["capability"])
nvmlDeviceGetMigMode = lambda gpu: [int("instances" in gpu), 0]
nvmlDeviceGetMaxMigDeviceCount = lambda gpu: 7
nvmlDeviceGetMigDeviceHandleByIndex = lambda gpu, number: gpu["instances"][number]
"""


def gpu(number: int = 0, name: str = "H100", **also: Any) -> dict[str, Any]:
    """A GPU of 80 GB; `also` replaces or adds keys: total, used, capability, processes, instances."""
    uuid = f"GPU-{number}{number}aa-1"
    return {"uuid": uuid, "name": name, "total": 80 * GB, "used": GB, "capability": [9, 0], **also}


def fake_nvml(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *gpus: dict[str, Any],
    driver: str = "550.54.15",
    fails: tuple[str, ...] = (),
    hangs_s: float = 0.0,
) -> None:
    """A module pynvml for processes that are started from now on. fails: init, memory, processes or name."""
    modules = folder / "fake-nvml"
    modules.mkdir(exist_ok=True)
    said = json.dumps({"gpus": gpus, "driver": driver, "fails": fails, "hangs_s": hangs_s})
    (modules / "pynvml.py").write_text(_NVML.format(said=said))
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("memory.measure.gpus._hangs", [])


def no_nvml(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make nvidia-ml-py look as if it were not installed."""
    fake_nvml(folder, monkeypatch)
    (folder / "fake-nvml/pynvml.py").write_text("raise ImportError\n")


@dataclass
class FakeCuda:
    """torch.cuda of one device in use; sizes in bytes. asked: calls of mem_get_info."""

    name: str = "H100"
    total: int = 80 * GB
    allocated: int = 30 * GB
    reserved: int = 33 * GB
    free: int = 39 * GB
    peak: int = 0
    device: int = 0
    initialized: bool = True
    asked: int = 0

    def hold(self, allocated: int) -> None:
        self.allocated, self.peak = allocated, max(self.peak, allocated)

    def is_initialized(self) -> bool:
        return self.initialized

    def current_device(self) -> int:
        return self.device

    def memory_allocated(self) -> int:
        return self.allocated

    def memory_stats(self, device: int) -> dict[str, int]:
        assert device == self.device
        return {
            "allocated_bytes.all.current": self.allocated,
            "reserved_bytes.all.current": self.reserved,
            "allocated_bytes.all.peak": max(self.peak, self.allocated),
        }

    def max_memory_allocated(self, device: int) -> int:
        return max(self.peak, self.allocated)

    def reset_peak_memory_stats(self, device: int) -> None:
        self.peak = self.allocated

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(name=self.name, total_memory=self.total)

    def mem_get_info(self, device: int) -> tuple[int, int]:
        self.asked += 1
        return self.free, self.total
