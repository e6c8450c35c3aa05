"""Log lines that say how a program ended: one table of patterns, each with its source.

Rules ask for a kind. Lines of Slurm, the kernel and other managers match only where their author writes them:
from the beginning of a line, behind a label at most. A quotation inside a sentence does not match.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class LogPattern:
    """A message of one tool."""

    kind: str
    regex: re.Pattern[str]
    source: str
    """Program, version or file that writes the message."""


_LABEL = (
    r"^[ \t]*(?:\[[^\]\n]{1,60}\][ :]*|\([^)\n]{1,30}\) ?|<\d{1,3}>|[\w.+-]{1,40}[:|] ?|[-\d:.,TZ+ ]{4,40} )*"
)
_SLURM = _LABEL + r"(?:(?:slurmstepd|slurmd|srun)[^:\n]{0,30}: ?)?(?:error: )?(?:\*\*\* )?"
_KERNEL = (
    r"^(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ |\S+ \S+ )?(?:kern[ \w]*: *\w+ *: *|kernel: ?)?"
    r"(?:<\d{1,3}>)?(?:\[[^\]\n]{1,40}\][ :]*)*"
)
_LINE = r"^[ \t]*(?:[^\n]{0,80} )?"
_CANCELLED = r"(?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+"
_PASTED = r"^[ \t]*\d{2,12}[\w.+]*[ |][^\n]*\b"
"""A row of sacct, which begins with the job's number."""
_VICTIM = r"Kill(?:ed)? process (?P<pid>\d{1,12})(?: \((?P<name>[^)]*)\))?"
_BY_9 = r"(?:\bSIGKILL\b|\b[Ss]ignal[: ]+9\b|\bsig=9\b|code=killed, status=9)"
_CODE_9 = (
    r"(?:[Ee]xit(?:ed)?(?: with)?[ _]?(?:code|status)?|EXIT CODE|return code|\bError)[ :=(]*"
    r"(?:137|-9|9(?=$))(?![\d:])"
)
_END_OF_LINE = r"[^\n]*"


def _table(*rows: tuple[str, str, str]) -> tuple[LogPattern, ...]:
    return tuple(LogPattern(kind, re.compile(regex, re.M), source) for kind, regex, source in rows)


