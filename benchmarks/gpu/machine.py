"""Facts of the machine: its two ceilings, the cost of a launch, and the memory that CUDA takes.

The last is what memory/constants.py has to know and can only be measured on a GPU.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from benchmarks.gpu.measure import DEVICE, ON_GPU, Report, device_ms, sync


def host_mib() -> dict[str, int]:
    """MiB of this process by kind, and of its cgroup."""
    found = {}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in ("RssAnon", "RssFile", "RssShmem", "VmLck", "VmPin"):
            found[name] = int(rest.split()[0]) >> 10
    with suppress(OSError, ValueError):
        found["cgroup"] = int(Path("/sys/fs/cgroup/memory.current").read_text()) >> 20
    return found


def output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()[:1500]
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


def gpu_facts() -> dict[str, Any]:
    query = "name,driver_version,memory.total,memory.used,mig.mode.current,compute_cap"
    return {
        "gpu": output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"),
        "device_files": sorted(str(path) for path in Path("/dev").glob("nvidia*"))[:8],
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }


def machine(report: Report, quick: bool) -> None:
    import torch

    with report.part("facts") as found:
        found |= gpu_facts()
        found |= {"python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count()}
        found |= {"torch": torch.__version__, "cuda": torch.version.cuda, "archs": torch.cuda.get_arch_list()}
        if ON_GPU:
            found["name"], found["cudnn"] = torch.cuda.get_device_name(), torch.backends.cudnn.version()
    with report.part("packages") as found:
        for name in ("hydra", "omegaconf", "submitit", "fastokens", "orjson", "obstore", "pynvml", "triton"):
            try:
                found[name] = str(getattr(__import__(name), "__version__", "present"))
            except ImportError as error:
                found[name] = str(error)[:100]
    with report.part("memory command") as found:
        found["output"] = output(sys.executable, "-m", "memory")[-1200:]
    if ON_GPU:
        cuda_memory(report)
        ceilings(report)
        launches(report)
        attention(report)


def constants(report: Report, quick: bool) -> None:
    """The product's own measurement of the constants of its memory estimate."""
    with report.part("run") as found:
        script = Path(__file__).resolve().parents[1] / "memory_constants.py"
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
        found |= {"exit": done.returncode, "output of the script": (done.stdout + done.stderr)[-8000:]}


def driver_mib() -> dict[int, int]:
    """MiB of the first GPU that the driver counts for each process, by its id; empty without NVML."""
    with suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return {one.pid: (one.usedGpuMemory or 0) >> 20 for one in running}
    return {}


def cuda_memory(report: Report) -> None:
    """Host and device memory of a context, of the libraries, and of page-locked buffers."""
    import torch
    from torch.nn import functional as F

    with report.part("host_mib") as found:
        found["torch imported"] = host_mib()
        started = time.perf_counter()
        torch.ones(8, device="cuda")
        sync()
        found["first use took s"] = round(time.perf_counter() - started, 2)
        found["context"] = host_mib()
        a = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
        ((a @ a).float() @ a.float()).sum().item()
        q = torch.randn(2, 2, 128, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        sync()
        found["libraries"] = host_mib()
    with report.part("device_mib") as found:
        del a, q
        found["workspaces"] = torch.cuda.memory_allocated() >> 20
        free, total = torch.cuda.mem_get_info()
        reserved = torch.cuda.memory_reserved()
        found |= {"total": total >> 20, "reserved by torch": reserved >> 20}
        found["used but not reserved"] = (total - free - reserved) >> 20
        found["this process by the driver"] = driver_mib().get(os.getpid())
    with report.part("page-locked") as found:
        for name, size in (("1 GiB", 1 << 30), ("256 MiB and a page", (1 << 28) + 4096)):
            before = host_mib()
            buffer = torch.empty(size, dtype=torch.uint8, pin_memory=True).fill_(1)
            found[name] = {kind: size - before[kind] for kind, size in host_mib().items()}
            del buffer


def ceilings(report: Report) -> None:
    import torch

    from benchmarks.gpu.product import measured_peak_tflops

    n = 8192
    with report.part("peak") as found:
        for name, make in (("random", torch.randn), ("ones", torch.ones)):
            m = make(n, n, device="cuda", dtype=torch.bfloat16)
            found[f"bf16 TFLOP/s, {name}"] = round(2 * n**3 / device_ms(lambda m=m: m @ m) / 1e9, 1)
        source, target = (torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2))
        found["copy TB/s"] = round(2 * (1 << 30) / device_ms(lambda: target.copy_(source)) / 1e9, 2)
        found["bf16 TFLOP/s, as MFU counts"] = measured_peak_tflops("bf16")


def launches(report: Report) -> None:
    import torch

    with report.part("launch") as found:
        x = torch.ones(8, device="cuda")
        sync()
        started = time.perf_counter()
        for _ in range(20_000):
            x.add_(1)
        found["us each"] = round((time.perf_counter() - started) / 20_000 * 1e6, 2)
        sync()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(1000):
                x.add_(1)
        found["us each in a CUDA graph"] = round(1e3 * device_ms(graph.replay) / 1000, 2)


def attention(report: Report) -> None:
    """Each backend of scaled_dot_product_attention, forward and backward, with narrow heads."""
    import torch
    from torch.nn import functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {
        "chosen by torch": nullcontext,
        "flash": lambda: sdpa_kernel(SDPBackend.FLASH_ATTENTION),
        "efficient": lambda: sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
        "cudnn": lambda: sdpa_kernel(SDPBackend.CUDNN_ATTENTION),
    }
    for shape in ((32, 32, 128, 16), (16, 32, 1024, 16), (16, 8, 1024, 64)):
        q, k, v = (
            torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)
        )

        def call(q: Any = q, k: Any = k, v: Any = v) -> None:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            out.backward(out)
            q.grad = k.grad = v.grad = None

        for name, backend in backends.items():
            with report.part(f"attention {shape}, {name}") as found, backend():
                found["device_ms"] = round(device_ms(call, 5), 3)
