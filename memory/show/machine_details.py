"""Everything known about this machine and this job at one moment, in some milliseconds.

Each stage takes a `snapshot`. This adds what only a person looks at: every limit up the tree, the files of
/dev/shm, swap, other processes of the job and of the GPUs, and Slurm's environment.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from memory.accounting.slurm_environment import SlurmWords, environment_of, read_slurm
from memory.files.procfs import exists, list_folder, read_file
from memory.measure.cgroup import unseen_cgroup
from memory.measure.cuda_allocator import largest_free_block
from memory.measure.dev_shm import DevShm, read_dev_shm
from memory.measure.gpus import GpuDevice, read_gpus
from memory.measure.host import HostDetails, read_host_details
from memory.measure.limits import LimitLevel, processes_of, read_limits, read_rlimits
from memory.measure.process import Process, read_process, read_pss
from memory.measure.snapshot import Snapshot, snapshot

CHEAP_PSS_BYTES = 2 << 30
"""PSS of processes with less resident memory takes some 40 ms in all, and is read without --pss."""
_MAX_PROCESSES = 2000


@dataclass(frozen=True)
class Details:
    """One moment; docs/memory.md explains each key of its JSON."""

    at: Snapshot
    host_name: str
    system: str
    processes_of: str
    """`process` (one and its descendants), `job` (all in the cgroup that counts) or `machine`."""
    processes: tuple[Process, ...]
    """The largest anon first."""
    limits: tuple[LimitLevel, ...]
    rlimits: dict[str, int | None]
    """Soft limits of the process in bytes; None: unlimited."""
    host: HostDetails
    dev_shm: DevShm | None
    gpus: tuple[GpuDevice, ...]
    gpu_largest_free_bytes: int | None
    slurm: SlurmWords | None
    not_known: tuple[str, ...]
    """Facts that this system does not give, and why."""
    is_pss_read: bool
    """Reading PSS is left out if it takes long."""
    unseen_cgroup: str | None = None
    """Path of the cgroup that counts the memory, if none of its files can be seen here."""

    @property
    def is_cut(self) -> bool:
        """Whether a limit can exist above the cgroups that are seen. v1 reports such a limit, v2 does not."""
        job = self.at.job
        if self.unseen_cgroup is not None:
            return True
        return job is not None and job.version == 2 and bool(self.limits) and _is_cut(self.limits[-1].path)

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        parts = dataclasses.asdict(dataclasses.replace(self, at=Snapshot(0.0, Process(0))))
        del parts["at"]
        return {"version": 1, "time_s": self.at.time_s, "snapshot": self.at.to_json(), **parts}


def read_details(pid: int | None = None, root: str = "", *, pss: bool | None = None) -> Details:
    """Measure this moment. Never raises.

    Args:
        pid: the process of interest; None: this job, or this machine if no job limits it.
        root: folder with /proc, /sys and /dev (tests pass trees of recorded files).
        pss: read each process's PSS; None: if that is cheap.
    """
    root = root.rstrip("/")
    at = snapshot(pid, root or "/")
    asked = os.getpid() if pid is None else pid
    owner, processes = _processes(at, asked, pid is not None, root)
    read_all = sum(process.rss_bytes or 0 for process in processes) <= CHEAP_PSS_BYTES if pss is None else pss
    if read_all:
        processes = [replace(one, pss_bytes=read_pss(one.pid, f"{root}/proc")) for one in processes]
    limits = read_limits(asked, root)
    gpus, no_gpus = read_gpus(root)
    dev_shm = read_dev_shm(root)
    return Details(
        at=at,
        host_name=platform.node(),
        system=_system(root),
        processes_of=owner,
        processes=tuple(sorted(processes, key=lambda one: -(one.anon_bytes or one.rss_bytes or 0))),
        limits=limits,
        rlimits=read_rlimits(asked, root),
        host=read_host_details(root),
        dev_shm=dev_shm,
        gpus=gpus,
        gpu_largest_free_bytes=None if at.gpu is None else largest_free_block(at.gpu.device),
        slurm=read_slurm(environment_of(asked, root), limits[0].path if limits else None),
        not_known=tuple(_not_known(at, limits, dev_shm, no_gpus)),
        is_pss_read=read_all,
        unseen_cgroup=unseen_cgroup(asked, root),
    )


def _processes(at: Snapshot, asked: int, is_given: bool, root: str) -> tuple[str, list[Process]]:
    tree = [at.main, *at.workers]
    if is_given or not exists(f"{root}/proc/self"):
        return "process", tree
    if at.job is not None and at.limit_at not in (None, "host"):
        owner, pids = "job", processes_of(asked, at.job.path, root)
    else:
        owner, pids = "machine", tuple(int(name) for name in list_folder(f"{root}/proc") if name.isdigit())
    read = (read_process(pid, f"{root}/proc") for pid in pids[:_MAX_PROCESSES])
    # this very command is no part of the picture; kernel threads hold nothing
    found = [one for one in read if one is not None and one.pid != asked and one.rss_bytes]
    return (owner, found) if found else ("process", tree)


def _not_known(
    at: Snapshot, limits: tuple[LimitLevel, ...], shm: DevShm | None, no_gpus: str | None
) -> Iterator[str]:
    yield from at.notes
    if at.host.total_bytes is None:
        yield "how much memory the machine has: /proc/meminfo does not say"
    if at.job is not None:
        if at.job.version == 2 and limits and _is_cut(limits[-1].path):
            yield f"limits above {limits[-1].path}: this container does not see them, they can be smaller"
        if at.job.version == 1:
            yield "how long this job waited for memory (PSI) and memory.high: cgroup v1 has neither"
        elif at.job.stalled_us is None:
            yield "how long this job waited for memory: this kernel keeps no PSI (CONFIG_PSI, psi=1)"
        if at.job.peak_usage_bytes is None:
            yield "the peak of the job's usage: memory.peak came with Linux 5.19"
    if shm is None:
        yield "/dev/shm: this system has none"
    elif shm.unreadable_processes:
        yield f"use of files in /dev/shm by {shm.unreadable_processes} processes of other users"
    if no_gpus is not None:
        yield no_gpus


def _is_cut(highest: str) -> bool:
    """Whether a cgroup other than the machine's root is above the highest one that can be seen."""
    return highest == "/" or highest.count("/") > 1


def _system(root: str) -> str:
    release = (read_file(f"{root}/proc/sys/kernel/osrelease") or b"").decode(errors="replace").strip()
    return f"Linux {release}" if release else f"{platform.system()} {platform.release()}"
