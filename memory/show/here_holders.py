"""Who holds the memory, as `python -m memory` prints it: processes, GPUs, /dev/shm, the machine, Slurm."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from memory.measure.process import Process
from memory.show.machine_details import Details
from memory.show.screen import NEAR, age, amount

_SHOWN = 10
_CONTAINERS_SHM_BYTES = 64 << 20
"""What a container gets where nobody asks for more."""
_WORTH_TELLING_BYTES = 16 << 20


def process_lines(details: Details, every: bool) -> Iterator[str]:
    shown = details.processes if every else details.processes[:_SHOWN]
    if not shown:
        return
    whose = {
        "process": "This process and its descendants",
        "job": "Processes of the job",
        "machine": "Processes that may be seen",
    }
    yield ""
    how = "" if details.is_pss_read else " (with pss: --pss)"
    yield f"{whose[details.processes_of]}: {len(details.processes)}, the largest first{how}"
    columns = ["anon", "shm", "mapped", "rss", *(["pss"] if details.is_pss_read else []), "swap", "pid"]
    yield "  " + "  ".join(f"{column:>8}" for column in columns) + "  name"
    for process in shown:
        yield (
            "  "
            + "  ".join(f"{cell:>8}" for cell in _cells(process, details.is_pss_read))
            + f"  {process.name}"
        )
    rest = details.processes[len(shown) :]
    if rest:
        held = sum(process.anon_bytes or 0 for process in rest)
        yield f"  and {len(rest)} more with {format_bytes(held)} anon (--all)"
    yield from _shared(details)


def _shared(details: Details) -> Iterator[str]:
    """What the columns seem to say, against what is held once."""
    job = details.at.job if details.processes_of == "job" else None
    held = None if job is None else job.anon_bytes
    listed = sum(process.anon_bytes or 0 for process in details.processes)
    if held is not None and listed > 1.1 * held + _WORTH_TELLING_BYTES:
        words = "pages shared since a fork stand in each process"
        yield f"  {format_bytes(listed)} anon listed, {format_bytes(held)} held: {words}"


def _cells(process: Process, with_pss: bool) -> Iterator[str]:
    amounts = [process.anon_bytes, process.shmem_bytes, process.file_bytes, process.rss_bytes]
    yield from map(amount, [*amounts, *([process.pss_bytes] if with_pss else []), process.swap_bytes])
    yield str(process.pid)


def gpu_lines(details: Details) -> Iterator[str]:
    own = details.at.gpu
    if own is not None:
        yield ""
        yield f"GPU {own.device} ({own.name}, {format_bytes(own.total_bytes)}), as torch here counts it"
        block = details.gpu_largest_free_bytes
        largest = "" if block is None else f", largest free block {format_bytes(block)}"
        yield f"  tensors {format_bytes(own.allocated_bytes)}, peak {format_bytes(own.peak_bytes)}"
        yield f"  reserved and unused {format_bytes(own.unused_bytes)}{largest}"
        if own.outside_bytes is not None:
            outside = "outside torch (CUDA context, libraries, other processes)"
            yield f"  {outside} {format_bytes(own.outside_bytes)}, free {format_bytes(own.free_bytes or 0)}"
    family = {details.at.main.pid, *(worker.pid for worker in details.at.workers)}
    family |= {process.pid for process in details.processes} if details.processes_of == "job" else set()
    for gpu in details.gpus:
        yield ""
        used = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.total_bytes)} used"
        yield f"GPU {gpu.index} ({gpu.name}): {used}"
        for process in gpu.processes:
            whose = "" if process.pid in family or details.processes_of == "machine" else "  not of this job"
            name = process.name or "(not to be seen from here)"
            yield f"  {amount(process.used_bytes):>9}  {process.pid:>8}  {name}{whose}"


def dev_shm_lines(details: Details, every: bool) -> Iterator[str]:
    shm = details.dev_shm
    if shm is None or not shm.total_bytes:
        return
    yield ""
    used = f"{format_bytes(shm.used_bytes)} of {format_bytes(shm.total_bytes)} used"
    files = f"{len(shm.files)} file{'s' * (len(shm.files) != 1)}"
    yield f"/dev/shm: {used}, {files}; what lies there is memory that cannot be given back"
    for file in shm.files if every else shm.files[: _SHOWN // 2]:
        users = f"used by {', '.join(map(str, file.used_by[:4]))}"
        if not file.used_by:
            old = f"written {age(time.time() - file.modified_s)} ago"
            users = f"stale: who wrote it is gone, nobody has it open, {old}"
            if not file.is_stale:
                users = f"nobody has it open, {old}" if file.is_unused else f"use not known, {old}"
        yield f"  {format_bytes(file.bytes):>9}  {file.path}  {users}"
    if shm.stale_bytes:
        stale = [file.path for file in shm.files if file.is_stale]
        held = f"{format_bytes(shm.stale_bytes)} in {len(stale)} stale file{'s' * (len(stale) > 1)}"
        yield f"  ! {held}; if nobody is to read them later, and no other container shares /dev/shm:"
        yield f"    rm {' '.join(map(shlex.quote, stale[:3]))}{' ...' if len(stale) > 3 else ''}"
    if shm.unused_bytes:
        held = f"{format_bytes(shm.unused_bytes)} in files that nobody has open now"
        yield f"  {held}: who put them there may live, and read them later; that is not known"
    if shm.deleted_but_held:
        yield f"  files without a name are still used by {', '.join(map(str, shm.deleted_but_held[:8]))}"
    if shm.used_bytes >= NEAR * shm.total_bytes:
        yield "  ! nearly full: a write to a map in it ends in SIGBUS"
    elif shm.total_bytes <= _CONTAINERS_SHM_BYTES:
        yield "  ! small: workers that pass batches through it (DataLoader's) end in SIGBUS when it is full"
        yield "    num_workers=0, or a container with docker run --shm-size=8g"


def machine_lines(details: Details) -> Iterator[str]:
    host, more = details.at.host, details.host
    if host.total_bytes is None:
        return
    yield ""
    parts = [f"{format_bytes(host.total_bytes)}, {amount(host.available_bytes)} available"]
    if more.cache_bytes is not None:
        parts.append(f"page cache {format_bytes(more.cache_bytes)}")
    if more.swap_total_bytes is not None:
        swap = f"{amount(more.swap_used_bytes)} of {format_bytes(more.swap_total_bytes)} used"
        parts.append(f"swap {swap if more.swap_total_bytes else 'none'}")
    if more.huge_pages_bytes:
        parts.append(f"set apart as huge pages {format_bytes(more.huge_pages_bytes)}")
    yield f"Machine: {', '.join(parts)}"
    if more.overcommit == 2:
        promised = f"{amount(more.committed_bytes)} of {amount(more.commit_limit_bytes)} are promised"
        yield f"  allocations beyond its promise fail (vm.overcommit_memory=2): {promised}"
    if more.stalled_percent is not None:
        yield (
            f"  all tasks waited for memory {more.stalled_percent:.1f}% of the last 10 s, some "
            f"{more.some_stalled_percent or 0.0:.1f}%"
        )


def slurm_lines(details: Details) -> Iterator[str]:
    slurm = details.slurm
    if slurm is None:
        return
    yield ""
    step = f", step {slurm.step_id}" if slurm.step_id else ""
    if not slurm.from_environment:
        yield f"Slurm: job {slurm.job_id}{step} by its cgroup; its environment says nothing here"
        return
    asked = "asked for all of the node's memory, or it is not told"
    if slurm.requested_bytes is not None:
        asked = f"asked for {format_bytes(slurm.requested_bytes)} on this node ({slurm.requested_as})"
    yield f"Slurm: job {slurm.job_id}{step}: {asked}"
    limit, asked_bytes = details.at.limit_bytes, slurm.requested_bytes
    if details.at.limit_at == "host" and asked_bytes is not None:
        yield "  no cgroup that can be seen holds it to that: Slurm may kill by polled rss, or not at all"
    elif limit is not None and asked_bytes is not None and abs(limit - asked_bytes) > asked_bytes / 50:
        yield f"  the cgroup that counts allows {format_bytes(limit)}"
