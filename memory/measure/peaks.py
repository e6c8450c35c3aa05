"""The most that resident memory and the GPU reached inside each open stage, whichever thread it runs in.

The kernel and torch each keep one high-water mark: of the whole process since its start or the last reset.
A stage that begins notes the mark for every stage that is open and for the run, then resets it, if it stands
above what is held now; so an inner reset loses no outer peak. What another thread reaches for an instant
between those two is missed. Source: proc(5), /proc/PID/clear_refs: writing 5 resets VmHWM (Linux 4.0).
getrusage's ru_maxrss comes from the same mark: while stages are measured it tells the peak since the last
reset, not since the start.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace

from memory.files.cached_procfs import read_kept
from memory.files.procfs import kilobytes_after
from memory.measure.cuda_allocator import Gpu, read_gpu_peak, reset_gpu_peak
from memory.measure.process import Process

_SLACK_BYTES = 1 << 20
"""A mark that is no further above what is held is left alone: a reset has a race, and costs a system call."""


@dataclass(slots=True)
class Peak:
    """The most that was held while a stage ran, in bytes; None where it cannot be told.

    rss_bytes: of this process, mapped files included, to 1 MB. gpu_bytes: of tensors on its device, exact.
    sampled_unreclaimable_bytes: U of the job, the highest of the supervisor's `samples` within the stage: the
    kernel keeps no high-water mark of it, so a short peak between two samples is missed.
    """

    rss_bytes: int | None = None
    gpu_bytes: int | None = None
    sampled_unreclaimable_bytes: int | None = None
    samples: int = 0

    def to_json(self) -> dict[str, int | None]:
        """For a record."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Open:
    """A stage that runs: its peaks up to the last reset. is_clean: as it began the mark stood at what was
    held; if not, at mark_bytes.
    """

    is_clean: bool = False
    mark_bytes: int | None = None
    rss_bytes: int = 0
    gpu_bytes: dict[int, int] = field(default_factory=dict)

    def rss_peak(self, mark: int | None) -> int | None:
        """mark: VmHWM as it ends. Where that could not be reset, it tells of a stage that raised it alone."""
        if mark is None or self.is_clean:
            return None if mark is None else max(self.rss_bytes, mark)
        return mark if self.mark_bytes is not None and mark > self.mark_bytes else None


class Peaks:
    """Of this process. rss_bytes, gpu_bytes (by device): what resets would have lost, since the start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[Open] = []
        self._may_reset = True
        self.rss_bytes = 0
        self.gpu_bytes: dict[int, int] = {}

    def begin(self, gpu: Gpu | None) -> Open:
        """A stage begins. gpu: its device, if it uses one."""
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

    def end(self, mine: Open, mark: int | None, gpu: Gpu | None) -> Peak:
        """It ends. mark: VmHWM, read after its body. gpu: its device, if it uses one."""
        with self._lock:
            on_gpu = None if gpu is None else read_gpu_peak(gpu.device)
            self._open = [other for other in self._open if other is not mine]
        if gpu is not None and on_gpu is not None:
            on_gpu = max(on_gpu, mine.gpu_bytes.get(gpu.device, 0))
        return Peak(mine.rss_peak(mark), on_gpu)

    def of_process(self, main: Process) -> Process:
        """With the peak since the process began, which resets have hidden from the kernel."""
        if main.peak_rss_bytes is None or main.peak_rss_bytes >= self.rss_bytes:
            return main
        return replace(main, peak_rss_bytes=self.rss_bytes)

    def of_gpu(self, gpu: Gpu) -> Gpu:
        """The same of the device."""
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
            descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, b"5")
            finally:
                os.close(descriptor)
        except OSError:  # a read-only /proc, a kernel without CONFIG_PROC_PAGE_MONITOR
            self._may_reset = False
        return self._may_reset

    def forget(self) -> None:
        """In a forked child: its mark is its own, and another thread may have held the lock."""
        self.__init__()  # type: ignore[misc]


def _marks() -> tuple[int | None, int | None]:
    """VmHWM and VmRSS, in bytes: the mark, and what is held now."""
    status = read_kept("/proc/self/status") or b""
    at = status.find(b"VmHWM:")
    if at < 0:
        return None, None
    words = status[at : at + 80].split()
    return kilobytes_after(words, b"VmHWM:"), kilobytes_after(words, b"VmRSS:")


PEAKS = Peaks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=PEAKS.forget)
