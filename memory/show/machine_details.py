"""All that can be found out of this machine and this job at one moment, at the price of some milliseconds.

`snapshot` is what each stage takes; this adds what only a person looks at: every limit up the tree, the
files of /dev/shm, swap, other processes of the job and of the GPUs, and what Slurm says.
"""

from __future__ import annotations

import dataclasses
import os
import platform
from dataclasses import dataclass, replace
from typing import Any

from memory.accounting.slurm_environment import SlurmWords, environment_of, read_slurm
from memory.files.procfs import exists, list_folder, read_file
from memory.measure.cgroup import unseen_cgroup
from memory.measure.cuda_allocator import largest_free_block
from memory.measure.dev_shm import DevShm, read_dev_shm
from memory.measure.gpus import GpuDevice, read_gpus
from memory.measure.host_details import HostDetails, read_host_details
from memory.measure.limits import LimitLevel, processes_of, read_limits, read_rlimits
from memory.measure.process import Process, read_process, read_pss
from memory.measure.snapshot import Snapshot, snapshot

CHEAP_PSS_BYTES = 2 << 30
"""PSS of processes whose resident memory is below this takes some 40 ms in all: it is read unasked."""
_MAX_PROCESSES = 2000


@dataclass(frozen=True)
class Details:
    """processes_of: whose `processes` are: `process` (it and its descendants), `job` (all in the cgroup that
    counts) or `machine` (all that may be seen). processes: the largest anon first. rlimits: soft limits of
    the process, in bytes, None: unlimited. not_known: what is missing, and why. is_pss_read: if not, it was
    too dear. unseen_cgroup: the path of the cgroup that counts its memory, unless it is to be seen here.
    """

    at: Snapshot
    host_name: str
    system: str
    processes_of: str
    processes: tuple[Process, ...]
    limits: tuple[LimitLevel, ...]
    rlimits: dict[str, int | None]
    host: HostDetails
    dev_shm: DevShm | None
    gpus: tuple[GpuDevice, ...]
    gpu_largest_free_bytes: int | None
    slurm: SlurmWords | None
    not_known: tuple[str, ...]
    is_pss_read: bool
    unseen_cgroup: str | None = None

    @property
    def is_cut(self) -> bool:
        """May a limit stand above what can be seen from here? v1 tells of one, v2 does not."""
        job = self.at.job
        if self.unseen_cgroup is not None:
            return True
        return job is not None and job.version == 2 and bool(self.limits) and _is_cut(self.limits[-1].path)

    def to_json(self) -> dict[str, Any]:
        """All of it, as plain values; docs/memory-here.md explains each key."""
        parts = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "at"
        }
        return {"version": 1, "time_s": self.at.time_s, "snapshot": self.at.to_json(), **_plain(parts)}


def read_details(pid: int | None = None, root: str = "", *, pss: bool | None = None) -> Details:
    """Look around. Never raises.

    Args:
        pid: the process that is asked about; None: this job, or this machine where no job limits it.
        root: where /proc, /sys and /dev are looked for (tests hand in trees of recorded files).
        pss: read each process's PSS; None: where it is cheap.
    """
    root = root.rstrip("/")
    at = snapshot(pid, root or "/")
    asked = os.getpid() if pid is None else pid
    whose, processes = _processes(at, asked, pid is not None, root)
    read_all = sum(process.rss_bytes or 0 for process in processes) <= CHEAP_PSS_BYTES if pss is None else pss
    if read_all:
        proc = f"{root}/proc"
        processes = [replace(one, pss_bytes=read_pss(one.pid, proc)) for one in processes]
    limits = read_limits(asked, root)
    unseen = unseen_cgroup(asked, root)
    gpus, no_gpus = read_gpus(root)
    own_path = limits[0].path if limits else None
    dev_shm = read_dev_shm(root)
    return Details(
        at=at,
        host_name=platform.node(),
        system=_system(root),
        processes_of=whose,
        processes=tuple(sorted(processes, key=lambda one: -(one.anon_bytes or one.rss_bytes or 0))),
        limits=limits,
        rlimits=read_rlimits(asked, root),
        host=read_host_details(root),
        dev_shm=dev_shm,
        gpus=gpus,
        gpu_largest_free_bytes=None if at.gpu is None else largest_free_block(at.gpu.device),
        slurm=read_slurm(environment_of(asked, root), own_path),
        not_known=tuple(_not_known(at, limits, dev_shm, no_gpus)),
        is_pss_read=read_all,
        unseen_cgroup=unseen,
    )


def _processes(at: Snapshot, asked: int, is_given: bool, root: str) -> tuple[str, list[Process]]:
    tree = [at.main, *at.workers]
    if is_given or not exists(f"{root}/proc/self"):
        return "process", tree
    if at.job is not None and at.limit_at not in (None, "host"):
        whose, pids = "job", processes_of(asked, at.job.path, root)
    else:
        whose, pids = "machine", tuple(int(name) for name in list_folder(f"{root}/proc") if name.isdigit())
    read = (read_process(pid, f"{root}/proc") for pid in pids[:_MAX_PROCESSES])
    # this very command is no part of the picture; kernel threads hold nothing
    found = [one for one in read if one is not None and one.pid != asked and one.rss_bytes]
    return (whose, found) if found else ("process", tree)


def _not_known(
    at: Snapshot, limits: tuple[LimitLevel, ...], dev_shm: DevShm | None, no_gpus: str | None
) -> list[str]:
    notes = list(at.notes)
    if at.host.total_bytes is None:
        notes.append("how much memory the machine has: /proc/meminfo does not tell")
    if at.job is not None and at.job.version == 2 and limits and _is_cut(limits[-1].path):
        notes.append(
            f"limits above {limits[-1].path}: this container does not see them, and they may be smaller"
        )
    if at.job is not None and at.job.version == 1:
        notes.append("how long this job waited for memory (PSI) and memory.high: cgroup v1 has neither")
    elif at.job is not None and at.job.stalled_us is None:
        notes.append("how long this job waited for memory: this kernel keeps no PSI (CONFIG_PSI, psi=1)")
    if at.job is not None and at.job.peak_usage_bytes is None:
        notes.append("the peak of the job's usage: memory.peak came with Linux 5.19")
    if dev_shm is None:
        notes.append("/dev/shm: this system has none")
    elif dev_shm.unreadable_processes:
        notes.append(
            f"whether files of other users in /dev/shm are in use: {dev_shm.unreadable_processes} processes "
            "may not be looked into"
        )
    if no_gpus is not None:
        notes.append(no_gpus)
    return notes


def _is_cut(highest: str) -> bool:
    """Is there something above the highest cgroup that can be seen, but for the machine's root?"""
    return highest == "/" or highest.count("/") > 1


def _system(root: str) -> str:
    release = (read_file(f"{root}/proc/sys/kernel/osrelease") or b"").decode(errors="replace").strip()
    return f"Linux {release}" if release else f"{platform.system()} {platform.release()}"


def _plain(value: Any) -> Any:
    """dataclasses, tuples and dicts as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
