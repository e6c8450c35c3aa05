"""The first of --dedup's two passes: hash all lines or documents, and record which ones came before.

The result is in a folder of its own in the set's hidden folder: `bits`, a bit for each unit of the set in
its order, and `found.json`, which is written last. A job that was killed after this pass uses them
again; one that was killed in it begins it again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from data_loading.pretokenizer.cleaning.dedup_units import UNITS, Unit, pieces
from data_loading.pretokenizer.cleaning.seen_hashes import LEAST_MEMORY_BYTES, RECORD_BYTES, FirstSeen
from data_loading.text_io.compression import SUFFIXES
from data_loading.text_io.source import Source
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.quantities import format_count, format_duration
from memory import format_bytes, stage

FOLDER = "duplicates"
DEFAULT_MEMORY_BYTES = 256 << 20
_VERSION = 1
_BATCH_UNITS = 1 << 14
_LOG_EVERY_S = 30.0
_WINDOW_BYTES = 1 << 13
_USUAL_DOCUMENT_BYTES = 1 << 9
"""Small, so that the estimate of disk space is rather too large."""
_USUAL_COMPRESSION = 4


@dataclass
class Duplicates:
    """Which units of a set came before in it; shared by the sources of the set.

    unit: a name of UNITS. first: the number of the first unit of each source.
    """

    unit: str
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    first: list[int] = field(init=False, default_factory=list)
    _bits: Path | None = field(init=False, default=None)
    _start: int = field(init=False, default=0)
    _flags: np.ndarray = field(init=False, default_factory=lambda: np.empty(0, bool))

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise UserError(f"--dedup {self.unit}: choices are {', '.join(UNITS)}", code="dedup-unknown")
        if self.memory_bytes < LEAST_MEMORY_BYTES:
            raise UserError(
                f"--dedup-memory {self.memory_bytes:,} bytes: the least is "
                f"{format_bytes(LEAST_MEMORY_BYTES)}",
                code="dedup-memory-too-small",
            )

    def prepare(self, parts: Sequence[Source], parent: Path, log: Callable[[str], None]) -> None:
        """Find the duplicates, or read the result of an earlier attempt in `parent`.

        Args:
            parts: The inputs before anything is dropped.

        Raises:
            UserError: a part cannot be read, or the disk is too small for the hashes.
            OSError: the disk is full or read-only.
        """
        folder, identity = parent / FOLDER, self._identity(parts)
        self._bits, self._start, self._flags = folder / "bits", 0, np.empty(0, bool)
        found = _read_found(folder)
        if found is not None and found["identity"] == identity:
            self.first = found["first"]
            log(f"duplicate {self.unit} are known from an earlier attempt: {_counts(found, self.unit)}")
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            with stage("find_duplicates"):
                self._find(parts, folder, identity, log)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # there can be an unfinished set
                parent.rmdir()
            raise

    def _identity(self, parts: Sequence[Source]) -> str:
        facts = [_VERSION, self.unit, [[part.state(), part.options] for part in parts]]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _find(self, parts: Sequence[Source], folder: Path, identity: str, log: Callable[[str], None]) -> None:
        pass_ = _Pass(parts, UNITS[self.unit](), folder, log)
        pass_.check_estimate(self.memory_bytes)
        found = FirstSeen(folder, self.memory_bytes, pass_.check_spill)
        found.find(pass_.hashes())
        with atomic_files.atomic_file(folder / "bits") as out:
            found.write_bits(pass_.unit.number, out)
        self.first = pass_.first
        facts = {"first": self.first, "units": pass_.unit.number, "repeated": found.repeated}
        atomic_files.write_json(folder / "found.json", {"version": _VERSION, "identity": identity, **facts})
        spilt = f", {format_bytes(found.spilt_bytes)} of hashes were on disk" if found.spilt_bytes else ""
        log(f"{_counts(facts, self.unit)} in {format_duration(time.monotonic() - pass_.started)}{spilt}")

    def flags(self, first: int, count: int) -> np.ndarray:
        """bool `(count,)`: whether the units from number `first` on are repetitions."""
        if not self._start <= first <= first + count <= self._start + len(self._flags):
            assert self._bits is not None, "prepared before text is read"
            self._start = first // 8 * 8
            with open(self._bits, "rb") as file:
                file.seek(self._start // 8)
                data = file.read(max(_WINDOW_BYTES, (first + count - self._start + 7) // 8))
            if (first + count - self._start + 7) // 8 > len(data):
                raise UserError(
                    "the text was changed between the reading for --dedup and the one that tokenizes it. "
                    "Start again when it is complete",
                    code="changed-while-read",
                )
            self._flags = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").view(bool)
        return self._flags[first - self._start : first - self._start + count]


class _Pass:
    """Reads the parts once, and checks that their hashes have room in `folder`.

    first: number of the first unit of each part that was begun.
    """

    def __init__(self, parts: Sequence[Source], unit: Unit, folder: Path, log: Callable[[str], None]) -> None:
        self.unit, self.first, self.started = unit, list[int](), time.monotonic()
        self._parts, self._folder, self._log = parts, folder, log
        self._bytes_before, self._logged = 0, self.started
        sizes = [part.total_bytes for part in parts]
        self._total = None if None in sizes else sum(filter(None, sizes))
        size = "" if self._total is None else f" ({self._total / 1e6:,.1f} MB)"
        more = f" and {len(parts) - 1:,} more" if len(parts) > 1 else ""
        log(f"looking for duplicate {unit.name} in {parts[0].what}{more}{size}, before it is tokenized")

    @property
    def _done_bytes(self) -> int:
        return self._bytes_before + self._parts[len(self.first) - 1].done_bytes

    def hashes(self) -> Iterator[np.ndarray]:
        unit = self.unit
        taken = 0
        for number, part in enumerate(self._parts):
            self._bytes_before += (self._parts[number - 1].total_bytes or 0) if number else 0
            self.first.append(unit.number)
            for chunk in part.chunks():
                for piece, is_last in pieces(chunk.data):
                    unit.hash(piece, ends_document=chunk.ends_document and is_last)
                    if unit.number - taken >= _BATCH_UNITS:
                        taken = unit.number
                        yield unit.take()
                self._log_progress()
        yield unit.take()
        if time.monotonic() - self.started > _LOG_EVERY_S:
            self._log(f"all is read: comparing the hashes of {format_count(unit.number)} {unit.name}")

    def _log_progress(self) -> None:
        if time.monotonic() - self._logged < _LOG_EVERY_S:
            return
        self._logged = time.monotonic()
        done = f"{self._done_bytes / 1e6:,.1f} MB"
        if self._total:
            done = f"{self._done_bytes / self._total:4.0%} of {self._total / 1e6:,.1f} MB"
        rate = self._done_bytes / 1e6 / (self._logged - self.started)
        units = f"{format_count(self.unit.number)} {self.unit.name}"
        self._log(f"looking for duplicates: {done}, {units}, {rate:.1f} MB/s")

    def check_estimate(self, memory_bytes: int) -> None:
        """Raise UserError if samples show that the hashes have no room on the disk."""
        if self._total is None:
            return
        packed = (*SUFFIXES, ".parquet")
        text_bytes = sum(
            (part.total_bytes or 0) * (_USUAL_COMPRESSION if part.argument.lower().endswith(packed) else 1)
            for part in self._parts
        )
        if self.unit.name == "documents":
            units = max(len(self._parts), text_bytes // _USUAL_DOCUMENT_BYTES)
        else:
            sample = b"".join(self._parts[0].samples())
            units = text_bytes * (sample.count(b"\n") + 1) // max(1, len(sample))
        spilt = units * RECORD_BYTES
        if spilt > memory_bytes // 4:  # else they stay in memory
            self._check_room(spilt + units // 8)

    def check_spill(self, spilt_bytes: int, next_bytes: int) -> None:
        """Raise UserError before more is written than there is room for."""
        done, soon = self._done_bytes, spilt_bytes + next_bytes
        if self._total and 0 < done < self._total:
            next_bytes = soon * self._total // done - spilt_bytes
        self._check_room(next_bytes)

    def _check_room(self, needed: int) -> None:
        free = shutil.disk_usage(self._folder).free
        if needed > free:
            raise UserError(
                f"--dedup {self.unit.name}: the hashes of this text need about {format_bytes(needed)} "
                f"more in {self._folder.parent.parent}, and {format_bytes(free)} are free there. Make room, "
                "tokenize to another disk (--output), or omit --dedup",
                code="dedup-disk-space",
            )


def _read_found(folder: Path) -> dict[str, Any] | None:
    try:
        found = atomic_files.read_object(folder / "found.json")
        with atomic_files.reading(folder / "bits"):
            size = (folder / "bits").stat().st_size
    except (FileNotFoundError, ValueError):
        return None
    is_whole = found and found.get("version") == _VERSION and size == -(-found["units"] // 8)
    return found if is_whole else None


def _counts(found: dict[str, Any], unit: str) -> str:
    return f"{found['units']:,} {unit}, {found['repeated']:,} of them duplicates"
