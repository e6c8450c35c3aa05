"""Set-ups that are known to hurt, told before the run does: each in one line, with what to type.

A rule speaks only where its harm is near: on a plain machine with memory to spare all are silent. What a run
needs and how it reads is handed in as plain values (`Setup`); the rest is looked up here.

Sources: cgroups(7), the kernel's cgroup-v2 (memory.high, swap), slurm.conf(5), shm_overview(7).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from experiment_utils.quantities import format_bytes
from memory.accounting.slurm_environment import requested_memory
from memory.estimate.available import Room
from memory.files.procfs import kilobytes, read_counters, read_file, read_number
from memory.measure.cgroup import find_levels, read_membership

_MB = 1 << 20
_FAR_BELOW = 0.9
_GPU_SHARE = 0.1
_SHM_SHARE = 0.25


@dataclass(frozen=True)
class Setup:
    """What a run will do, in plain values.

    host_bytes: its peak by the estimate. mapped_bytes: of token files that it maps and reads (page cache in
    RSS). gpu: it will use one. without_mapping, smaller: what to type for it.
    Its workers are forks and put nothing into /dev/shm: neither can hurt.
    """

    host_bytes: int
    mapped_bytes: int = 0
    gpu: bool = False
    without_mapping: str = "dataset.reader=pread"
    smaller: str = "training.micro_batch=1"


@dataclass(frozen=True)
class Advice:
    """rule: its name. text: what is wrong here. override: what to type."""

    rule: str
    text: str
    override: str

    def __str__(self) -> str:
        return f"{self.text}: {self.override}"


def advise(
    setup: Setup,
    room: Room,
    *,
    root: str = "",
    pid: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Advice]:
    """What is known to hurt in this set-up, here. Never raises; what cannot be read is no reason to warn.

    root: what stands before /proc, /sys and /dev. environment: of this process by default.
    """
    place = _Place(setup, room, root, os.getpid() if pid is None else pid, environment or os.environ)
    return [advice for rule in _RULES for advice in rule(place)]


@dataclass(frozen=True)
class _Place:
    setup: Setup
    room: Room
    root: str
    pid: int
    environment: Mapping[str, str]


def _rss_polling(place: _Place) -> Iterator[Advice]:
    setup, limit = place.setup, place.room.limit_bytes
    if place.room.counts_rss and setup.mapped_bytes and limit and setup.host_bytes > limit:
        yield Advice(
            "rss_polling",
            "Slurm kills by RSS here (OverMemoryKill without UsePss): of the "
            f"{format_bytes(setup.host_bytes)} that would count against the {format_bytes(limit)}, "
            f"{format_bytes(setup.mapped_bytes)} are mapped token files",
            setup.without_mapping,
        )


def _dev_shm(place: _Place) -> Iterator[Advice]:
    try:
        stat = os.statvfs(f"{place.root}/dev/shm")
    except OSError:
        return
    total, limit = stat.f_blocks * stat.f_frsize, place.room.limit_bytes
    held = total - (stat.f_bfree * stat.f_frsize)
    if limit and held > _SHM_SHARE * min(limit, place.room.free_bytes or limit) and held > 256 * _MB:
        yield Advice(
            "stale_shm",
            f"{format_bytes(held)} lie in /dev/shm already and stay charged to whoever wrote them, also "
            "after a kill",
            "ls -lt /dev/shm, and rm what no running job uses",
        )


def _memory_high(place: _Place) -> Iterator[Advice]:
    membership = read_membership(place.pid, place.root)
    version, levels = (2, ()) if membership is None else find_levels(place.root, membership)
    if version != 2:
        return
    for level in levels:
        high = read_number(f"{level.folder}/memory.high")
        if high is not None and high < place.setup.host_bytes:
            yield Advice(
                "memory_high",
                f"memory.high of cgroup {level.path} is {format_bytes(high)}: above it the kernel slows the "
                f"run to a crawl, and it needs {format_bytes(place.setup.host_bytes)}",
                f"{place.setup.smaller} (or systemctl set-property UNIT MemoryHigh=infinity)",
            )
            return


def _swap(place: _Place) -> Iterator[Advice]:
    meminfo = read_file(f"{place.root}/proc/meminfo") or b""
    total, free = kilobytes(meminfo, (b"SwapTotal:", b"SwapFree:"))
    needed, here = place.setup.host_bytes, place.room.free_bytes
    if total and here is not None and here < needed <= here + (free or 0):
        yield Advice(
            "swap",
            f"it needs {format_bytes(needed)}, {format_bytes(here)} are free: the rest would go to swap, "
            "which is many times slower",
            place.setup.smaller,
        )
        return
    stalled = _stalled_percent(f"{place.root}/proc/pressure/memory")
    if stalled is not None and stalled > 10:
        yield Advice(
            "thrash",
            f"this machine is short of memory already: all stood still {stalled:.0f}% of the last minute",
            "free and top tell who; or start it elsewhere",
        )


def _stalled_percent(path: str) -> float | None:
    """`full avg60` of a PSI file (the kernel's accounting/psi), in percent."""
    for line in (read_file(path) or b"").splitlines():
        if line.startswith(b"full"):
            for word in line.split():
                name, _, value = word.partition(b"=")
                if name == b"avg60":
                    try:
                        return float(value)
                    except ValueError:
                        return None
    return None


def _limit_below_request(place: _Place) -> Iterator[Advice]:
    (asked_bytes, _), limit = requested_memory(place.environment), place.room.limit_bytes
    if not asked_bytes or not limit or place.room.limit_at == "host":
        return
    if limit < _FAR_BELOW * asked_bytes:
        yield Advice(
            "limit_below_mem",
            f"Slurm was asked for {format_bytes(asked_bytes)}, but {place.room.limit_at} limits this to "
            f"{format_bytes(limit)}, and that is what kills",
            f"{place.setup.smaller}, or tell the administrators",
        )


def _oom_group(place: _Place) -> Iterator[Advice]:
    membership = read_membership(place.pid, place.root)
    version, levels = (1, ()) if membership is None else find_levels(place.root, membership)
    limit = place.room.limit_bytes
    if version != 2 or not limit or place.setup.host_bytes < _FAR_BELOW * limit:
        return
    for level in levels:
        if read_number(f"{level.folder}/memory.oom.group") == 1:
            yield Advice(
                "oom_group",
                f"memory.oom.group is set at {level.path}: if memory runs out the kernel kills all of the "
                "job at once, also what would have told of it",
                place.setup.smaller,
            )
            return


def _rlimits(place: _Place) -> Iterator[Advice]:
    limits = (read_file(f"{place.root}/proc/{place.pid}/limits") or b"").decode("ascii", "replace")
    for line in limits.splitlines():
        needs, held = place.setup.host_bytes, ""
        if line.startswith("Max data size"):
            soft, name = line[len("Max data size") :].split()[0], "ulimit -d"
        elif line.startswith("Max address space"):
            soft, name = line[len("Max address space") :].split()[0], "ulimit -v"
            # Of address space files that are mapped take all their size, read or not.
            if place.setup.mapped_bytes:
                needs += place.setup.mapped_bytes
                held = f" with the {format_bytes(place.setup.mapped_bytes)} of token files that it maps"
        else:
            continue
        if soft.isdigit() and int(soft) < needs:
            yield Advice(
                "rlimit",
                f"{name} allows {format_bytes(int(soft))} and it needs {format_bytes(needs)}{held}: it would "
                "end in MemoryError",
                f"{name} unlimited" + (f", or {place.setup.without_mapping}" if held else ""),
            )


def _gpu_neighbours(place: _Place) -> Iterator[Advice]:
    room = place.room
    if place.setup.gpu and room.gpu_total_bytes and room.gpu_used_bytes > _GPU_SHARE * room.gpu_total_bytes:
        yield Advice(
            "gpu_neighbours",
            f"others hold {format_bytes(room.gpu_used_bytes)} of the GPU's "
            f"{format_bytes(room.gpu_total_bytes)}",
            "nvidia-smi tells who; CUDA_VISIBLE_DEVICES=N takes another",
        )


def _swap_in_use(place: _Place) -> Iterator[Advice]:
    """The job has pages in swap: it was short before this run even began."""
    membership = read_membership(place.pid, place.root)
    version, levels = (2, ()) if membership is None else find_levels(place.root, membership)
    limit = place.room.limit_bytes
    if not levels or not limit or place.room.limit_at in (None, "host"):
        return
    # The task's own was made a moment ago, by Slurm, and is empty: the job's is where the limit stands.
    folder = next((level.folder for level in levels if level.path == place.room.limit_at), levels[0].folder)
    swapped = (
        read_number(f"{folder}/memory.swap.current")
        if version == 2
        else read_counters(f"{folder}/memory.stat").get("total_swap")
    )
    if swapped and swapped > 0.05 * limit:
        yield Advice(
            "swap_in_use",
            f"{format_bytes(swapped)} of this job lie in swap already",
            place.setup.smaller,
        )


_RULES: tuple[Callable[[_Place], Iterator[Advice]], ...] = (
    _rss_polling,
    _dev_shm,
    _memory_high,
    _swap,
    _swap_in_use,
    _limit_below_request,
    _oom_group,
    _rlimits,
    _gpu_neighbours,
)