MANAGERS = _table(
    # Slurm: https://github.com/SchedMD/slurm, src/slurmd/slurmstepd, src/srun, contribs/seff
    ("slurm_oom", _SLURM + r"Detected \d+ oom[-_]kill event(?:\(s\)|s)? in \S+(?: \d\S*)?[^\n]*",
     "slurmstepd 17.11 to 25.11, task_cgroup_memory.c"),
    ("slurm_oom", _SLURM + r"\S+: tasks? [^:\n]{1,80}: Out Of Memory", "srun, launch.c"),
    ("slurm_oom", _SLURM + r"(?:(?:Step|Job|step|job)[^\n]{0,40} (?:hit|exceeded|Exceeded) \w* ?memory limit "
     r"at|Exceeded (?:step|job) memory limit at some point)[^\n]*", "slurmstepd 2.6 to 19.05"),
    ("slurm_oom", r"^State: OUT_OF_MEMORY\b[^\n]*|" + _PASTED + r"OUT_OF_ME[A-Z+]*[^\n]*", "seff; sacct, "
    "pasted"),
    ("slurm_poll", _SLURM + r"(?:StepId=\S+|Step \S+|Job \S+|JobId=\S+) exceeded (?:job |step |virtual "
     r")?memory limit(?: \((?P<used>\d+)\s*>\s*(?P<limit>\d+)\))?, being killed", "slurmd, jobacct_gather.c, "
     "OverMemoryKill"),
    ("slurm_timeout", _SLURM + _CANCELLED + r" DUE TO TIME LIMIT[^\n]*", "slurmstepd"),
    ("slurm_timeout", r"^State: TIMEOUT\b[^\n]*|" + _PASTED + r"TIMEOUT\b[^\n]* \d{1,3}:\d{1,3}\b[^\n]*",
     "seff; sacct, pasted"),
    ("slurm_preempted", _SLURM + _CANCELLED + r" DUE TO PREEMPTION[^\n]*|" + _PASTED + r"PREEMPTED\b[^\n]*",
     "slurmstepd; sacct, pasted"),
    ("slurm_node_failed", _SLURM + r"(?:" + _CANCELLED + r" DUE TO NODE FAILURE|Node failure on \S+"
     r"|Aborting, (?:io error and missing step|step missing and io error) on node \d+)[^\n]*|"
     + _PASTED + r"NODE_FAIL\b[^\n]*", "slurmstepd, srun; sacct, pasted"),
    ("slurm_requeued", _SLURM + _CANCELLED + r" DUE TO JOB REQUEUE[^\n]*", "slurmstepd"),
    ("slurm_cancelled", _SLURM + _CANCELLED + r"(?: \*\*\*|\s|$)|^State: CANCELLED\b[^\n]*", "slurmstepd; "
    "seff"),
    # The kernel: https://git.kernel.org, mm/oom_kill.c
    ("kernel_cgroup", _KERNEL + r"Memory cgroup out of memory: " + _VICTIM + _END_OF_LINE, "mm/oom_kill.c"),
    ("kernel_cgroup", _KERNEL + r"oom-kill:constraint=CONSTRAINT_MEMCG\b[^\n]*task=(?P<name>[^,\n]*),pid="
     r"(?P<pid>\d{1,12})[^\n]*", "mm/oom_kill.c from 4.19"),
    ("kernel_host", _KERNEL + r"Out of memory(?: \(oom_kill_allocating_task\))?: " + _VICTIM + _END_OF_LINE,
     "mm/oom_kill.c"),
    # Containers, services, and daemons that watch the machine
    ("container_oom", r"^[ \t]*(?:(?:Last )?(?:State|Status|Reason):\s+OOMKilled\b|\"?reason\"?: "
                      r"\"?OOMKilled\b"
     r"|\S+\s+\d+/\d+\s+(?:Init:)?OOMKilled\b|(?:\S+\s+)?Warning\s+OOMKilling\b)[^\n]*", "kubectl describe, "
     "get"),
    ("container_oom", r'^[ \t]*"OOMKilled": true\b[^\n]*', "docker inspect, podman inspect"),
    ("container_oom", _LINE + r"\S{1,120}\.(?:service|scope): (?:A process of this unit has been killed by "
     r"the OOM killer|Failed with result 'oom-kill')[^\n]*|^[ \t]*Active: failed \(Result: oom-kill\)[^\n]*",
     "systemd, journalctl"),
    ("container_oom", _LINE + r"(?:(?:=>> )?PBS: [^\n]*Cgroup[^\n]*mem\w* limit|(?:Killed )?Cgroup "
     r"mem(?:ory)? limit exceeded\b)[^\n]*", "PBS Pro, cgroup hook"),
    ("container_oom", _LINE + r"OutOfMemoryError: Container killed due to memory usage[^\n]*|^Memory limit "
     r"of \S+ \S+ exceeded with[^\n]*", "AWS Batch, Google Cloud Run"),
    ("memory_daemon", _LINE + r"systemd-oomd(?:\[\d+\]: Killed \S+ due to| killed (?:some|\d+) "
                              r"process)[^\n]*",
     "systemd-oomd, oomd-manager.c; systemd, unit.c"),
    ("memory_daemon", _LINE + r"earlyoom(?:\[\d+\])?: sending SIG(?:TERM|KILL) to process[^\n]*", "earlyoom, "
    "kill.c"),
    ("memory_daemon", r"^[ \t]*(?:[\w.]+\.)?(?:OutOfMemoryError: Task was killed due to the node running low "
     r"on memory|RayOutOfMemoryError: More than \d+% of the memory)[^\n]*", "Ray 1 and 2"),
    ("memory_daemon", _LABEL + r"[^\n]{0,120}\d+ Workers \(tasks / actors\) killed due to memory pressure "
     r"\(OOM\)[^\n]*", "raylet, node_manager.cc"),
    ("memory_daemon", _LABEL + r"[^\n]{0,60}distributed\.nanny[^\n]{0,40} WARNING - Worker [^\n]* exceeded "
     r"\d+% memory budget[^\n]*", "Dask nanny, from 2021"),
    ("memory_daemon", r"^[ \t]*(?:\S[^\n]{0,60})?The node was low on resource: memory\b[^\n]*", "kubelet, "
    "eviction"),
    ("manager_poll", r"^[ \t]*(?:Error from \S+: )?Job has gone over (?:cgroup )?memory limit", "HTCondor"),
    ("manager_poll", r"^[ \t]*(?:\S[^\n]{0,80}; )?TERM_MEMLIMIT\b[^\n]*", "LSF"),
    ("manager_poll", r"^[ \t]*=>> PBS: (?:job killed: p?v?mem [^\n]*exceeded limit|[^\n]*exceeded (?:mem"
     r"|memory) limit)[^\n]*", "PBS, Torque"),
    ("manager_poll", _LINE + r"(?:is running \S* ?beyond (?:the )?'?(?:physical|PHYSICAL|virtual|VIRTUAL)'? "
     r"memory limit|Container killed by YARN for exceeding)[^\n]*", "YARN, Spark"),
    ("manager_timeout", r"^[ \t]*(?:=>> PBS: job killed: (?:walltime|cput)\b[^\n]*exceeded limit"
     r"|(?:\S[^\n]{0,80}; )?TERM_(?:RUN|CPU)LIMIT\b)[^\n]*", "PBS, LSF"),
    # SIGKILL as launchers and shells write it: nothing of these says who sent it
    ("sigkill", r"^(?:Killed(?:: 9)?|Getötet|Tué|Processus arrêté|Matado|已杀死|强制终止)\s*$",
    "languages"),
    ("sigkill", r"^.*: line \d+: +\d+ Killed\b.*$|^\[\d+\][-+ ]+Killed\b.*$", "bash"),
    ("sigkill", r"^(?:zsh|fish)[:,].*\b(?:killed|SIGKILL)\b.*$|^\S*make(?:\[\d+\])?: \*\*\* .*\bKilled\b.*$",
     "zsh, fish, make"),
    ("sigkill", r"^srun: error: \S+ tasks? [^:\n]{1,80}: Killed\s*$", "srun"),
    ("sigkill", r"^.*" + _BY_9 + r".*$|^.*\bKILLED BY SIGNAL: 9\b.*$",
     "torchrun, mpirun, subprocess, GNU time, systemd"),
    ("sigkill", r"^.*" + _CODE_9 + r".*$", "torchrun, DeepSpeed, mpirun, docker, kubectl, make, CI"),
    ("crash", r"(?:^.*: line \d+: +\d+ |^srun: error: \S+ tasks? [^:\n]{1,80}: |^)"
     r"(?:Segmentation fault|Aborted|Illegal instruction|Floating point exception)\b.*$"
     r"|^.*(?:[Ee]xit ?code *: -(?:11|6|4|8)\b|\bSignal (?:11|6|4|8) \(SIG\w+\) received by PID).*$",
     "bash, srun, torchrun"),
)  # fmt: skip

