"""memory.ring: samples of an attempt in one file of a fixed size, which outlives any kill.

The file has a header, a ring of the latest samples, and a history of the whole attempt: the sample with the
highest U of each period. When the history is full, neighbours are merged and the period doubles. Bytes that
pwrite(2) has taken survive a SIGKILL of the writer and of everything around it. A shared map does that too,
but it counts in the writer's RSS, and raises SIGBUS if the file is truncated.

After the slots is one note that the run itself writes: the use of its CUDA device, from the driver, as
memory and as activity. The supervisor, which loads no library of the driver, adds it to its samples.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from experiment_utils.safe_read import is_copy, plain_only
from memory.files.reserved_file import allocate
from memory.measure.gpu_activity import UNKNOWN, GpuActivity
from memory.measure.host import run_memory
from memory.record.samples import SLOT_BYTES, Sample, packed, rough_bytes, unpacked

LATEST, HISTORY = 1024, 1024
_MAGIC = b"HWRING1\n"
_PROCESSES = ("pid", "started_at", "supervisor_pid", "supervisor_started_at")
_HEADER_BYTES = 4096
_COUNTS = struct.Struct("<qqd")
"""Samples ever taken, slots of the history in use, its period in seconds."""
_FACTS_AT = len(_MAGIC) + _COUNTS.size
_NOTE_AT = _HEADER_BYTES + (LATEST + HISTORY) * SLOT_BYTES
_NOTE = struct.Struct("<d5q")
"""Unix time; used, total and reserved bytes; percent busy and milliwatts, -1 if unknown. A CRC follows."""
_CRC = struct.Struct("<I")
_SIZE = _NOTE_AT + _NOTE.size + _CRC.size
NOTE_HOLDS_S = 60.0
"""An older note of a run is not added to samples."""


class RingWriter:
    """Creates the file, and adds samples to it. It gets its name in `begin`."""

    def __init__(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """Create and allocate the file. facts: for `begin`; None: it is called later.

        Raises:
            OSError: it cannot be written, for example on a full disk.
        """
        self._count, self._used, self._period_s = 0, 0, 1.0
        self._last: Sample | None = None  # of the history
        self._path = path
        self._temporary: str | None = os.path.join(
            os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}"
        )
        self._file = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            allocate(self._file, _SIZE)
            if facts is not None:
                self.begin(facts)
        except BaseException:
            self.close()
            raise

    def begin(self, facts: dict[str, Any]) -> None:
        """Write the header. facts: plain values of the attempt that `read_ring` returns: pid, command, ...

        Raises:
            OSError: it cannot be written.
        """
        text = _fitting(facts, _HEADER_BYTES - _FACTS_AT - 1)
        os.pwrite(self._file, (_MAGIC + bytes(_COUNTS.size) + text).ljust(_HEADER_BYTES, b"\0"), 0)
        self._write_counts()
        if self._temporary is not None:
            os.replace(self._temporary, self._path)
            self._temporary = None

    def add(self, sample: Sample) -> Sample:
        """Store a sample, with the run's note about its device; returns it as it was stored.

        Raises:
            OSError: it cannot be written.
        """
        sample = self._with_gpu(sample)
        slot = packed(sample)
        self._store(self._count % LATEST, slot)
        self._count += 1
        self._add_to_history(sample, slot)
        self._write_counts()
        return sample

    def _with_gpu(self, sample: Sample) -> Sample:
        note = os.pread(self._file, _SIZE - _NOTE_AT, _NOTE_AT)
        if len(note) < _SIZE - _NOTE_AT or _CRC.pack(zlib.crc32(note[: _NOTE.size])) != note[_NOTE.size :]:
            return sample
        time_s, used, total, reserved, busy, power = _NOTE.unpack_from(note)
        if not 0 <= sample.time_s - time_s + 1 <= NOTE_HOLDS_S:
            return sample
        return replace(
            sample, gpu_used_bytes=used, gpu_total_bytes=total, gpu_reserved_bytes=reserved,
            gpu_busy_percent=busy if busy >= 0 else None, gpu_power_mw=power if power >= 0 else None,
        )  # fmt: skip

    def _add_to_history(self, sample: Sample, slot: bytes) -> None:
        last = self._last
        if last is not None and self._is_same_period(last, sample):
            if _higher(last, sample) is sample:
                self._store(LATEST + self._used - 1, slot)
                self._last = sample
            return
        while self._used == HISTORY:
            self._merge()
        self._store(LATEST + self._used, slot)
        self._used, self._last = self._used + 1, sample

    def _is_same_period(self, one: Sample, other: Sample) -> bool:
        return int(one.time_s / self._period_s) == int(other.time_s / self._period_s)

    def _merge(self) -> None:
        """Double the period, which halves the history."""
        self._period_s *= 2
        kept: list[Sample] = []
        for number in range(self._used):
            sample = _unpacked(os.pread(self._file, SLOT_BYTES, _slot_at(LATEST + number)))
            if sample is not None and kept and self._is_same_period(kept[-1], sample):
                kept[-1] = _higher(kept[-1], sample)
            elif sample is not None:
                kept.append(sample)
        for number, sample in enumerate(kept):
            self._store(LATEST + number, packed(sample))
        self._used = len(kept)

    def _store(self, number: int, slot: bytes) -> None:
        os.pwrite(self._file, slot, _slot_at(number))

    def _write_counts(self) -> None:
        os.pwrite(self._file, _COUNTS.pack(self._count, self._used, self._period_s), len(_MAGIC))

    def close(self) -> None:
        """Close the file. One without a header is removed."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        if self._temporary is not None:
            os.unlink(self._temporary)
            self._temporary = None

    def __enter__(self) -> RingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class GpuNotes:
    """Writes the note of a run about its CUDA device into the ring of its supervisor, if there is one."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        """path: of the ring; None: nothing is written."""
        self._path, self._file = path, -1

    def write(
        self,
        time_s: float,
        used_bytes: int,
        total_bytes: int,
        reserved_bytes: int,
        activity: GpuActivity = UNKNOWN,
    ) -> None:
        """Replace the note. Never raises."""
        if self._path is None:
            return
        known = (-1 if one is None else one for one in activity)
        note = _NOTE.pack(time_s, used_bytes, total_bytes, reserved_bytes, *known)
        try:
            if self._file < 0:
                file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
                if os.pread(file, len(_MAGIC), 0) != _MAGIC:
                    os.close(file)
                    return
                self._file = file
            os.pwrite(self._file, note + _CRC.pack(zlib.crc32(note)), _NOTE_AT)
        except OSError:
            return

    @property
    def are_wanted(self) -> bool:
        """Whether there is a ring to write to."""
        return self._path is not None

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._path, self._file = None, -1


@dataclass(frozen=True)
class Ring:
    """Content of a ring, samples oldest first.

    facts: of the attempt, from `RingWriter.begin`.
    samples: the history, then the latest, one of each moment.
    latest: the latest alone, at most LATEST.
    taken: number of samples ever taken.
    period_s: of the history.
    damaged: number of slots that could not be read.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    latest: tuple[Sample, ...] = ()
    taken: int = 0
    period_s: float = 1.0
    damaged: int = 0


