"""What other tools show of a run: recorded as they record it, then read by one plain rule.

None of them gives a verdict on a death, so each is read as its user reads it: did this run come near its
limit?
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

MB = 1 << 20
NEAR = 0.9
"""Share of the limit from which a user would say that it ran out of memory."""
NEVER = {
    "composer": "nothing: MemoryMonitor logs torch.cuda.memory_stats, and on a CPU only a warning "
    "(composer/callbacks/memory_monitor.py)",
}


@dataclass
class Said:
    """says: what a tool shows. memory: whether that points to the limit; None: it shows nothing."""

    says: str
    memory: bool | None


@dataclass
class Log:
    """One line a second, as a logging callback writes them.

    rss_bytes: summed over the process tree. host_percent: share of the machine's memory.
    """

    rss_bytes: list[int] = field(default_factory=list)
    host_percent: list[float] = field(default_factory=list)

    @contextmanager
    def of(self, pid: int) -> Iterator[None]:
        """Log the process tree below `pid`, the supervisor, which is not counted."""
        stop = threading.Event()
        thread = threading.Thread(target=self._log, args=(pid, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _log(self, pid: int, stop: threading.Event) -> None:
        device_stats, due = import_lightning(), time.monotonic()
        while not stop.wait(max(0.0, due - time.monotonic())):
            due, total = due + 1.0, 0
            try:
                found = psutil.Process(pid).children(recursive=True)
            except psutil.Error:
                return
            for process in found:
                with suppress(psutil.Error):
                    total += process.memory_info().rss
            self.rss_bytes.append(total)
            self.host_percent.append(device_stats())

    def psutil(self, limit_mb: int) -> Said:
        """RSS of the run and its children."""
        if not self.rss_bytes:
            return Said("no line", None)
        last, most = self.rss_bytes[-1] / MB, max(self.rss_bytes) / MB
        return Said(f"last RSS {last:.0f} MB, most {most:.0f} of {limit_mb}", most >= NEAR * limit_mb)

    def lightning(self) -> Said:
        """DeviceStatsMonitor(cpu_stats=True)."""
        if not self.host_percent:
            return Said("no line", None)
        most = max(self.host_percent)
        return Said(f"cpu_vm_percent {most:.0f}", most >= 100 * NEAR)


def import_lightning() -> Callable[[], float]:
    """Host memory in percent as DeviceStatsMonitor logs it, by its own function if that is installed.

    The import takes seconds: call this once before the first log.
    """
    try:
        from pytorch_lightning.accelerators.cpu import get_cpu_stats
    except ImportError:
        return lambda: psutil.virtual_memory().percent
    return lambda: float(get_cpu_stats()["cpu_vm_percent"])


def sacct(rows: list[dict[str, str]]) -> Said:
    """`sacct -o JobID,State,ExitCode,MaxRSS,ReqMem`, job and steps."""
    limit = _bytes(rows[0]["ReqMem"]) if rows else 0
    most = max((_bytes(row["MaxRSS"]) for row in rows), default=0)
    states = [f"{row['JobID'].partition('.')[2] or 'job'} {row['State']}" for row in rows]
    memory = any("OUT_OF_MEMORY" in state for state in states) or bool(limit and most >= NEAR * limit)
    return Said(f"{', '.join(states)}; MaxRSS {most / MB:.0f} of {limit / MB:.0f} MB", memory)


def seff(rows: list[dict[str, str]]) -> Said:
    """Slurm's contribs/seff: the job's own state, and the largest MaxRSS of its steps over the limit."""
    limit = _bytes(rows[0]["ReqMem"]) if rows else 0
    most = max((_bytes(row["MaxRSS"]) * max(1, int(row["NTasks"] or 1)) for row in rows), default=0)
    state, code = (rows[0]["State"], rows[0]["ExitCode"]) if rows else ("unknown", "?")
    share = 100 * most / limit if limit else 0.0
    says = f"State: {state} (exit code {code}); Memory Efficiency: {share:.2f}% of {limit / MB:.2f} MB"
    return Said(says, "OUT_OF_MEMORY" in state or share >= 100 * NEAR)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([\d.]+)([KMGT]?)[nc]?", text)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else 0
