"""What a process costs by itself, in one table; benchmarks/memory_constants.py measures it again.

With torch 2.13, Python 3.11, glibc 2.36, 2 threads, on Debian 12, November 2026. What differs between the
builds of torch has two values; which one counts is read from the files of the installed torch
(`memory.estimate.torch_build`). What concerns a GPU was measured by benchmarks/gpu on an H100.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.estimate.torch_build import CPU, torch_build

_MB = 1 << 20


@dataclass(frozen=True)
class Constant:
    """A measured amount.

    value: bytes, or a share of 1. what: is measured. source: how, or by whom. cuda: the value with the CUDA
    build of torch where it differs, on a GPU or not; a build that was not measured (ROCm) counts as that.
    """

    value: float
    what: str
    source: str
    cuda: float | None = None

    @property
    def in_bytes(self) -> int:
        """Bytes with the build of torch that is installed."""
        return int(self.value if self.cuda is None or torch_build() == CPU else self.cuda)


_HERE = "benchmarks/memory_constants.py"
_COLD = "benchmarks/memory_estimate.py --compiled"

_POOL = "two workers of torch's pool that compile a reduction for sm_90, without a GPU"
_ROWS = "benchmarks/memory_estimate.py"
_BESIDE = "benchmarks/loggers.py, rounded up by a sixth"
FRAMEWORK_BASE = Constant(
    229 * _MB,
    "anon of a whole run of a model of 1 MB: Python, torch, what the room imports",
    _HERE,
    cuda=369 * _MB,
)
HEAP_FIXED = Constant(40 * _MB, "anon beyond that and the tensors, of any model: buffers of products", _HERE)
HEAP_SHARE = Constant(
    0.18, "of tensors under 32 MB, which glibc takes from its heap: holes between them", _HERE
)
HEAP_SCAN = Constant(
    0.2, "more of those tensors where a minGRU scans: what the scan takes for a moment lies between", _ROWS
)
HEAP_LEAST = Constant(2 * _MB, "the least of those beyond the tensors, of a model of next to nothing", _HERE)
HEAP_MOST_SHARE = Constant(1.0, "of all tensors of the model: the fixed amounts are no more", _HERE)
HEAP_CHURN = Constant(
    1.1, "of what checkpointed blocks take and give back one by one: each leaves other holes", _ROWS
)
HEAP_CHURN_MAPPED = Constant(0.3, "the same of their tensors from 32 MB on, beside smaller ones", _ROWS)
HEAP_CHURN_DEEPER = Constant(
    0.18, "of that, for each of those blocks: the holes of one are no place for the next", _ROWS
)
HEAP_DISPLACED = Constant(
    0.75,
    "of matrices of the vocabulary under 32 MB that come and go in a step: glibc before 2.38 seldom puts an "
    "aligned piece where one of its size was. From 0 to 0.9, by chance: this is for the unlucky",
    "benchmarks/memory_estimate.py, several runs of one configuration",
)
HEAP_FIXED_AGAIN = Constant(
    25 * _MB, "and of later micro-batches of a step, whose tensors meet the gradients of the first", _HERE
)
HEAP_SHARE_AGAIN = Constant(0.15, "the same, of tensors under 32 MB", _HERE)
HEAP_FIXED_TOGETHER = Constant(
    72 * _MB,
    "what HEAP_FIXED is of several runs in one process, whose products are as wide as all of them",
    _ROWS,
)
HEAP_SHARE_TOGETHER = Constant(0.15, "what HEAP_SHARE is of those", _ROWS)
HEAP_PIECE = Constant(32 * _MB, "a larger one is mapped by itself, and given back whole", "mallopt(3)")
COMPILER_BASE = Constant(75 * _MB, "anon that torch.compile adds to the run's own process", _HERE)
COMPILER_HEADER = Constant(430 * _MB, "anon of a C++ compiler that reads all of torch's headers, once", _COLD)
COMPILER_KERNEL = Constant(100 * _MB, "anon of one that compiles a kernel, with those headers ready", _COLD)
TRITON_POOL = Constant(
    360 * _MB,
    "anon of the process that torch.compile starts on a GPU, from which Triton's compilers are forked",
    _POOL,
)
TRITON_WORKER = Constant(35 * _MB, "anon of one of those, with the assembler that it calls", _POOL)
COMPILERS_AT_ONCE = 2
"""core.py lets no more run, unless TORCHINDUCTOR_COMPILE_THREADS says so: each takes memory."""
ENTRY = Constant(70 * _MB, "anon of experiments.py and the supervisor, which wait for the run", _HERE)
LIBRARIES_MAPPED = Constant(
    100 * _MB,
    "mapped files of Python, torch and NumPy in RSS: they can be given back, but Slurm's poll counts them",
    _HERE,
    cuda=460 * _MB,
)
LOGGERS = {
    "csv": Constant(16 * _MB, "anon of the process beside a run that writes its series", _BESIDE),
    "tensorboard": Constant(45 * _MB, "the same, with TensorBoard's writer", _BESIDE),
    "wandb": Constant(85 * _MB, "the same, with W&B and the process that it starts", _BESIDE),
}
PAGE_TABLES = Constant(1 / 512, "of a mapped byte, in each process that reads it: 8 bytes a page", "proc(5)")
_H100 = "benchmarks/gpu (machine, run_speed) on an H100, driver 580, torch 2.11 with CUDA 13.0"
CUDA_CONTEXT = Constant(
    690 * _MB,
    "GPU memory of a process beyond what torch reserves: the context, and the kernels of torch, cuBLAS and "
    "attention that were loaded. The driver counted 728 MB for one that had reserved 34",
    _H100,
)
CUDA_HOST = Constant(
    550 * _MB,
    "anon on the host that a GPU adds in a whole run: 16 MB of the context, 275 of cuBLAS and cuDNN, "
    "the rest of Triton, the loader and page-locked batches. Runs of 32d have peaks of 834 to 889 MB",
    _H100,
)
CUBLAS_WORKSPACES = Constant(
    2 * 32 * _MB,
    "GPU memory of the workspaces of cuBLAS, one of the forward and one of the backward thread: 32 MB each "
    "on Hopper and later, 8 MB before",
    "torch's default CUBLAS_WORKSPACE_CONFIG (aten/src/ATen/cuda/CublasHandlePool.cpp)",
)
CUDA_CACHE_SHARE = Constant(
    0.05,
    "of tensors: what torch's caching allocator reserves beyond. 0.3% to 4% at the peak of a step",
    _H100,
)
