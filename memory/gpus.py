"""All GPUs of the machine and who holds their memory, as the driver tells through nvidia-ml-py (optional).

torch counts its own process alone; an out-of-memory error of the device may be a neighbour's doing. Source:
NVML, nvmlDeviceGetMemoryInfo and nvmlDeviceGetComputeRunningProcesses.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memory.kernel_files import exists, read_file


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """used_bytes: None where the driver does not tell (MIG, some containers). name: empty where the process
    cannot be seen from here, as in a container.
    """

    pid: int
    name: str
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """In bytes; processes: those that compute on it, the largest first."""

    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    processes: tuple[GpuProcess, ...] = ()


def read_gpus(root: str = "") -> tuple[tuple[GpuDevice, ...], str | None]:
    """(devices, why it is not known): tens of milliseconds, for a report. Never raises."""
    if not exists(f"{root}/dev/nvidiactl") and not exists(f"{root}/proc/driver/nvidia"):
        return (), None
    try:
        import pynvml
    except ImportError:
        return (), "GPUs: nvidia-ml-py is not installed (pip install nvidia-ml-py)"
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return (), f"GPUs: the driver does not answer ({_text(error)})"
    try:
        count = pynvml.nvmlDeviceGetCount()
        return tuple(_device(pynvml, number, root) for number in range(count)), None
    except Exception as error:
        return (), f"GPUs: the driver does not tell ({_text(error)})"
    finally:
        _or_none(pynvml.nvmlShutdown)


def visible_gpu_bytes() -> tuple[int | None, int]:
    """Total and used bytes of the first GPU that is to be seen (CUDA_VISIBLE_DEVICES): milliseconds. Unknown
    (None, 0) without the driver or its library. Never raises.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return None, 0
    try:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
        if visible.startswith(("GPU-", "MIG-")):
            handle = pynvml.nvmlDeviceGetHandleByUUID(visible)
        else:
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(visible or 0))
        told = pynvml.nvmlDeviceGetMemoryInfo(handle)
        return int(told.total), int(told.used)
    except Exception:  # the library's own errors, and whatever a broken driver makes of it
        return None, 0
    finally:
        _or_none(pynvml.nvmlShutdown)


def _device(pynvml: Any, number: int, root: str) -> GpuDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    running = _or_none(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    processes = [GpuProcess(one.pid, _name(one.pid, root), one.usedGpuMemory) for one in running]
    return GpuDevice(
        number,
        _text(_or_none(lambda: pynvml.nvmlDeviceGetUUID(handle)) or ""),
        _text(_or_none(lambda: pynvml.nvmlDeviceGetName(handle)) or "GPU"),
        memory.total,
        memory.used,
        tuple(sorted(processes, key=lambda process: -(process.used_bytes or 0))),
    )


def _name(pid: int, root: str) -> str:
    return (read_file(f"{root}/proc/{pid}/comm") or b"").decode(errors="replace").strip()


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception:  # NVMLError of that one question: older drivers, MIG
        return None


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
