"""Print the GPUs of the machine as JSON. It is a script because a driver that hangs blocks the whole process.

`memory.measure.gpus` starts it with a time limit. Source: NVML, through nvidia-ml-py
(docs.nvidia.com/deploy/nvml-api, nvmlDeviceGetMemoryInfo, nvmlDeviceGetMigDeviceHandleByIndex).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any


def _main() -> None:
    import pynvml

    try:
        pynvml.nvmlInit()
        driver = _text(_or_none(pynvml.nvmlSystemGetDriverVersion))
        count = pynvml.nvmlDeviceGetCount()
        gpus = [_gpu(pynvml, number, driver) for number in range(count)]
    except Exception as error:  # the library's own errors, and all that a broken driver makes of it
        print(json.dumps({"error": f"the driver does not answer ({error})"}))
        return
    print(json.dumps({"gpus": gpus}))


def _gpu(pynvml: Any, number: int, driver: str | None) -> dict[str, Any]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    running = _or_none(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
    capability = _or_none(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    return {
        **_device(pynvml, handle),
        "index": number,
        "driver": driver,
        "capability": None if capability is None else list(capability),
        "processes": [[one.pid, one.usedGpuMemory] for one in running],
        "instances": list(_instances(pynvml, handle)),
    }


def _device(pynvml: Any, handle: Any) -> dict[str, Any]:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {
        "uuid": _text(_or_none(lambda: pynvml.nvmlDeviceGetUUID(handle))) or "",
        "name": _text(_or_none(lambda: pynvml.nvmlDeviceGetName(handle))) or "GPU",
        "total_bytes": memory.total,
        "used_bytes": memory.used,
    }


def _instances(pynvml: Any, handle: Any) -> Iterator[dict[str, Any]]:
    """The MIG devices into which a GPU is divided; none of one that is whole."""
    mode = _or_none(lambda: pynvml.nvmlDeviceGetMigMode(handle))
    if not mode or not mode[0]:
        return
    for number in range(_or_none(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
        with suppress(Exception):  # there is no instance of that number
            yield _device(pynvml, pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number))


def _or_none(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except Exception:  # NVMLError of that one question: older drivers, no MIG
        return None


def _text(value: object) -> str | None:
    return (
        value.decode(errors="replace") if isinstance(value, bytes) else None if value is None else str(value)
    )


if __name__ == "__main__":
    _main()