ERRORS = _table(
    # A worker died, and its parent says so
    ("worker_killed", r"DataLoader worker \(pid (?P<pid>\d{1,11})\) is killed by signal: Killed", "torch"),
    ("worker_killed", r"process (?P<pid>\d{1,11}) was killed by SIGKILL", "highwater"),
    ("worker_killed", r"Signal \d+ \(SIGKILL\) received by PID (?P<pid>\d{1,11})", "torchrun, "
    "subprocess_handler.py"),
    ("worker_killed", r"exit codes of the workers are \{SIGKILL\(|died with <Signals\.SIGKILL: 9>",
     "joblib, subprocess"),
    ("worker_bus", r"DataLoader worker \(pid (?P<pid>\d{1,11})\) is killed by signal: Bus error"
     r"|received by PID (?P<pid2>\d{1,11}).{0,9}SIGBUS|SIGBUS received|<Signals\.SIGBUS: 7>"
     r"|exit codes of the workers are \{SIGBUS\(", "torch, joblib, subprocess"),
    ("worker_died", r"DataLoader worker \(pid\(s\) (?P<pid>\d{1,11})[\d, ]*\) exited unexpectedly"
     r"|BrokenProcessPool|A (?:worker )?process in the process pool was terminated abruptly"
     r"|DataLoader worker \(pid (?P<pid2>\d{1,11})\) is killed by signal"
     r"|One of the subprocesses has abruptly died|\bKilledWorker\b|\bWorkerCrashedError\b",
     "torch, concurrent.futures, datasets, Dask, Ray"),
    # The GPU
    ("gpu_message", r"(?:CUDA|HIP|XPU|NPU|MPS backend) out of memory", "torch 1.0 to 2.x, "
    "CUDACachingAllocator.cpp"),
    ("gpu_oom", r"CUDA (?:driver )?error: out of memory|(?:cudaErrorMemoryAllocation|hipErrorOutOfMemory)\b"
     r"|torch\.(?:cuda\.)?OutOfMemoryError|cudaMalloc failed: out of memory", "torch, CUDA runtime, "
     "llama.cpp"),
    ("gpu_oom", r"CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_(?:STATUS_)?ALLOC_FAILED", "cuBLAS, cuDNN, cuFFT"),
    ("gpu_handle", r"CUBLAS_STATUS_NOT_INITIALIZED", "cuBLAS"),
    ("gpu_oom", r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)", "JAX, XLA bfc_allocator.cc"),
    ("gpu_oom", r"CUDA_ERROR_OUT_OF_MEMORY|cupy[\w.]*\.OutOfMemoryError", "CUDA driver, TensorFlow, Numba, "
    "CuPy"),
    ("gpu_oom", r"Failed to CUDA (?:c|m)alloc|Cuda failure (?:\d+ )?'out of memory'", "NCCL 2, alloc.h"),
    ("gpu_oom", r"OOM when allocating tensor[^\n]*device:\w*GPU:\d", "TensorFlow"),
    ("gpu_cache", r"No available memory for the cache blocks|larger than the (?:maximum number of tokens "
                  r"that can be "
     r"stored in KV cache|available KV cache memory)|Free memory on device[^\n]* is less than desired GPU "
     r"memory utilization", "vLLM, kv_cache_utils.py"),
    # /dev/shm and disks
    ("worker_bus", r"[Bb]us error encountered in worker|insufficient shared memory \(shm\)", "torch"),
    ("shm_full", r"(?:Error while )?creating shared memory segment (?:/dev/shm/)?nccl", "NCCL 2"),
    ("shm_full", r"(?:No space left on device|\[Errno 28\])[^\n]*(?:/dev/shm|/torch_|/psm_|/mp-)", "CPython"),
    ("shm_full", r"(?:/dev/shm|/torch_\d|/psm_)[^\n]*(?:No space left on device|\(28\))", "C library"),
    ("shm_full", r"unable to (?:write to|resize|allocate|mmap|open)(?![^\n]*Cannot allocate memory)[^\n]*"
     r"(?:/torch_|shared memory|/dev/shm)", "torch, MapAllocator.cpp"),
    ("bus_error", r"\b[Bb]us error\b|\bSIGBUS\b", "shells"),
    ("disk_full", r"(?:No space left on device|\[Errno 28\]|Disk quota exceeded|PytorchStreamWriter failed "
     r"writing)[^\n]*", "C library, CPython, torch"),
    # Refused allocations
    ("maps_used_up", r"unable to mmap [^\n]*Cannot allocate memory", "torch: vm.max_map_count"),
    ("memory_error", r"^(?:[\w.]+\.)?(?:_Array|Arrow)?MemoryError\b[^\n]*", "CPython, NumPy, Arrow"),
    ("memory_error", r"^duckdb[\w.]*\.OutOfMemoryException\b[^\n]*", "DuckDB"),
    ("memory_error", r"DefaultCPUAllocator: (?:can't|not enough)[^\n]*memory", "torch"),
    ("memory_error", r"OSError: \[Errno 12\][^\n]*|std::bad_alloc|\bCannot allocate memory\b",
     "C++, C library, CPython"),
    ("memory_error", r"Unable to allocate [\d.]+ \w+ for an array|memory allocation of \d+ bytes failed",
     "NumPy, pandas, Rust"),
    ("memory_error", r"C error: out of memory", "pandas"),
    ("memory_error", r"\[WinError (?:1455|8)\]|paging file is too small", "Windows"),
    ("memory_error", r"OOM when allocating tensor[^\n]*allocator \w*cpu\b", "TensorFlow"),
    ("memory_error", r"^Out of memory(?:!| in perl)|\bmemory exhausted\b|java\.lang\.OutOfMemoryError"
     r"|JavaScript heap out of memory|^Error: cannot allocate vector of size"
     r"|^fatal error: (?:runtime: )?(?:out of memory|cannot allocate memory)"
     r"|^(?:ERROR: (?:\w+: )*)?OutOfMemoryError\(\)|\bc?c1(?:plus)?: out of memory",
     "perl, sort, Java, Node, R, Go, Julia, gcc"),
    ("no_thread", r"can't start new thread|pthread_create failed|unable to create native thread"
     r"|fork: (?:retry: )?Resource temporarily unavailable|BlockingIOError: \[Errno 11\]", "CPython, C, "
     "Java, bash"),
)  # fmt: skip


def patterns(kind: str) -> tuple[re.Pattern[str], ...]:
    """Patterns of one kind."""
    return tuple(row.regex for row in (*MANAGERS, *ERRORS) if row.kind == kind)


def line_of(match: re.Match[str]) -> str:
    """The line around a match, shortened."""
    text = match.string
    start = match.start() + len(match[0]) - len(match[0].lstrip())
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", max(start, match.end() - 1))
    return text[begin : len(text) if end < 0 else end].strip()[:300]
