"""Device, precision and threads of a run, resolved once and kept by every attempt."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from conf import AUTO
from conf.schema import Training
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted
from training.devices.gpu_check import check_gpu, device_kind
from training.devices.precision import DTYPES, resolve_precision

if TYPE_CHECKING:
    import torch

log = logging.getLogger("training")

GPU_MATRIX = 8192
"""Rows of the matrix whose product with itself measures a GPU's peak: milliseconds, and all units busy."""

HIGHEST = "highest"
"""Value of `matmul_precision` for fp32 products computed in fp32."""


@dataclass(frozen=True)
class Device:
    """Device of a run and how it computes."""

    kind: str
    """cpu or cuda."""
    precision: str
    """Precision of matrix products: fp32, bf16 or fp16. Weights and loss are in fp32."""
    threads: int
    matmul_precision: str = HIGHEST
    """Precision within products of fp32 numbers, named as in torch.set_float32_matmul_precision."""
    is_deterministic: bool = False
    """A GPU uses no operation that sums in varying order; a CPU has none."""

    @property
    def torch_device(self) -> torch.device:
        import torch

        return torch.device(self.kind)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of matrix products."""
        import torch

        found: torch.dtype = getattr(torch, DTYPES[self.precision])
        return found

    def autocast(self) -> AbstractContextManager[object]:
        """Context for the model's forward pass."""
        import torch

        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.kind, dtype=self.dtype)

    def take(self) -> None:
        """Configure torch for this device, in the whole process."""
        import torch

        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision(self.matmul_precision)
        if self.is_deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the GPU is first used
            torch.use_deterministic_algorithms(True)
            # No memory is read that was not written.
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Put a tensor on this device. A GPU fetches it from page-locked memory while the CPU continues."""
        if self.kind == "cuda" and not tensor.is_cuda:
            tensor = tensor.contiguous().pin_memory()
        return tensor.to(self.torch_device, non_blocking=True)

    def synchronize(self) -> None:
        """Wait until the device has done all its queued work."""
        if self.kind == "cuda":
            import torch

            torch.cuda.synchronize()

    def describe(self) -> str:
        import torch

        name = torch.cuda.get_device_name() if self.kind == "cuda" else "CPU"
        inside = "" if self.matmul_precision == HIGHEST else f" (products: {self.matmul_precision})"
        same = ", deterministic" if self.is_deterministic else ""
        return f"{name}, {self.precision}{inside}, {counted(self.threads, 'thread')}{same}"


def take_gpu(training: Training, kept: Mapping[str, object], local_rank: int) -> str:
    """Select the GPU of this rank as `cuda`; returns the kind of device that it has.

    If a job gives each rank its own GPU, the rank sees no other one.

    Raises:
        UserError: a GPU is expected, and torch cannot use one.
    """
    kind, _ = device_kind(str(kept.get("device", training.device)))
    if kind == "cuda":
        import torch

        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return kind


def resolve_device(
    training: Training, kept: Mapping[str, object], ranks_here: int = 1, *, is_ensemble: bool = False
) -> Device:
    """Choose device, precision and threads; choices of an earlier attempt (`kept`) stay.

    A CPU always computes fp32 products in fp32: `high` changes nothing there, and `medium` uses bf16 only on
    CPUs that have it, so that nodes of one cluster would compute one study in two ways.

    Args:
        ranks_here: processes of the run on this node.

    Raises:
        UserError: a GPU is expected, and torch cannot use one (`training.devices.gpu_check`); the run cannot
            be deterministic or cannot use fp16, and the config requires it.
    """
    kind, why_cpu = device_kind(str(kept.get("device", training.device)))
    if kind == "cuda":
        check_gpu()
    elif why_cpu is not None:
        log.info("training on the CPU: %s", why_cpu)
    precision = resolve_precision(training, kept, kind, is_ensemble=is_ensemble)
    threads = training.threads
    if threads == AUTO:
        threads = kept.get("threads", available_threads(ranks_here))  # type: ignore[assignment]
    inside = training.matmul_precision
    if kind == "cpu" and inside != HIGHEST:
        if "matmul_precision" not in kept:
            log.warning("training.matmul_precision=%s is for GPUs: this CPU uses %s", inside, HIGHEST)
        inside = HIGHEST
    problem = other_bits(training, kind, int(threads))
    if problem is not None:
        raise UserError(problem)
    is_deterministic = training.deterministic and kind == "cuda"
    return Device(kind, precision, int(threads), inside, is_deterministic)


def other_bits(training: Training, kind: str, threads: int) -> Problem | None:
    """Problem of a run that is to be deterministic and is not; None: there is none."""
    if not (training.deterministic and training.compile and kind == "cpu" and threads > 1):
        return None
    return Problem(
        "training.deterministic",
        f"training.compile=true on a CPU with {threads} threads does not give the same bits each "
        "time. Use training.compile=false, or training.threads=1",
    )


def available_threads(ranks_here: int = 1) -> int:
    """CPU threads of this process: its affinity, or the cgroup's CPU quota if that is smaller.

    ranks_here: number of processes that share them, unless Slurm sets the share of each
    (SLURM_CPUS_PER_TASK).
    """
    threads = len(cores_of_process())
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            threads = min(threads, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    if ranks_here == 1:
        return threads
    of_each = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(threads, int(of_each)) if of_each.isdigit() else max(1, threads // ranks_here)


def cores_of_process() -> set[int]:
    """Numbers of the cores in this process's affinity; all cores if the system has no affinity."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@cache
def measure_peak_flops(device: Device) -> float | None:
    """FLOP/s of a square matrix product in the precision of the run, the best of 20: the peak for MFU.

    Measured once in a process, also for the runs of an ensemble. The matrices are random: products of equal
    numbers draw less power and are faster. Their memory is returned to the driver.

    Returns:
        None on a CPU, whose speed depends on what else runs, or if the GPU has no room for the matrices.
    """
    if device.kind == "cpu":
        return None
    import torch

    try:
        seconds = _seconds_of_product(device)
    except torch.OutOfMemoryError:
        seconds = None
    torch.cuda.empty_cache()
    return None if seconds is None else 2 * GPU_MATRIX**3 / seconds


def _seconds_of_product(device: Device) -> float:
    import torch

    place = device.torch_device
    generator = torch.Generator(place).manual_seed(0)  # the random numbers of the run stay as they are
    a = torch.randn(GPU_MATRIX, GPU_MATRIX, dtype=device.dtype, device=place, generator=generator)
    seconds = []
    for _ in range(20):
        device.synchronize()
        started = time.perf_counter()
        a @ a
        device.synchronize()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
