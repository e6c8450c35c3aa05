"""Measured memory of a process apart from tensors, in one table; benchmarks/memory_constants.py measures it.

With torch 2.13, Python 3.11, glibc 2.36, 2 threads, Debian 12, November 2026. A constant that differs between
the builds of torch has two values, and the files of the installed torch decide which one counts
(`memory.estimate.torch_build`). Constants of a GPU were measured by benchmarks/gpu on an H100.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.estimate.torch_build import CPU, torch_build

_MB = 1 << 20


@dataclass(frozen=True)
class Constant:
    """A measured amount."""

    value: float
    """Bytes, or a share of 1."""
    what: str
    source: str
    cuda: float | None = None
    """The value with the CUDA build of torch where it differs, on a GPU or not. ROCm counts as that."""

    @property
    def in_bytes(self) -> int:
        """Bytes with the build of torch that is installed."""
        return int(self.value if self.cuda is None or torch_build() == CPU else self.cuda)


_HERE = "benchmarks/memory_constants.py"
_ROWS = "benchmarks/memory_estimate.py"
_COLD = "benchmarks/memory_estimate.py --compiled"
_POOL = "two workers of torch's pool that compile a reduction for sm_90, without a GPU"
_LOGGERS = "benchmarks/loggers.py, rounded up by a sixth"
_H100 = "benchmarks/gpu (machine, run_speed) on an H100, driver 580, torch 2.11 with CUDA 13.0"

FRAMEWORK_BASE = Constant(
    229 * _MB, "anon of a whole run of a model of 1 MB: Python, torch, this program", _HERE, cuda=369 * _MB
)
ENTRY = Constant(70 * _MB, "anon of experiments.py and the supervisor, which wait for the run", _HERE)
LIBRARIES_MAPPED = Constant(
    100 * _MB, "mapped files of Python, torch and NumPy in RSS; the kernel can reclaim them", _HERE,
    cuda=460 * _MB,
)  # fmt: skip
PAGE_TABLES = Constant(1 / 512, "of a mapped byte, in each process that reads it: 8 bytes a page", "proc(5)")

HEAP_FIXED = Constant(40 * _MB, "anon of buffers of matrix products; of a small model no more than it", _HERE)
HEAP_FIXED_TOGETHER = Constant(72 * _MB, "the same of several runs in one process", _ROWS)
HEAP_PIECE = Constant(32 * _MB, "a larger piece is mapped by itself, and unmapped when freed", "mallopt(3)")
HEAP_SHARE = Constant(0.21, "holes between smaller tensors in glibc's heap, of their bytes", _ROWS)
HEAP_SHARE_RECOMPUTED = Constant(
    0.3, "the same of blocks that are computed again, each of which leaves other holes", _ROWS
)
HEAP_SHARE_LOSS = Constant(
    2.25,
    "the same of ordinary cross-entropy, of the head and of small logits: their copies and gradients come "
    "and go, and glibc before 2.38 seldom reuses the place of an aligned piece",
    "benchmarks/memory_estimate.py, the largest of several runs of one configuration",
)

COMPILER_BASE = Constant(75 * _MB, "anon that torch.compile adds to the run's own process", _HERE)
COMPILER_HEADER = Constant(430 * _MB, "anon of a C++ compiler that reads all of torch's headers, once", _COLD)
COMPILER_KERNEL = Constant(100 * _MB, "anon of one that compiles a kernel, with those headers ready", _COLD)
TRITON_POOL = Constant(360 * _MB, "anon of torch.compile's process that forks Triton's compilers", _POOL)
TRITON_WORKER = Constant(35 * _MB, "anon of one of those, with the assembler that it calls", _POOL)
COMPILERS_AT_ONCE = 2
"""core.py lets no more run, unless TORCHINDUCTOR_COMPILE_THREADS says so: each takes memory."""

LOGGERS = {
    "csv": Constant(16 * _MB, "anon of the process that writes a run's series to a file", _LOGGERS),
    "tensorboard": Constant(45 * _MB, "the same, with TensorBoard's writer", _LOGGERS),
    "wandb": Constant(85 * _MB, "the same, with W&B and the process that it starts", _LOGGERS),
}

CUDA_CONTEXT = Constant(
    690 * _MB,
    "GPU memory of a process beyond torch's reservation: context, kernels of torch, cuBLAS and attention. "
    "The driver counted 728 MB for one that had reserved 34",
    _H100,
)
CUDA_HOST = Constant(
    550 * _MB,
    "anon on the host that a GPU adds: 16 MB of the context, 275 of cuBLAS and cuDNN, the rest of Triton, "
    "the loader and page-locked batches. Runs of 32d have peaks of 834 to 889 MB",
    _H100,
)
CUBLAS_WORKSPACES = Constant(
    2 * 32 * _MB,
    "GPU memory of cuBLAS, of the forward and the backward thread: 32 MB each on Hopper, 8 MB before",
    "torch's default CUBLAS_WORKSPACE_CONFIG (aten/src/ATen/cuda/CublasHandlePool.cpp)",
)
CUDA_CACHE_SHARE = Constant(
    0.05, "of tensors: reserved by torch's caching allocator beyond them, 0.3% to 4% at the peak", _H100
)
