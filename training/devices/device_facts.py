"""Facts of a device, as run.json records them for each attempt."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.measure.gpus import driver_version

if TYPE_CHECKING:
    from training.devices.device import Device


def device_facts(device: Device) -> dict[str, Any]:
    """Facts of the device of this process (docs/run-folder.md lists the keys)."""
    import torch

    facts: dict[str, Any] = {"kind": device.kind, "torch": torch.__version__, "cuda": torch.version.cuda}
    if device.kind == "cpu":
        return {**facts, "name": _cpu_name()}
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        **facts,
        "name": found.name,
        "total_bytes": found.total_memory,
        "capability": f"{found.major}.{found.minor}",
        "driver": driver_version(),
        "attention": _attention_backends(),
    }


def _attention_backends() -> list[str]:
    """Enabled backends of scaled_dot_product_attention; which one it uses depends on shapes."""
    from torch.backends import cuda

    enabled = {
        "flash": cuda.flash_sdp_enabled,
        "efficient": cuda.mem_efficient_sdp_enabled,
        "cudnn": cuda.cudnn_sdp_enabled,
        "math": cuda.math_sdp_enabled,
    }
    return [name for name, is_enabled in enabled.items() if is_enabled()]


def _cpu_name() -> str:
    """Model of the processor; its architecture if the kernel does not name it, as on ARM."""
    try:
        found = re.search(r"^model name\s*: *(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.machine()
