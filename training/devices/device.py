"""Where the arithmetic runs: device, precision, threads; resolved once and kept by every attempt."""

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
"""Rows of the matrix whose product with itself tells a GPU's peak: milliseconds, and all units busy."""


HIGHEST = "highest"
"""Precision of fp32 products that are computed as such."""


@dataclass(frozen=True)
class Device:
    """kind: cpu or cuda. precision: of matrix products, fp32, bf16 or fp16; weights and loss are in fp32.

    matmul_precision: inside products of fp32 numbers, as torch.set_float32_matmul_precision names it.
    is_deterministic: a GPU takes no operation whose sums are made in any order; a CPU has none.
    """

    kind: str
    precision: str
    threads: int
    matmul_precision: str = HIGHEST
    is_deterministic: bool = False

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
        """The context in which the model's forward pass runs."""
        import torch

        if self.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.kind, dtype=self.dtype)

    def take(self) -> None:
        """Make torch compute as this says, in the whole process."""
        import torch

        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision(self.matmul_precision)
        if self.is_deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when the GPU is first used
            torch.use_deterministic_algorithms(True)
            # All that is read was written.
            torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor on this device. A GPU fetches it from page-locked memory while the CPU continues."""
        if self.kind == "cuda" and not tensor.is_cuda:
            tensor = tensor.contiguous().pin_memory()
        return tensor.to(self.torch_device, non_blocking=True)

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""
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
    """Make the GPU of this rank the one that `cuda` means; returns the kind of device it has.

    Where a job gives each rank a GPU of its own, that is the only one that it sees.

    Raises:
        UserError: as `training.devices.gpu_check.device_kind`.
    """
    kind, _ = device_kind(str(kept.get("device", training.device)))
    if kind == "cuda":
        import torch

        torch.cuda.set_device(local_rank % torch.cuda.device_count())
    return kind


def resolve_device(
    training: Training, kept: Mapping[str, object], ranks_here: int = 1, *, is_ensemble: bool = False
) -> Device:
    """Choose device, precision and threads; what an earlier attempt chose (`kept`) stays.

    fp32 products of a CPU are always computed as such: `high` changes nothing there, and `medium` bf16 on
    those CPUs alone that have it, so that one study would be computed in two ways on the nodes of a cluster.
    ranks_here: processes of the run on this node.

    Raises:
        UserError: a GPU is expected, and torch cannot use one (`training.devices.gpu_check`); what is to be
            deterministic is not; or fp16 is asked for and cannot be.
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
            log.warning("training.matmul_precision=%s is of GPUs: on this CPU it stays %s", inside, HIGHEST)
        inside = HIGHEST
    problem = other_bits(training, kind, int(threads))
    if problem is not None:
        raise UserError(problem)
    is_deterministic = training.deterministic and kind == "cuda"
    return Device(kind, precision, int(threads), inside, is_deterministic)


def other_bits(training: Training, kind: str, threads: int) -> Problem | None:
    """Why what is to be deterministic is not."""
    if not (training.deterministic and training.compile and kind == "cpu" and threads > 1):
        return None
    return Problem(
        "training.deterministic",
        f"training.compile=true on a CPU with {threads} threads does not give the same bits each "
        "time. Use training.compile=false, or training.threads=1",
    )


def available_threads(ranks_here: int = 1) -> int:
    """CPU threads this process may use: its affinity, and the cgroup's CPU quota where that is smaller.

    ranks_here: so many share them, unless Slurm says what is of each (SLURM_CPUS_PER_TASK).
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
    """The numbers of the cores that this process may run on: its affinity, all where a system has none."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@cache
def measure_peak_flops(device: Device) -> float | None:
    """FLOP/s of a square matrix product in the precision of the run, the best of many: what MFU is of.

    It is measured once in a process, also for the runs of an ensemble. The matrices are random: products of
    equal numbers draw less power and are faster. Their memory is given back to the driver.

    Returns:
        None on a CPU: what it reaches in a moment follows whatever else runs there, so that runs of the
        same speed would show twice or half the share. None where the GPU has no room for the matrices.
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