class _Reader:
    """An open ring, also while it is written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Raises OSError: it cannot be read, or is no ring."""
        self._file = plain_only(path, os.O_RDONLY)
        self.head = os.pread(self._file, _HEADER_BYTES, 0)
        if len(self.head) < _HEADER_BYTES or self.head[: len(_MAGIC)] != _MAGIC:
            os.close(self._file)
            raise OSError(f"{os.fspath(path)} is no ring")
        self.taken, used, self.period_s = _COUNTS.unpack_from(self.head, len(_MAGIC))
        self.used = min(max(used, 0), HISTORY)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._file)

    @property
    def facts(self) -> dict[str, Any]:
        try:
            found = json.loads(self.head[_FACTS_AT:].rstrip(b"\0"))
        except (ValueError, RecursionError):
            found = None
        return found if isinstance(found, dict) else {}

    def slots(self, first: int, count: int) -> bytes:
        return os.pread(self._file, count * SLOT_BYTES, _slot_at(first))

    def latest(self, number: int) -> Sample | None:
        """Sample by its number since the begin of the attempt; None if it is damaged."""
        return _unpacked(self.slots(number % LATEST, 1))


def read_ring(path: Path) -> Ring | None:
    """Read a ring, also while it is written; None if the file does not exist or is no ring."""
    try:
        with _Reader(path) as ring:
            content = ring.slots(0, LATEST + ring.used)
    except OSError:
        return None
    slots = [_unpacked(content[at : at + SLOT_BYTES]) for at in range(0, len(content), SLOT_BYTES)]
    slots += [None] * (LATEST + ring.used - len(slots))  # a file that was cut short
    count = min(max(ring.taken, 0), LATEST)
    latest, history = (
        [slots[number % LATEST] for number in range(ring.taken - count, ring.taken)],
        slots[LATEST:],
    )
    found = sorted((sample for sample in latest if sample is not None), key=lambda sample: sample.time_s)
    begins_s = found[0].time_s if found else float("inf")
    older = [sample for sample in history if sample is not None and sample.time_s < begins_s]
    damaged = (latest + history).count(None)
    return Ring(ring.facts, (*older, *found), tuple(found), ring.taken, ring.period_s, damaged)


