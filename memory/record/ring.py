"""memory.ring: the samples of an attempt in one file of a fixed size, which outlives whatever kills them.

A header, a ring of the latest samples, and a history of the whole attempt: of each of its periods the
sample with the highest U; when the history is full, neighbours are merged and the period doubles. What
pwrite(2) has taken survives a SIGKILL of the writer, and of everything around it, as a store into a shared
map does; but a map counts in the writer's RSS, and is a SIGBUS when somebody cuts the file short.

Behind the slots is one note that the run itself writes: its CUDA device, as the driver counts it. The
supervisor, which loads no library of the driver, adds it to its samples.
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

from experiment_utils.safe_read import is_copy, plain_only, read_plain
from memory.files.reserved_file import allocate
from memory.record.samples import SLOT_BYTES, Sample, packed, rough_bytes, unpacked

LATEST, HISTORY = 1024, 1024
_MAGIC = b"HWRING1\n"
_PROCESSES = ("pid", "started_at", "supervisor_pid", "supervisor_started_at")
_HEADER_BYTES = 4096
_COUNTS = struct.Struct("<qqd")
"""Samples ever taken, slots of the history in use, its period in seconds."""
_FACTS_AT = len(_MAGIC) + _COUNTS.size
_NOTE_AT = _HEADER_BYTES + (LATEST + HISTORY) * SLOT_BYTES
_NOTE = struct.Struct("<d3q")
"""Unix time; used, total and reserved bytes. A CRC follows."""
_CRC = struct.Struct("<I")
_SIZE = _NOTE_AT + _NOTE.size + _CRC.size
NOTE_HOLDS_S = 60.0
"""The note of a run that has written none since is no part of a sample."""


class RingWriter:
    """Makes the file anew, and adds samples to it. It has its name from `begin` on."""

    def __init__(self, path: str | os.PathLike[str], facts: dict[str, Any] | None = None) -> None:
        """facts: None: `begin` is told them later.

        Raises:
            OSError: it cannot be written; a full disk is found here, since all of it is allocated.
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
        """facts: of the attempt, plain values, told by `read_ring`: pid, command, started_s, ...

        Raises:
            OSError: it cannot be written.
        """
        text = _fitting(facts, _HEADER_BYTES - _FACTS_AT - 1)
        os.pwrite(self._file, (_MAGIC + bytes(_COUNTS.size) + text).ljust(_HEADER_BYTES, b"\0"), 0)
        self._count_up()
        if self._temporary is not None:
            os.replace(self._temporary, self._path)
            self._temporary = None

    def add(self, sample: Sample) -> None:
        """Store one.

        Raises:
            OSError: it cannot be written.
        """
        sample = self._with_gpu(sample)
        slot = packed(sample)
        self._store(self._count % LATEST, slot)
        self._count += 1
        self._add_to_history(sample, slot)
        self._count_up()

    def _with_gpu(self, sample: Sample) -> Sample:
        """The sample with what the run noted of its device, if that is not old."""
        note = os.pread(self._file, _SIZE - _NOTE_AT, _NOTE_AT)
        if len(note) < _SIZE - _NOTE_AT or _CRC.pack(zlib.crc32(note[: _NOTE.size])) != note[_NOTE.size :]:
            return sample
        time_s, used, total, reserved = _NOTE.unpack_from(note)
        if not 0 <= sample.time_s - time_s + 1 <= NOTE_HOLDS_S:
            return sample
        return replace(sample, gpu_used_bytes=used, gpu_total_bytes=total, gpu_reserved_bytes=reserved)

    def _add_to_history(self, sample: Sample, slot: bytes) -> None:
        last = self._last
        if last is not None and int(last.time_s / self._period_s) == int(sample.time_s / self._period_s):
            if _higher(last, sample) is sample:
                self._store(LATEST + self._used - 1, slot)
                self._last = sample
            return
        while self._used == HISTORY:
            self._merge()
        self._store(LATEST + self._used, slot)
        self._used, self._last = self._used + 1, sample

    def _merge(self) -> None:
        """Halve the history, and double its period."""
        self._period_s *= 2
        kept: list[Sample] = []
        for number in range(self._used):
            sample = self._load(LATEST + number)
            if sample is None:
                continue
            if kept and int(kept[-1].time_s / self._period_s) == int(sample.time_s / self._period_s):
                kept[-1] = _higher(kept[-1], sample)
            else:
                kept.append(sample)
        for number, sample in enumerate(kept):
            self._store(LATEST + number, packed(sample))
        self._used = len(kept)

    def _store(self, number: int, slot: bytes) -> None:
        os.pwrite(self._file, slot, _HEADER_BYTES + number * SLOT_BYTES)

    def _load(self, slot: int) -> Sample | None:
        at = _HEADER_BYTES + slot * SLOT_BYTES
        stored = os.pread(self._file, SLOT_BYTES, at)
        return unpacked(stored) if len(stored) == SLOT_BYTES else None

    def _count_up(self) -> None:
        os.pwrite(self._file, _COUNTS.pack(self._count, self._used, self._period_s), len(_MAGIC))

    def close(self) -> None:
        """No more samples. One that was never begun is gone."""
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

    def write(self, time_s: float, used_bytes: int, total_bytes: int, reserved_bytes: int) -> None:
        """Replace the note. Never raises."""
        if self._path is None:
            return
        note = _NOTE.pack(time_s, used_bytes, total_bytes, reserved_bytes)
        try:
            if self._file < 0:
                self._file = _opened(self._path)
            os.pwrite(self._file, note + _CRC.pack(zlib.crc32(note)), _NOTE_AT)
        except OSError:
            return

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._path, self._file = None, -1


