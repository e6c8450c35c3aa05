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
from memory.measure.gpu_activity import ActivityReader
from memory.record.ring import GpuNotes
from memory.record.stage_line import fitted

RECORD_VERSION = 1

log = logging.getLogger("memory")


class Recorder:
    """Destination of the records and lines of one process.

    ring: path of the supervisor's samples.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        attempt: int,
        rank: int = 0,
        echo: Callable[[str], None] | None = None,
        details: bool = False,
    ) -> None:
        """Args: as of `record_to`."""
        self.path = None if path is None else Path(path)
        if self.path is not None and self.path.is_dir():
            self.path /= "memory.jsonl" if rank == 0 else f"memory.rank{rank}.jsonl"
        self.attempt, self.rank = attempt, rank
        self.ring = None if self.path is None else str(self.path.with_name("memory.ring"))
        self._echo, self._details = echo, details
        self._gpu_notes = GpuNotes(self.ring if rank == 0 else None)  # that of rank 0 is the folder's
        self._activity = ActivityReader()
        self._warned = False
        self._is_cut_short = True  # perhaps, by an earlier attempt
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
        if gpu is not None and gpu.used_bytes is not None and self._gpu_notes.are_wanted:
            activity = self._activity.read(gpu.device, time_s)
            self._gpu_notes.write(time_s, gpu.used_bytes, gpu.total_bytes, gpu.reserved_bytes, activity)

    def print_line(self, line: str) -> None:
        """Pass a stage's line to `echo`. One that fails, such as a closed terminal, does not stop the run."""
        if self._echo is not None:
            try:
                self._echo(line if self._details else fitted(line))
            except Exception as error:
                self._warn(error)

    def close(self) -> None:
        """Leave out records that come later."""
        self.path = None
        self._gpu_notes.close()

    def _append(self, line: bytes) -> None:
        """Open, write once, close: others can close a descriptor that is kept, and reuse its number."""
        assert self.path is not None
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            size = os.fstat(file).st_size
            # only then: while another thread writes, a line can be seen in part
            if self._is_cut_short and size and os.pread(file, 1, size - 1) != b"\n":
                line = b"\n" + line  # a line that a full disk cut short stays as it is
            written = os.write(file, line)
        finally:
            os.close(file)
        self._is_cut_short = written < len(line)
        if self._is_cut_short:
            raise OSError(f"only {written} of {len(line)} bytes could be written")

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