def read_head(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Sample | None] | None:
    """Read the facts and the newest sample alone, in two small reads; None if there is no ring.

    The ring in a copy of a run's folder names no processes: they work in the original.
    """
    try:
        with _Reader(path) as ring:
            newest = ring.latest(ring.taken - 1) if ring.taken else None
    except OSError:
        return None
    facts = ring.facts
    if is_copy(os.path.dirname(os.path.abspath(path)), facts.get("folder")):
        facts = {name: value for name, value in facts.items() if name not in _PROCESSES}
    return facts, newest


@dataclass(frozen=True)
class Peak:
    """Highest values of a whole attempt; None if there is no ring, or the system does not report them.

    u_bytes, limit_bytes: highest U, and the limit at that time.
    own_bytes, rss_bytes: of the run's own processes: unreclaimable and resident memory.
    limit_at: the cgroup with that limit, or `host`.
    """

    u_bytes: int | None = None
    limit_bytes: int | None = None
    own_bytes: int | None = None
    limit_at: str | None = None
    rss_bytes: int | None = None

    @property
    def run_bytes(self) -> int | None:
        """The run's memory: see `run_memory`."""
        return run_memory(self.u_bytes, self.own_bytes, self.limit_at)


def read_peak(path: str | os.PathLike[str]) -> Peak:
    """Read the peaks from the history: of each slot three numbers, and only the highest slots whole."""
    try:
        with _Reader(path) as ring:
            history = ring.slots(LATEST, ring.used)
    except OSError:
        return Peak()
    most, own, resident = (
        _highest(history, name) or Sample(0.0)
        for name in ("unreclaimable_bytes", "tree_anon_bytes", "tree_rss_bytes")
    )
    at = ring.facts.get("limit_at")
    at = at if isinstance(at, str) else None
    return Peak(most.unreclaimable_bytes, most.limit_bytes, own.own_bytes, at, resident.tree_rss_bytes)


def _highest(slots: bytes, name: str) -> Sample | None:
    amounts = rough_bytes(slots, name)
    for _ in amounts:
        at = amounts.index(max(amounts))
        if (sample := _unpacked(slots[at * SLOT_BYTES : (at + 1) * SLOT_BYTES])) is not None:
            return sample
        amounts[at] = -1 << 63
    return None


def highest_between(path: Path | str, begin_s: float, end_s: float) -> tuple[Sample | None, int]:
    """The sample of the highest U between two moments (Unix time), and the number of samples between them.

    Reads from the newest back, which takes some microseconds for a few samples: a stage asks as it ends.
    (None, 0) if there is no ring, or no sample of that time.
    """
    found: list[Sample] = []
    try:
        with _Reader(path) as ring:
            for number in range(ring.taken - 1, max(0, ring.taken - LATEST) - 1, -1):
                sample = ring.latest(number)
                if sample is not None and sample.time_s < begin_s:
                    break
                if sample is not None and sample.time_s <= end_s:
                    found.append(sample)
            else:
                if ring.taken > LATEST:  # the history has the highest of each earlier period
                    whole = read_ring(Path(path)) or Ring()
                    found = [sample for sample in whole.samples if begin_s <= sample.time_s <= end_s]
    except OSError:
        return None, 0
    return max(found, key=lambda sample: sample.unreclaimable_bytes or 0, default=None), len(found)


def _fitting(facts: dict[str, Any], room: int) -> bytes:
    """Encode facts as JSON, without the longest ones (a command of many words) if not all fit."""
    kept = {name: json.dumps(value) for name, value in facts.items()}
    while sum(len(name) + len(value) + 6 for name, value in kept.items()) > room:
        del kept[max(kept, key=lambda name: len(kept[name]))]
    return json.dumps({name: facts[name] for name in kept}).encode()


def _slot_at(number: int) -> int:
    return _HEADER_BYTES + number * SLOT_BYTES


def _unpacked(slot: bytes) -> Sample | None:
    return unpacked(slot) if len(slot) == SLOT_BYTES else None


def _higher(one: Sample, other: Sample) -> Sample:
    return other if (other.unreclaimable_bytes or 0) > (one.unreclaimable_bytes or 0) else one
