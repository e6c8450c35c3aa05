"""Highest resident memory and GPU memory within each open stage, of all threads.

The kernel and torch each keep one high-water mark, of the whole process since its start or the last reset.
When a stage begins, the mark is noted for each open stage and for the run, then reset if it is above the
present amount; so a reset within a stage loses no peak of the stages around it. A peak of another thread
between the note and the reset is missed. Source: proc(5), /proc/PID/clear_refs: writing 5 resets VmHWM (Linux
4.0). The ru_maxrss of getrusage is the same mark: while stages are measured, the peak since the last reset.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace

from memory.files.procfs import kilobytes, read_file
from memory.measure.cuda_allocator import Gpu, read_gpu_peak, reset_gpu_peak
from memory.measure.process import Process

_SLACK_BYTES = 1 << 20
"""A mark no further above the present amount is not reset: a reset has a race, and costs a system call."""


@dataclass(slots=True)
class StagePeak:
    """Highest memory while a stage ran; None if unknown."""

    rss_bytes: int | None = None
    """Resident memory of this process, mapped files included, to 1 MB."""
    gpu_bytes: int | None = None
    """Tensors on its device, exact."""
    sampled_unreclaimable_bytes: int | None = None
    """U of the job: the highest of the supervisor's samples. A peak between two samples is missed."""
    samples: int = 0

    def to_json(self) -> dict[str, int | None]:
        """The fields as a dictionary."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Open:
    """A stage that runs, with its peaks up to the last reset."""

    is_clean: bool = False
    """The mark was at the present amount when the stage began; else it was at `mark_bytes`."""
    mark_bytes: int | None = None
    rss_bytes: int = 0
    gpu_bytes: dict[int, int] = field(default_factory=dict)

    def rss_peak(self, mark: int | None) -> int | None:
        """Peak of the stage, given VmHWM at its end; None if an earlier peak hides it."""
        if mark is None or self.is_clean:
            return None if mark is None else max(self.rss_bytes, mark)
        return mark if self.mark_bytes is not None and mark > self.mark_bytes else None


class Peaks:
    """Peaks of this process since its start that resets have hidden: rss_bytes, and gpu_bytes by device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Open] = []
        self._may_reset = True
        self.rss_bytes = 0
        self.gpu_bytes: dict[int, int] = {}

    def begin(self, gpu: Gpu | None) -> Open:
        """Open a stage; gpu: the device that it uses, if any."""
        mine = Open()
        with self._lock:
            mark, now = _marks()
            self._note(mark)
            mine.mark_bytes = mark
            if mark is not None and now is not None:
                mine.is_clean = mark - now <= _SLACK_BYTES or self._reset()
            if gpu is not None:
                peak = reset_gpu_peak(gpu.device)
                for known in (self.gpu_bytes, *(outer.gpu_bytes for outer in self._open)):
                    known[gpu.device] = max(known.get(gpu.device, 0), peak or 0)
            self._open.append(mine)
        return mine

    def end(self, mine: Open, mark: int | None, gpu: Gpu | None) -> StagePeak:
        """Close a stage.

        Args:
            mine: what `begin` returned.
            mark: VmHWM, read at its end.
            gpu: the device that it uses, if any.
        """
        with self._lock:
            on_gpu = None if gpu is None else read_gpu_peak(gpu.device)
            self._open = [other for other in self._open if other is not mine]
        if gpu is not None and on_gpu is not None:
            on_gpu = max(on_gpu, mine.gpu_bytes.get(gpu.device, 0))
        return StagePeak(mine.rss_peak(mark), on_gpu)

    def of_process(self, main: Process) -> Process:
        """The process with its peak since it began."""
        if main.peak_rss_bytes is None or main.peak_rss_bytes >= self.rss_bytes:
            return main
        return replace(main, peak_rss_bytes=self.rss_bytes)

    def of_gpu(self, gpu: Gpu) -> Gpu:
        """The device with its peak since the process began."""
        kept = self.gpu_bytes.get(gpu.device, 0)
        return replace(gpu, peak_bytes=kept) if kept > gpu.peak_bytes else gpu

    def _note(self, mark: int | None) -> None:
        if mark is not None:
            self.rss_bytes = max(self.rss_bytes, mark)
            for outer in self._open:
                outer.rss_bytes = max(outer.rss_bytes, mark)

    def _reset(self) -> bool:
        if not self._may_reset:
            return False
        try:
            with open("/proc/self/clear_refs", "wb", buffering=0) as file:
                file.write(b"5")
        except OSError:  # a read-only /proc, a kernel without CONFIG_PROC_PAGE_MONITOR
            self._may_reset = False
        return self._may_reset

    def forget(self) -> None:
        """Start again in a forked child: its mark is its own, and another thread can have held the lock."""
        self.__init__()  # type: ignore[misc]


def _marks() -> tuple[int | None, int | None]:
    """VmHWM and VmRSS in bytes: the mark, and the present amount."""
    status = read_file("/proc/self/status") or b""
    at = status.find(b"VmHWM:")
    mark, now = kilobytes(status[at : at + 80], (b"VmHWM:", b"VmRSS:")) if at >= 0 else (None, None)
    return mark, now


PEAKS = Peaks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PEAKS.forget)
