"""GPUs of this machine: their memory, the processes on them, and which of them CUDA shows to a process.

A process of its own asks the driver through NVML, with a time limit: a driver that hangs leaves a process
that no signal ends. Nothing here imports torch, starts CUDA or raises.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memory.files.procfs import exists, read_file

log = logging.getLogger("memory")

LIMIT_S = 10.0
"""Time the driver gets to answer. Without persistence mode it first starts each GPU, a second or so each."""

_NVML = str(Path(__file__).with_name("nvml.py"))
_HANGS = f"the driver did not answer within {LIMIT_S:g} seconds"
_hangs: list[bool] = []
"""Not empty: the driver hung once in this process."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU."""

    pid: int
    name: str
    """Empty if the process cannot be seen from here, as in a container."""
    used_bytes: int | None
    """None: the driver does not report it (MIG, some containers)."""


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """A GPU, or one MIG instance of it."""

    index: int
    """NVML's number, in the order of the PCI bus. CUDA's can differ."""
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    processes: tuple[GpuProcess, ...] = ()
    """The largest first."""
    driver: str | None = None
    capability: tuple[int, int] | None = None
    """Compute capability, (8, 0) of an A100."""
    instances: tuple[GpuDevice, ...] = ()
    """MIG instances into which it is divided."""


def read_gpus(root: str = "", limit_s: float = LIMIT_S) -> tuple[tuple[GpuDevice, ...], str | None]:
    """All GPUs of the machine that this process can open, in the order of the PCI bus.

    Args:
        root: folder that holds /dev and /proc.
        limit_s: time limit of each question.

    Returns:
        The GPUs, and why they are not known. Without a driver: none, and None.
    """
    if not has_driver(root):
        return (), None
    said = {} if _hangs else _ask_driver(limit_s)
    if _hangs or "gpus" not in said:
        return (), f"GPUs: {_HANGS if _hangs else said.get('error')}"
    return tuple(_device(one, root) for one in said["gpus"]), None


def visible_gpus(environ: Mapping[str, str] = os.environ, root: str = "") -> tuple[GpuDevice, ...]:
    """GPUs that CUDA shows to a process with this environment, in the order in which CUDA numbers them.

    CUDA_VISIBLE_DEVICES is read as CUDA reads it (CUDA C++ Programming Guide, "CUDA Environment Variables").
    Not set: all. Empty or -1: none. A list of indices, of unique beginnings of UUIDs (GPU-8932f937) or of MIG
    names ends before its first invalid entry, and selects nothing if it repeats one. A process that sees a
    MIG instance sees no other device.

    CUDA numbers GPUs of different models by speed, unless CUDA_DEVICE_ORDER=PCI_BUS_ID. That order is not
    known here (`is_ordered`): indices then select nothing, and all GPUs are in the order of the PCI bus.

    Args:
        environ: environment of the process.
        root: folder that holds /dev and /proc.

    Returns:
        Empty if there are none, or the driver does not answer. The latter is logged once.
    """
    if hides_all(environ):
        return ()
    gpus, why = read_gpus(root)
    if why is not None:
        _warn(why)
    return select_visible(gpus, environ.get("CUDA_VISIBLE_DEVICES"), is_ordered=is_ordered(gpus, environ))


def hides_all(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CUDA_VISIBLE_DEVICES is set and names no GPU: empty, -1, or a first entry that names none."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return visible is not None and not _entries(visible)


def is_ordered(gpus: Sequence[GpuDevice], environ: Mapping[str, str] = os.environ) -> bool:
    """Whether CUDA's order of these GPUs is known: one model, or PCI_BUS_ID is set, or they are named."""
    return (
        len({gpu.name for gpu in gpus}) <= 1
        or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
        or environ.get("CUDA_VISIBLE_DEVICES", "").startswith(("GPU-", "MIG-"))
    )


def has_driver(root: str = "") -> bool:
    """Whether this process can reach a driver of NVIDIA's. /proc has its version in every container."""
    return any(exists(f"{root}{path}") for path in ("/dev/nvidiactl", "/usr/lib/wsl/lib/libnvidia-ml.so.1"))


def driver_version(root: str = "") -> str | None:
    """Version of the loaded kernel driver, such as 535.183.01, read without asking the driver."""
    text = (read_file(f"{root}/proc/driver/nvidia/version") or b"").decode(errors="replace")
    found = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found[1] if found else None


def select_visible(
    gpus: Sequence[GpuDevice], visible: str | None, *, is_ordered: bool = True
) -> tuple[GpuDevice, ...]:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES leaves visible; None: it is not set."""
    chosen: list[GpuDevice] = list(gpus)
    if visible is not None:
        chosen = []
        for entry in _entries(visible):
            if isinstance(entry, str):
                named = [one for gpu in gpus for one in (gpu, *gpu.instances) if one.uuid.startswith(entry)]
            else:
                named = list(gpus[entry : entry + 1]) if is_ordered else []
            if len(named) != 1:  # no device, or several
                break
            if named[0] in chosen:
                return ()
            chosen += named
    instances = [
        one for gpu in chosen for one in gpu.instances[:1] or ([gpu] if gpu.uuid[:4] == "MIG-" else [])
    ]
    return tuple(instances[:1] or chosen)


def _entries(visible: str) -> list[int] | list[str]:
    """Valid entries at the start of a value of CUDA_VISIBLE_DEVICES; none if one of them is repeated."""
    for prefix in ("GPU-", "MIG-"):
        if visible.startswith(prefix):
            return _until_invalid([one if one.startswith(prefix) else None for one in visible.split(",")])
    numbers = [re.match(r"\+?\d+", one.strip()) for one in visible.split(",")]
    return _until_invalid([int(number[0]) if number else None for number in numbers])


def _until_invalid(entries: Sequence[Any]) -> list[Any]:
    valid = list(entries[: entries.index(None)] if None in entries else entries)
    return valid if len(set(valid)) == len(valid) else []


def _ask_driver(limit_s: float) -> dict[str, Any]:
    """Facts that `memory.measure.nvml` prints: `gpus`, or `error`.

    At its time limit it is killed, and the driver is not asked again: a process that waits for a driver can
    outlive SIGKILL.
    """
    child = subprocess.Popen(
        [sys.executable, "-P", _NVML],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        found: dict[str, Any] = json.loads(child.communicate(timeout=limit_s)[0])
        return found
    except subprocess.TimeoutExpired:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.1)
        _hangs.append(True)
        return {}
    except ValueError:
        return {"error": "nvidia-ml-py is missing (pip install nvidia-ml-py)"}


def _device(found: Mapping[str, Any], root: str, of: Mapping[str, Any] | None = None) -> GpuDevice:
    """A GPU, or a MIG instance of the GPU `of`, from the facts that the driver reported."""
    whole = found if of is None else of
    running = [GpuProcess(pid, _name(pid, root), used) for pid, used in found.get("processes", ())]
    capability = whole.get("capability")
    return GpuDevice(
        index=whole["index"],
        uuid=found["uuid"],
        name=found["name"],
        total_bytes=found["total_bytes"],
        used_bytes=found["used_bytes"],
        processes=tuple(sorted(running, key=lambda process: -(process.used_bytes or 0))),
        driver=whole.get("driver"),
        capability=None if capability is None else (int(capability[0]), int(capability[1])),
        instances=tuple(_device(one, root, found) for one in found.get("instances", ())),
    )


@cache
def _warn(why: str) -> None:
    log.warning("%s", why)


def _name(pid: int, root: str) -> str:
    return (read_file(f"{root}/proc/{pid}/comm") or b"").decode(errors="replace").strip()
