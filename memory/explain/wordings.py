"""The words that Slurm, the kernel, torch and Python use when memory or a run comes to its end.

Sources, by the version that wrote them first: slurm/src/plugins/task/cgroup/task_cgroup_memory.c and
slurm/src/interfaces/jobacct_gather.c; mm/oom_kill.c; c10/cuda/CUDACachingAllocator.cpp and
c10/core/CPUAllocator.cpp; torch/utils/data/_utils/signal_handling.py; the messages of CPython's own
exceptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_I = re.IGNORECASE

SLURM_OOM = (
    # to 22.05: "Detected 1 oom-kill event(s) in StepId=14604003.0 cgroup." or "in step 370626.batch cgroup";
    # from 23.02: "Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed."
    re.compile(r"Detected (?P<count>\d+) oom[-_]kill event(?:\(s\)|s)? in (?P<where>\S+(?: \d\S*)?)", _I),
    re.compile(r"(?P<where>srun: error: \S+ tasks? [^:]{1,80}): Out Of Memory"),
    re.compile(r"(?P<where>StepId=\S+|step \S+) hit memory limit at least once", _I),
)
POLLED = re.compile(
    r"(?P<where>StepId=\S+|Step \S+|Job \S+|JobId=\S+) exceeded (?:job |step )?memory limit"
    r"(?: \((?P<used>\d+)\s*>\s*(?P<limit>\d+)\))?, being killed",
    _I,
)
"""OverMemoryKill: slurmd's poll. In bytes from 17.11 on, in KB before."""
SLURM_ENDS = (
    ("timeout", re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO TIME LIMIT")),
    ("preemption", re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO PREEMPTION")),
    (
        "node_failure",
        re.compile(
            r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO NODE FAILURE|Node failure on \S+"
            # srun's, of a node that came back before Slurm took it for lost, and knows no such step
            r"|srun: error: Aborting, (?:io error and missing step|step missing and io error) on node \d+",
            _I,
        ),
    ),
    ("requeue", re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ DUE TO JOB REQUEUE")),
    ("scancel", re.compile(r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: \*\*\*|\s|$)", re.MULTILINE)),
)
NODE_LOST = dict(SLURM_ENDS)["node_failure"]
KERNEL_OOM = re.compile(
    r"(?P<what>Memory cgroup out of memory|Out of memory(?! while| \(oom\) error)): Kill(?:ed)? process "
    r"(?P<pid>\d+)(?: \((?P<name>[^)]*)\))?(?P<rest>[^\n]*)"
)
OOM_DAEMON = re.compile(
    r"(?:systemd-oomd|earlyoom|oomd)\b[^\n]*\b(?:[Kk]ill(?:ed|ing)|sending SIG(?:TERM|KILL) to process)[^\n]*"
)

GPU_OOM = re.compile(
    r"CUDA out of memory|HIP out of memory|CUDA error: out of memory|cudaErrorMemoryAllocation"
    r"|CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED|CUBLAS_STATUS_NOT_INITIALIZED|torch\.(?:cuda\.)?OutOfMemoryError"
    # JAX; the driver's own words, of Numba and JAX too; CuPy; NCCL
    r"|RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cupy[\w.]*\.OutOfMemoryError|Failed to CUDA calloc|Cuda failure (?:\d+ )?'out of memory'"
    # Intel's, through torch
    r"|XPU out of memory"
    # Apple's GPU; TensorFlow
    r"|MPS backend out of memory|OOM when allocating tensor[^\n]*device:\w*GPU:\d"
)
HOST_PINNED = re.compile(r"\bpin_memory\b|\bcudaHostAlloc\b|\bcudaMallocHost\b|\bpinned\b")
"""In the frame that raised `CUDA error: out of memory`: what ran out is the host's page-locked memory."""
MEMORY_ERROR = re.compile(
    r"^(?:[\w.]+\.)?(?:_Array|Arrow)?MemoryError\b[^\n]*"
    r"|^duckdb[\w.]*\.OutOfMemoryException\b[^\n]*"
    r"|DefaultCPUAllocator: (?:can't|not enough)[^\n]*memory[^\n]*"
    r"|std::bad_alloc"
    r"|OSError: \[Errno 12\][^\n]*|\bCannot allocate memory\b[^\n]*"
    r"|Unable to allocate [\d.]+ \w+ for an array[^\n]*|memory allocation of \d+ bytes failed"
    # perl, gawk and sort, gcc, java, node, R, Go, Julia
    r"|^Out of memory(?:!| in perl)[^\n]*|\bmemory exhausted\b[^\n]*|java\.lang\.OutOfMemoryError[^\n]*"
    r"|JavaScript heap out of memory|^Error: cannot allocate vector of size[^\n]*"
    r"|^fatal error: (?:runtime: (?:out of memory|cannot allocate memory)|out of memory)[^\n]*"
    r"|^(?:ERROR: (?:\w+: )*)?OutOfMemoryError\(\)|OOM when allocating tensor[^\n]*allocator \w*cpu\b[^\n]*",
    re.MULTILINE,
)
NO_THREAD = re.compile(
    r"can't start new thread|pthread_create failed[^\n]*|unable to create native thread[^\n]*"
)
"""For lack of memory only where that is limited: the number of processes may be what is."""
ASKED_FOR = re.compile(
    r"Unable to allocate (?P<amount>[\d.]+) (?P<unit>[KMGTP]?i?B)|you tried to allocate (?P<bytes>\d+) bytes"
    r"|memory allocation of (?P<rust>\d+) bytes failed"
)
HEAPS = {
    r"java\.lang\.OutOfMemoryError: (?:Java heap space|GC overhead limit)": ("Java", "java -Xmx{mb}m", 8192),
    r"java\.lang\.OutOfMemoryError: Metaspace": ("Java", "java -XX:MaxMetaspaceSize={mb}m", 1024),
    r"JavaScript heap out of memory": ("Node", "node --max-old-space-size={mb}", 8192),
}
"""By a pattern of their words, whose heaps have a limit of their own: whose, how that is raised, and to how
many MB at most.
"""
OWN_WORDS = re.compile(
    r"^(?:[\w.]+\.)?MemoryError: (?!.*(?:alloc|bytes|[KMGT]i?B\b|std::bad|out of memory|not enough memory))",
    _I,
)
"""A MemoryError that the program raised itself: CPython's has no words, NumPy's tells what was refused."""
SHM_FULL = re.compile(
    r"insufficient shared memory \(shm\)|creating shared memory segment /dev/shm/nccl"
    r"|(?:No space left on device|\[Errno 28\])[^\n]*(?:/dev/shm|/torch_|/psm_|/mp-)[^\n]*"
    r"|(?:/dev/shm|/torch_\d|/psm_)[^\n]*(?:No space left on device|\(28\))"
    r"|unable to (?:write to|resize|allocate|mmap)(?![^\n]*Cannot allocate memory)[^\n]*"
    r"(?:/torch_|shared memory|/dev/shm)[^\n]*",
    _I,
)
"""Not with ENOMEM: a /dev/shm without room answers ENOSPC, or SIGBUS at the first touch."""
TOO_MANY_MAPS = re.compile(r"unable to mmap [^\n]*Cannot allocate memory", _I)
"""torch maps each shared tensor on its own: the number of maps runs out before memory does."""
BUS_ERROR = re.compile(r"\bbus error\b|\bSIGBUS\b", _I)
DISK_FULL = re.compile(r"No space left on device[^\n]*|\[Errno 28\][^\n]*|Disk quota exceeded[^\n]*")
WORKER_KILLED = re.compile(
    r"DataLoader worker \(pid (?P<pid>\d+)\) is killed by signal: (?P<signal>[\w ]+)"
    r"|DataLoader worker \(pid\(s\) (?P<pids>[\d, ]+)\) exited unexpectedly"
    r"|process (?P<ours>\d+) was killed by (?P<ours_signal>SIG[A-Z]+)"
    # torchrun; joblib (loky); subprocess
    r"|Signal \d+ \((?P<launched_signal>SIG(?:KILL|BUS))\) received by PID (?P<launched>\d+)"
    r"|was unexpectedly terminated\.[^{}]{0,600}exit codes of the workers are "
    r"\{(?P<loky_signal>SIG(?:KILL|BUS))\("
    r"|died with <Signals\.(?P<run_signal>SIG(?:KILL|BUS)): \d+>"
    r"|A (?:worker )?process in the process pool was terminated abruptly|BrokenProcessPool"
)
ANOTHER_DIED = re.compile(
    r"ChildFailedError|Process(?:Raised|Exited)Exception|BrokenProcessPool|TerminatedWorkerError|KilledWorker"
    r"|WorkerCrashed|CalledProcessError|killed by signal|exited unexpectedly"
)
"""What a process raises because one of its own has died."""
SIGKILL_TOLD = re.compile(
    # sh, and bash of a command in a script; srun of a task; subprocess and torchrun of a child
    r"^Killed\s*$|^.*: line \d+: +\d+ Killed\b.*$|^srun: error: \S+ tasks? [^:\n]{1,80}: Killed\s*$"
    r"|died with <Signals\.SIGKILL: 9>|\bSignal 9 \(SIGKILL\)|exitcode *: -9 \(pid",
    re.MULTILINE,
)
CRASH_TOLD = re.compile(
    r"(?:^.*: line \d+: +\d+ |^srun: error: \S+ tasks? [^:\n]{1,80}: )"
    r"(?P<how>Segmentation fault|Aborted|Illegal instruction|Floating point exception)\b.*$",
    re.MULTILINE,
)
"""As bash and srun tell of it."""
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class GpuMessage:
    """torch's message of an allocation that failed, in bytes; None where the wording lacks it.

    others_bytes: held by other processes, listed or not. in_use_bytes: by this one, with the CUDA context.
    """

    asked_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    allocated_bytes: int | None
    unallocated_bytes: int | None
    in_use_bytes: int | None
    others_bytes: int
    line: str


_AMOUNT = r"(?P<{0}>[\d.]+) (?P<{0}_unit>bytes|[KMGTP]?i?B)"
_GPU_PARTS = {
    "asked": re.compile(r"[Tt]ried to allocate " + _AMOUNT.format("n")),
    "total": re.compile(r"total capaci?ty "
    "of " + _AMOUNT.format("n") + "|" + _AMOUNT.format("m") + " total capacity"),
    "free": re.compile(r"of which " + _AMOUNT.format("n") + " is free|" + _AMOUNT.format("m") + " free"),
    "allocated": re.compile(
        _AMOUNT.format("n") + " is allocated by PyTorch|" + _AMOUNT.format("m") + " already allocated"
    ),
    "unallocated": re.compile(_AMOUNT.format("n") + " is reserved by PyTorch but unallocated"),
    "reserved": re.compile(_AMOUNT.format("n") + r" (?:reserved in total by PyTorch|cached)"),
    "in_use": re.compile(r"this process has " + _AMOUNT.format("n") + " memory in use"),
}  # fmt: skip
_OTHERS = re.compile(r"[Pp]rocess \d+ has " + _AMOUNT.format("n") + " memory in use")
_CONTEXT_BYTES = 3 << 30
"""The CUDA context and what libraries keep are less."""
_LEAST_CONTEXT_BYTES = 512 << 20
"""Least share of the unlisted memory that they hold."""
_UNITS = {"B": 1, "BYTES": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}


def gpu_message(text: str) -> GpuMessage | None:
    """The last one in `text`, of torch 1.x ("10.76 GiB total capacity; 9.37 GiB already allocated"), 2.x."""
    lines = [line for line in text.splitlines() if GPU_OOM.search(line)]
    if not lines:
        return None
    told = [line for line in lines if "ried to allocate" in line]
    line = (told or lines)[-1]
    found = {name: _first_amount(pattern.search(line)) for name, pattern in _GPU_PARTS.items()}
    reserved, allocated = found.pop("reserved"), found["allocated"]
    if found["unallocated"] is None and reserved is not None and allocated is not None:
        found["unallocated"] = max(0, reserved - allocated)
    others = _of_others(line, found)
    amounts = {f"{name}_bytes": amount for name, amount in found.items()}
    return GpuMessage(others_bytes=others, line=line.strip()[-600:], **amounts)


def _of_others(line: str, found: dict[str, int | None]) -> int:
    """Bytes that other processes hold: those that are listed, else what this one does not account for.

    In a container this very process may be listed as if it were another.
    """
    amounts = [_first_amount(match) or 0 for match in _OTHERS.finditer(line)]
    own = (found["allocated"] or 0) + (found["unallocated"] or 0)
    ours = [amount for amount in amounts if own <= amount <= own + _CONTEXT_BYTES]
    if found["in_use"] is None and ours:
        amounts.remove(min(ours))
    mine = found["in_use"] or (min(ours) if ours else own and own + _LEAST_CONTEXT_BYTES)
    if amounts or not found["total"] or found["free"] is None or not mine:
        return sum(amounts)
    return max(0, found["total"] - found["free"] - mine)


def amount_bytes(number: str, unit: str) -> int | None:
    """`2.00`, `GiB`; None for what is no number."""
    try:
        return int(float(number) * _UNITS.get(unit.upper(), _UNITS.get(unit[:1].upper(), 1)))
    except (ValueError, OverflowError):
        return None


def _first_amount(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    parts = match.groupdict()
    name = "n" if parts.get("n") is not None else "m"
    return amount_bytes(parts[name], parts[f"{name}_unit"])


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    return found


def last_line_with(pattern: re.Pattern[str], text: str) -> str | None:
    """The last line in which `pattern` matches, shortened."""
    last = last_match(pattern, text)
    return None if last is None else line_of(last)


def line_of(match: re.Match[str]) -> str:
    """The line around a match, shortened."""
    text = match.string
    begin = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.end())
    return text[begin : len(text) if end < 0 else end].strip()[:300]
