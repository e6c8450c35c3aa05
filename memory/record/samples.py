"""A sample of a job's memory, and its form in the ring: of a fixed size, with a checksum, no pickle."""

from __future__ import annotations

import operator
import struct
import zlib
from dataclasses import dataclass, fields

from memory.measure.host import left_bytes

PROCESSES = 16
"""Number of processes in a sample: the main one, then the largest by anon."""
_UNKNOWN = -(2**63)


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process of a job, in bytes; None if the system does not report it."""

    pid: int
    name: str
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory of a job at one moment, in bytes and counts; None if the system does not report it.

    time_s: Unix time.
    unreclaimable_bytes, limit_bytes: U of the cgroup whose limit counts, else of the process tree, and limit.
    usage_bytes, cache_bytes: of that cgroup.
    anon_bytes, shmem_bytes, kernel_bytes, locked_bytes: parts of U.
    page_tables_bytes, swap_bytes: of that cgroup.
    tree_anon_bytes, tree_rss_bytes, tree_file_bytes: sums over the run's processes.
    host_available_bytes, dev_shm_used_bytes, dev_shm_total_bytes: of the machine.
    gpu_used_bytes, gpu_total_bytes: of the run's CUDA device, for all processes, as the driver last said.
    gpu_reserved_bytes: part of it that the run's torch reserved.
    gpu_busy_percent, gpu_power_mw: of that device: share of the time in which a kernel ran, milliwatts.
    oom_kills, oom_group_kills, limit_hits, high_events: counters of the cgroup since it was made
        (memory.events oom_kill, oom_group_kill, max, high; v1: oom_control, failcnt).
    refaults, major_faults: of memory.stat (workingset_refault_file or workingset_refault, pgmajfault).
    stalled_us: total of `full` in memory.pressure.
    neighbours_anon_bytes: of other processes in that cgroup; None if not all could be read. In a steady run
        it can be some samples old.
    processes: number of the run's processes.
    tree: the main process first, then the largest.
    """

    time_s: float
    unreclaimable_bytes: int | None = None
    limit_bytes: int | None = None
    usage_bytes: int | None = None
    cache_bytes: int | None = None
    anon_bytes: int | None = None
    shmem_bytes: int | None = None
    kernel_bytes: int | None = None
    page_tables_bytes: int | None = None
    swap_bytes: int | None = None
    tree_anon_bytes: int | None = None
    tree_rss_bytes: int | None = None
    tree_file_bytes: int | None = None
    host_available_bytes: int | None = None
    dev_shm_used_bytes: int | None = None
    dev_shm_total_bytes: int | None = None
    gpu_used_bytes: int | None = None
    gpu_total_bytes: int | None = None
    oom_kills: int | None = None
    oom_group_kills: int | None = None
    limit_hits: int | None = None
    high_events: int | None = None
    refaults: int | None = None
    major_faults: int | None = None
    stalled_us: int | None = None
    processes: int | None = None
    neighbours_anon_bytes: int | None = None
    gpu_reserved_bytes: int | None = None
    gpu_busy_percent: int | None = None
    gpu_power_mw: int | None = None
    tree: tuple[ProcessSample, ...] = ()

    @property
    def locked_bytes(self) -> int | None:
        """Page cache that is locked in memory: the rest of U without its other parts."""
        if self.unreclaimable_bytes is None or self.anon_bytes is None:
            return None
        parts = self.anon_bytes + (self.shmem_bytes or 0) + (self.kernel_bytes or 0)
        return max(0, self.unreclaimable_bytes - parts)

    @property
    def own_bytes(self) -> int | None:
        """Unreclaimable memory of the run's own processes.

        A segment of shared memory counts in each process that maps it, in the cgroup once.
        """
        if self.tree_anon_bytes is None:
            return None
        shared = sum(process.shmem_bytes or 0 for process in self.tree)
        return self.tree_anon_bytes + min(shared, shared if self.shmem_bytes is None else self.shmem_bytes)

    @property
    def left_bytes(self) -> int | None:
        """Bytes that are left up to the limit, or on the machine if that has less."""
        return left_bytes(self.limit_bytes, self.unreclaimable_bytes, self.host_available_bytes)


_LATER = ("gpu_power_mw", "gpu_busy_percent", "gpu_reserved_bytes", "neighbours_anon_bytes")
"""Fields that were added later. They end the slot, each plus one, since rings of older versions have 0 there.
A new one goes first."""
_NUMBERS = tuple(field.name for field in fields(Sample) if field.name not in ("time_s", "tree", *_LATER))
_HEAD = struct.Struct(f"<Id{len(_NUMBERS)}q")
"""CRC of all that follows, time, numbers."""
_CRC, _BODY = struct.Struct("<I"), struct.Struct(f"<d{len(_NUMBERS)}q")
_numbers_of, _later_of = operator.attrgetter(*_NUMBERS), operator.attrgetter(*_LATER)
_PROCESS = struct.Struct("<q16s4q")
SLOT_BYTES = 1536
_END = struct.Struct(f"<{len(_LATER)}q")
_END_AT = SLOT_BYTES - _END.size
assert _HEAD.size + PROCESSES * _PROCESS.size <= _END_AT


def packed(sample: Sample) -> bytes:
    """Encode a sample in SLOT_BYTES bytes."""
    numbers = map(_number, _numbers_of(sample))
    processes = b"".join([_packed_process(process) for process in sample.tree[:PROCESSES]])
    later = _later_of(sample)
    body = (_BODY.pack(sample.time_s, *numbers) + processes).ljust(_END_AT - _CRC.size, b"\0")
    body += _END.pack(*(0 if value is None else value + 1 for value in later))
    return _CRC.pack(zlib.crc32(body)) + body


def unpacked(slot: bytes) -> Sample | None:
    """Decode a slot; None if it is empty, or was being written when its writer was killed."""
    crc, time_s, *numbers = _HEAD.unpack_from(slot)
    if time_s == 0 or crc != zlib.crc32(slot[4:SLOT_BYTES]):
        return None
    values = dict(zip(_NUMBERS, map(_known, numbers), strict=True))
    for name, value in zip(_LATER, _END.unpack_from(slot, _END_AT), strict=True):
        values[name] = value - 1 if value > 0 else None
    tree = []
    for place in range(_HEAD.size, _HEAD.size + PROCESSES * _PROCESS.size, _PROCESS.size):
        pid, name, *amounts = _PROCESS.unpack_from(slot, place)
        if pid:
            shown = name.rstrip(b"\0").decode(errors="replace")
            tree.append(ProcessSample(pid, shown, *map(_known, amounts)))
    return Sample(time_s, tree=tuple(tree), **values)


def rough_bytes(slots: bytes, name: str) -> list[int]:
    """One number of each slot, without its checksum, to find the highest; below 0 if it is unknown."""
    before = _CRC.size + 8 * (1 + _NUMBERS.index(name))  # the time is the first
    numbers = memoryview(slots)[before:]
    whole = len(numbers) // 8 * 8
    return numbers[:whole].cast("q")[:: SLOT_BYTES // 8].tolist()


def _packed_process(process: ProcessSample) -> bytes:
    amounts = (process.anon_bytes, process.file_bytes, process.shmem_bytes, process.rss_bytes)
    return _PROCESS.pack(process.pid, process.name.encode()[:16], *map(_number, amounts))


def _number(value: int | None) -> int:
    return _UNKNOWN if value is None else min(value, 2**63 - 1)


def _known(value: int) -> int | None:
    return None if value == _UNKNOWN else value
