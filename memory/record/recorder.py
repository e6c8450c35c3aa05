"""Stage records on disk: one JSON object a line, written with one write(2) each.

What write(2) has taken survives a SIGKILL of this process; fsync, which only a power cut needs,
would cost 200 times as much. A disk that fails costs the records, never the run.
"""

from __future__ import annotations

import json
import logging
import numbers
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory.measure.cuda_allocator import Gpu
from memory.record.ring import GpuNotes
from memory.record.stage_line import fitted

RECORD_VERSION = 1

log = logging.getLogger("memory")


def records_path(path: str | os.PathLike[str] | None, rank: int) -> Path | None:
    """File of records of a rank if `path` is a folder; else `path`."""
    if path is None:
        return None
    path = Path(path)
    if not path.is_dir():
        return path
    return path / ("memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl")


class Recorder:
    """Destination of the records and lines of one process.

    Args:
        path: JSONL file, appended to; None keeps no records.
        attempt: of the run, from 1.
        rank: of this process.
        echo: takes each stage's line; None prints nothing.
        details: echo gets whole lines instead of their 80 columns.

    ring: path of the supervisor's samples. polled_bytes: limit of RSS that Slurm enforces by polling.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        attempt: int,
        rank: int = 0,
        echo: Callable[[str], None] | None = None,
        details: bool = False,
    ) -> None:
        self.path, self.attempt, self.rank = path, attempt, rank
        self.ring = None if path is None else str(path.parent / "memory.ring")
        self.polled_bytes: int | None = None
        self._echo, self._details = echo, details
        self._gpu_notes = GpuNotes(self.ring if rank == 0 else None)  # that of rank 0 is the folder's
        self._descriptor: int | None = None
        self._file: tuple[int, int] | None = None
        self._line_is_open = False
        self._warned = False
        self._first_s: float | None = None

    def write(self, event: str, stage: str, facts: dict[str, Any], time_s: float, **more: Any) -> None:
        """Append one record. The first failure is logged, later ones are ignored."""
        if self.path is None:
            return
        now_s = time.monotonic()
        self._first_s = now_s if self._first_s is None else self._first_s
        record = {
            "version": RECORD_VERSION,
            "event": event,
            "stage": stage,
            "attempt": self.attempt,
            "rank": self.rank,
            "time_s": round(time_s, 6),
            "elapsed_s": round(now_s - self._first_s, 6),
            "facts": facts,
            **more,
        }
        try:
            self._append(_encoded(record))
        except OSError as error:
            self._warn(error)

    def note_gpu(self, gpu: Gpu | None, time_s: float) -> None:
        """Pass the use of the device, as it was read at `time_s`, to the supervisor's samples."""
        if gpu is not None and gpu.used_bytes is not None:
            self._gpu_notes.write(time_s, gpu.used_bytes, gpu.total_bytes, gpu.reserved_bytes)

    def print_line(self, line: str) -> None:
        """Pass a stage's line to `echo`. One that fails, such as a closed terminal, does not stop the run."""
        if self._echo is not None:
            try:
                self._echo(line if self._details else fitted(line))
            except Exception as error:
                self._warn(error)

    def close(self) -> None:
        """Close the file. Later records are left out."""
        if self._descriptor is not None and self._is_ours():
            os.close(self._descriptor)
        self._descriptor, self.path = None, None
        self._gpu_notes.close()

    def _append(self, line: bytes) -> None:
        if self._descriptor is None or not self._is_ours():
            self._descriptor = self._open()
        # a line cut short by a full disk stays as it is; the next begins on its own
        whole = b"\n" + line if self._line_is_open else line
        written = os.write(self._descriptor, whole)
        self._line_is_open = written < len(whole)
        if self._line_is_open:
            raise OSError(f"only {written} of {len(whole)} bytes could be written")

    def _open(self) -> int:
        assert self.path is not None
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        found = os.fstat(descriptor)
        self._file = (found.st_dev, found.st_ino)
        self._line_is_open = found.st_size > 0 and os.pread(descriptor, 1, found.st_size - 1) != b"\n"
        return descriptor

    def _is_ours(self) -> bool:
        """Whether the descriptor is still of our file: others can close it and open another by its number."""
        if self._descriptor is None:
            return False
        try:
            found = os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            log.warning("stages cannot be recorded (%s: %s); the run continues", self.path or "echo", error)


def _plain(value: Any) -> int | float | str:
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else str(value)


_encode = json.JSONEncoder(default=_plain, allow_nan=False, separators=(",", ":")).encode


def _encoded(record: dict[str, Any]) -> bytes:
    try:
        text = _encode(record)
    except (TypeError, ValueError, RecursionError):  # a fact that JSON cannot represent, such as nan
        record["facts"] = {str(key): repr(value) for key, value in record["facts"].items()}
        text = _encode(record)
    return text.encode() + b"\n"