def _opened(path: str | os.PathLike[str]) -> int:
    """A descriptor of a ring. Raises OSError: there is none, or it is no ring."""
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    if os.pread(file, len(_MAGIC), 0) != _MAGIC:
        os.close(file)
        raise OSError(f"{os.fspath(path)} is no ring")
    return file


@dataclass(frozen=True)
class Ring:
    """What a ring holds, oldest first. samples: the history, then the latest, of each moment one. taken: how
    many were, in all. period_s: of the history. damaged: slots that were passed over.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    latest: tuple[Sample, ...] = ()
    taken: int = 0
    period_s: float = 1.0
    damaged: int = 0


def read_ring(path: Path) -> Ring | None:
    """The ring, also while it is written; None where there is none, or what is there is none."""
    try:
        content = read_plain(path)
    except OSError:
        return None
    if len(content) < _HEADER_BYTES or content[: len(_MAGIC)] != _MAGIC:
        return None
    taken, used, period_s = _COUNTS.unpack_from(content, len(_MAGIC))
    count = min(max(taken, 0), LATEST)
    slots = [number % LATEST for number in range(taken - count, taken)]
    latest = [_slot(content, slot) for slot in slots]
    history = [_slot(content, LATEST + number) for number in range(min(max(used, 0), HISTORY))]
    found = sorted((sample for sample in latest if sample is not None), key=lambda sample: sample.time_s)
    begins_s = found[0].time_s if found else float("inf")
    older = [sample for sample in history if sample is not None and sample.time_s < begins_s]
    damaged = (latest + history).count(None)
    return Ring(_facts(content), (*older, *found), tuple(found), taken, period_s, damaged)


def _fitting(facts: dict[str, Any], room: int) -> bytes:
    """As JSON, without the longest ones (a command of many words) where all do not fit."""
    kept = {name: json.dumps(value) for name, value in facts.items()}
    while sum(len(name) + len(value) + 6 for name, value in kept.items()) > room:
        del kept[max(kept, key=lambda name: len(kept[name]))]
    return json.dumps({name: facts[name] for name in kept}).encode()


def read_head(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Sample | None] | None:
    """Facts and the newest sample alone: two small reads. None where there is no ring.

    The ring in a copy of a run's folder names no processes: they work in the original.
    """
    try:
        file = plain_only(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        head = os.pread(file, _HEADER_BYTES, 0)
        if len(head) < _HEADER_BYTES or head[: len(_MAGIC)] != _MAGIC:
            return None
        taken, _, _ = _COUNTS.unpack_from(head, len(_MAGIC))
        slot = os.pread(file, SLOT_BYTES, _HEADER_BYTES + (taken - 1) % LATEST * SLOT_BYTES) if taken else b""
    except OSError:
        return None
    finally:
        os.close(file)
    facts = _facts(head)
    if is_copy(os.path.dirname(os.path.abspath(path)), facts.get("folder")):
        facts = {name: value for name, value in facts.items() if name not in _PROCESSES}
    return facts, unpacked(slot) if len(slot) == SLOT_BYTES else None


@dataclass(frozen=True)
class Peak:
    """The highest of a whole attempt; None where there is no ring, or the system does not tell.

    u_bytes, limit_bytes: U at its highest, and the limit that it stood under. own_bytes, rss_bytes: of the
    run's own processes, anon and all that is resident. limit_at: the cgroup with that limit, or `host`.
    """

    u_bytes: int | None = None
    limit_bytes: int | None = None
    own_bytes: int | None = None
    limit_at: str | None = None
    rss_bytes: int | None = None


def read_peak(path: str | os.PathLike[str]) -> Peak:
    """From the history. Of all slots three numbers are read, of the highest all."""
    try:
        with open(path, "rb", opener=plain_only) as file:
            head = file.read(_HEADER_BYTES)
            if len(head) < _HEADER_BYTES or head[: len(_MAGIC)] != _MAGIC:
                return Peak()
            _, used, _ = _COUNTS.unpack_from(head, len(_MAGIC))
            file.seek(_HEADER_BYTES + LATEST * SLOT_BYTES)
            history = file.read(min(max(used, 0), HISTORY) * SLOT_BYTES)
    except OSError:
        return Peak()
    of_all, own = _highest(history, "unreclaimable_bytes"), _highest(history, "tree_anon_bytes")
    resident = _highest(history, "tree_rss_bytes")
    at = _facts(head).get("limit_at")
    return Peak(
        None if of_all is None else of_all.unreclaimable_bytes,
        None if of_all is None else of_all.limit_bytes,
        None if own is None else own.own_bytes,
        at if isinstance(at, str) else None,
        None if resident is None else resident.tree_rss_bytes,
    )


def _highest(slots: bytes, name: str) -> Sample | None:
    """The whole one with the most of it."""
    amounts = rough_bytes(slots, name)
    for at in sorted(range(len(amounts)), key=amounts.__getitem__, reverse=True):
        best = unpacked(slots[at * SLOT_BYTES : (at + 1) * SLOT_BYTES])
        if best is not None:
            return best
    return None


def _facts(head: bytes) -> dict[str, Any]:
    try:
        found = json.loads(head[_FACTS_AT:_HEADER_BYTES].rstrip(b"\0"))
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _slot(content: bytes, number: int) -> Sample | None:
    at = _HEADER_BYTES + number * SLOT_BYTES
    slot = content[at : at + SLOT_BYTES]
    return unpacked(slot) if len(slot) == SLOT_BYTES else None


def _higher(one: Sample, other: Sample) -> Sample:
    return other if (other.unreclaimable_bytes or 0) > (one.unreclaimable_bytes or 0) else one


def highest_between(path: Path | str, begin_s: float, end_s: float) -> tuple[Sample | None, int]:
    """The sample of the highest U between two moments (Unix time), and how many samples lie between them.

    Reads from the newest back, some microseconds for a few samples, so that a stage may ask as it ends.
    (None, 0) where there is no ring, or no sample of that time.
    """
    try:
        descriptor = plain_only(path, os.O_RDONLY)
    except OSError:
        return None, 0
    try:
        head = os.pread(descriptor, _FACTS_AT, 0)
        if len(head) < _FACTS_AT or head[: len(_MAGIC)] != _MAGIC:
            return None, 0
        taken, _, _ = _COUNTS.unpack_from(head, len(_MAGIC))
        highest, count = None, 0
        for number in range(taken - 1, max(0, taken - LATEST) - 1, -1):
            slot = os.pread(descriptor, SLOT_BYTES, _HEADER_BYTES + number % LATEST * SLOT_BYTES)
            sample = unpacked(slot) if len(slot) == SLOT_BYTES else None
            if sample is not None and sample.time_s < begin_s:
                return highest, count
            if sample is not None and sample.time_s <= end_s:
                highest, count = sample if highest is None else _higher(highest, sample), count + 1
    except OSError:
        return None, 0
    finally:
        os.close(descriptor)
    if taken > LATEST:  # it began before the latest samples: the history has the highest of each period
        ring = read_ring(Path(path))
        within = [s for s in (ring.samples if ring else ()) if begin_s <= s.time_s <= end_s]
        for sample in within:
            highest = sample if highest is None else _higher(highest, sample)
        count = max(count, len(within))
    return highest, count
