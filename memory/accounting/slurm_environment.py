"""Slurm's variables in a job's environment: ids, the requested memory, when it ends.

Source: sbatch(1) and srun(1), "output environment variables": SLURM_MEM_PER_* are in MB (powers of 1024),
SLURM_JOB_END_TIME (not in 22.05) in Unix time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from memory.files.procfs import read_long_file, to_number

_MB = 1 << 20
_PATH_IDS = re.compile(r"/job_(\d+)(?:/step_([^/]+))?")


@dataclass(frozen=True, slots=True)
class SlurmWords:
    """The job that a process belongs to."""

    job_id: str
    """Id for `sacct -j`: ARRAY_TASK for an array."""
    step_id: str | None = None
    requested_bytes: int | None = None
    """Memory of this node; None: all of it, or not known."""
    requested_as: str | None = None
    end_time_s: float | None = None
    name: str | None = None
    node: str | None = None
    from_environment: bool = True
    """False if only the cgroup's path names the job."""
    node_job_id: str | None = None
    """SLURM_JOB_ID, which for a task of an array is another number."""

    @property
    def id_on_node(self) -> str:
        """Id in the cgroups of this node and for `watch --job`: each task of an array is a job there."""
        return self.node_job_id or self.job_id


def read_slurm(environment: Mapping[str, str], cgroup_path: str | None = None) -> SlurmWords | None:
    """Return the job of a process with this environment and cgroup; None outside of a job."""
    job = environment.get("SLURM_JOB_ID")
    of_path = _PATH_IDS.search(cgroup_path or "")
    if not job:
        return None if of_path is None else SlurmWords(of_path[1], of_path[2], from_environment=False)
    array, task = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    end = environment.get("SLURM_JOB_END_TIME", "")
    return SlurmWords(
        f"{array}_{task}" if array and task else job,
        environment.get("SLURM_STEP_ID") or (of_path[2] if of_path else None),
        *requested_memory(environment),
        float(end) if end.isdigit() else None,
        environment.get("SLURM_JOB_NAME"),
        environment.get("SLURMD_NODENAME"),
        node_job_id=job,
    )


def step_of_path(cgroup_path: str) -> str | None:
    """Step id, `batch` or `0`, in the path of a cgroup."""
    found = _PATH_IDS.search(cgroup_path)
    return found[2] if found else None


def environment_of(pid: int, root: str = "") -> Mapping[str, str]:
    """Environment with which a process was started; empty if it is not readable."""
    if pid == os.getpid() and not root:
        return os.environ
    entries = os.fsdecode(read_long_file(f"{root}/proc/{pid}/environ") or b"").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def requested_memory(environment: Mapping[str, str]) -> tuple[int | None, str | None]:
    """Return (bytes requested of this node, the option that did it); None if Slurm's variables lack them."""
    for kind, count_name in (("NODE", ""), ("CPU", "SLURM_CPUS_ON_NODE"), ("GPU", "SLURM_GPUS_ON_NODE")):
        megabytes = to_number(environment.get(f"SLURM_MEM_PER_{kind}", "").encode())
        count = to_number(environment.get(count_name, "").encode()) if count_name else 1
        if megabytes and count:
            option = f"--mem-per-{kind.lower()} x {count}" if count_name else "--mem"
            return megabytes * count * _MB, option
    return None, None
