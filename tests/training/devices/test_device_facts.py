"""Facts of a device that run.json records."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from fake_gpus import GB

from training.devices.device import Device
from training.devices.device_facts import device_facts


def test_facts_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(name="H100", total_memory=79 * GB, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: found)
    monkeypatch.setattr("training.devices.device_facts.driver_version", lambda: "580.65.06")
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: False)
    facts = device_facts(Device("cuda", "bf16", 1))
    assert facts == {
        "kind": "cuda", "name": "H100", "total_bytes": 79 * GB, "capability": "9.0", "driver": "580.65.06",
        "torch": torch.__version__, "cuda": torch.version.cuda, "attention": ["flash", "efficient", "math"],
    }  # fmt: skip
