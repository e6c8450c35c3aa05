"""What Slurm says of the job in its environment: ids, the memory asked for, when it ends.

Source: sbatch(1) and srun(1), "output environment variables": SLURM_MEM_PER_* are in MB (powers of 1024),
SLURM_JOB_END_TIME (not of 22.05) in Unix time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from memory.files.procfs import read_long_file, to_number

_MB = 1 << 20
_OF_PATH = re.compile(r"/job_(\d+)(?:/step_([^/]+))?")


@dataclass(frozen=True, slots=True)
class SlurmWords:
    """job_id: as typed in `sacct -j`: of an array ARRAY_TASK. requested_bytes: of this node; None: all of it,
    or not told. from_environment: False where only the cgroup's path tells of the job. node_job_id:
    SLURM_JOB_ID, which of a task of an array is another number.
    """

    job_id: str
    step_id: str | None = None
    requested_bytes: int | None = None
    requested_as: str | None = None
    end_time_s: float | None = None
    name: str | None = None
    node: str | None = None
    from_environment: bool = True
    node_job_id: str | None = None

    @property
    def id_on_node(self) -> str:
        """What the cgroups of this node and `watch --job` call it: each task of an array is a job there."""
        return self.node_job_id or self.job_id


def read_slurm(environment: Mapping[str, str], cgroup_path: str | None = None) -> SlurmWords | None:
    """None outside of a job."""
    job = environment.get("SLURM_JOB_ID")
    of_path = _OF_PATH.search(cgroup_path or "")
    if not job:
        if of_path is None:
            return None
        return SlurmWords(of_path[1], of_path[2], from_environment=False)
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    requested, asked_as = requested_memory(environment)
    end = environment.get("SLURM_JOB_END_TIME", "")
    return SlurmWords(
        f"{array}_{task}" if array and task else job,
        environment.get("SLURM_STEP_ID") or (of_path[2] if of_path else None),
        requested,
        asked_as,
        float(end) if end.isdigit() else None,
        environment.get("SLURM_JOB_NAME"),
        environment.get("SLURMD_NODENAME"),
        node_job_id=job,
    )


def step_of_path(cgroup_path: str) -> str | None:
    """`batch`, `0`: of the step whose cgroup that is, or lies in."""
    found = _OF_PATH.search(cgroup_path)
    return found[2] if found else None


def environment_of(pid: int, root: str = "") -> Mapping[str, str]:
    """Of a process as it was started; empty where it may not be read."""
    if pid == os.getpid() and not root:
        return os.environ
    entries = os.fsdecode(read_long_file(f"{root}/proc/{pid}/environ") or b"").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def requested_memory(environment: Mapping[str, str]) -> tuple[int | None, str | None]:
    """(bytes of this node, the words for it), of Slurm's variables; None where they do not say."""
    node = to_number(environment.get("SLURM_MEM_PER_NODE", "").encode())
    if node:
        return node * _MB, "--mem"
    cpu = to_number(environment.get("SLURM_MEM_PER_CPU", "").encode())
    cpus = to_number(environment.get("SLURM_CPUS_ON_NODE", "").encode())
    if cpu and cpus:
        return cpu * cpus * _MB, f"--mem-per-cpu x {cpus}"
    gpu = to_number(environment.get("SLURM_MEM_PER_GPU", "").encode())
    gpus = to_number(environment.get("SLURM_GPUS_ON_NODE", "").encode())
    if gpu and gpus:
        return gpu * gpus * _MB, f"--mem-per-gpu x {gpus}"
    return None, None
