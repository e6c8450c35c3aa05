"""Facts of the machine: the GPU, packages, and the constants of CUDA's memory."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from benchmarks.gpu.measure import ON_GPU, Report


def machine(report: Report, quick: bool) -> None:
    """Facts that the report names."""
    import torch

    with report.part("facts") as found:
        query = "name,driver_version,memory.total,memory.used,mig.mode.current,compute_cap"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        with suppress(OSError, subprocess.SubprocessError):
            found["gpu"] = subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
        found |= {"python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count()}
        found |= {"torch": torch.__version__, "cuda": torch.version.cuda}
        if ON_GPU:
            found["name"], found["cudnn"] = torch.cuda.get_device_name(), torch.backends.cudnn.version()
    if ON_GPU:
        from benchmarks.gpu.product import measured_peak_tflops

        with report.part("peak") as found:
            found["bf16 TFLOP/s, as MFU counts"] = measured_peak_tflops("bf16")


def constants(report: Report, quick: bool) -> None:
    """Memory of CUDA on the GPU and on the host, for memory/estimate/constants.py."""
    from benchmarks.memory_constants import gpu_costs, process_costs

    with report.part("MiB") as found, tempfile.TemporaryDirectory() as place:
        found |= process_costs(Path(place))
        found |= gpu_costs(Path(place), found["FRAMEWORK_BASE"])


def driver_mib() -> dict[int, int]:
    """MiB of the first GPU that the driver counts for each process, by its id; empty without NVML."""
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return {one.pid: (one.usedGpuMemory or 0) >> 20 for one in running}
    return {}
