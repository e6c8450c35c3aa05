"""Set-ups that are known to hurt, reported before the run does: each in one line, with what to type.

A rule warns only where its harm is near: on a plain machine with memory to spare there is no warning. What a
run needs is handed in as plain values (`Setup`); the rest is looked up here.

Sources: the kernel's cgroup-v2 (memory.high, swap), shm_overview(7), setrlimit(2).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiment_utils.quantities import format_bytes
from memory.estimate.available import Room
from memory.files.procfs import kilobytes, read_file
from memory.measure.host import dev_shm_space
from memory.measure.limits import LimitLevel, read_limits, read_rlimits
from memory.measure.pressure import read_pressure

_MB = 1 << 20
_GPU_SHARE = 0.1
_SHM_SHARE = 0.25
_STALLED_PERCENT = 10


@dataclass(frozen=True)
class Setup:
    """Needs of a run. Its workers are forks and put nothing into /dev/shm, so neither can hurt."""

    host_bytes: int
    """Its peak by the estimate."""
    mapped_bytes: int = 0
    """Token files that it maps, which take address space."""
    gpu: bool = False
    smaller: str = "training.micro_batch=1"
    """Override that needs less."""


@dataclass(frozen=True)
class SetupWarning:
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
) -> list[SetupWarning]:
    """Return the warnings of this set-up here. Never raises; a file that cannot be read gives no warning.

    Args:
        root: prefix of /proc, /sys and /dev.
    """
    pid = os.getpid() if pid is None else pid
    place = _Place(setup, room, root, pid, read_limits(pid, root))
    return [advice for rule in _RULES for advice in rule(place)]


@dataclass(frozen=True)
class _Place:
    setup: Setup
    room: Room
    root: str
    pid: int
    levels: tuple[LimitLevel, ...]


def _dev_shm(place: _Place) -> Iterator[SetupWarning]:
    held, limit = dev_shm_space(f"{place.root}/dev/shm")[1], place.room.limit_bytes
    if held and limit and held > max(256 * _MB, _SHM_SHARE * min(limit, place.room.free_bytes or limit)):
        yield SetupWarning(
            "stale_shm",
            f"/dev/shm holds {format_bytes(held)}, which count as memory of the job that wrote them, also "
            "after it was killed",
            "ls -lt /dev/shm, and rm what no running job uses",
        )


def _memory_high(place: _Place) -> Iterator[SetupWarning]:
    needed = place.setup.host_bytes
    for level in place.levels:
        if level.high_bytes is not None and level.high_bytes < needed:
            yield SetupWarning(
                "memory_high",
                f"memory.high of cgroup {level.path} is {format_bytes(level.high_bytes)}: above it the "
                f"kernel slows the run to a crawl, and it needs {format_bytes(needed)}",
                f"{place.setup.smaller} (or systemctl set-property UNIT MemoryHigh=infinity)",
            )
            return


def _swap(place: _Place) -> Iterator[SetupWarning]:
    room, needed, smaller = place.room, place.setup.host_bytes, place.setup.smaller
    (swap_free,) = kilobytes(read_file(f"{place.root}/proc/meminfo") or b"", (b"SwapFree:",))
    stalled = read_pressure(f"{place.root}/proc/pressure/memory").full_percent or 0
    free = room.free_bytes
    if free is not None and free < needed <= free + (swap_free or 0):
        text = f"it needs {format_bytes(needed)}, {format_bytes(free)} are free: the rest would go to swap"
        yield SetupWarning("swap", f"{text}, which is many times slower", smaller)
    elif stalled > _STALLED_PERCENT:
        text = f"this machine is short of memory: all processes waited for it {stalled:.0f}% of the last 10 s"
        yield SetupWarning("thrash", text, "find the process with top, or start the run elsewhere")
    if room.limit_bytes and room.limit_at != "host" and room.swapped_bytes > 0.05 * room.limit_bytes:
        yield SetupWarning(
            "swap_in_use", f"{format_bytes(room.swapped_bytes)} of this job are in swap", smaller
        )


def _rlimits(place: _Place) -> Iterator[SetupWarning]:
    limits, needed, mapped = (
        read_rlimits(place.pid, place.root),
        place.setup.host_bytes,
        place.setup.mapped_bytes,
    )
    with_files = f" with the {format_bytes(mapped)} of token files that it maps" if mapped else ""
    for name, limit, needs, files in (
        ("ulimit -d", limits.get("data_bytes"), needed, ""),
        ("ulimit -v", limits.get("as_bytes"), needed + mapped, with_files),
    ):
        if limit is not None and limit < needs:
            text = f"{name} allows {format_bytes(limit)} and it needs {format_bytes(needs)}{files}"
            other = ", or dataset.reader=pread" if files else ""
            yield SetupWarning("rlimit", f"{text}: it would end in MemoryError", f"{name} unlimited{other}")


def _gpu_neighbours(place: _Place) -> Iterator[SetupWarning]:
    used, total = place.room.gpu_used_bytes, place.room.gpu_total_bytes
    if place.setup.gpu and total and used > _GPU_SHARE * total:
        yield SetupWarning(
            "gpu_neighbours",
            f"other processes hold {format_bytes(used)} of the GPU's {format_bytes(total)}",
            "find them with nvidia-smi, or take another GPU: CUDA_VISIBLE_DEVICES=N",
        )


_RULES: tuple[Callable[[_Place], Iterator[SetupWarning]], ...] = (
    _dev_shm, _memory_high, _swap, _rlimits, _gpu_neighbours,
)  # fmt: skip
