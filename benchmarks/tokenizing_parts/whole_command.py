"""A command from its start to its exit: wall time, processor time, peak memory of all its processes."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.2
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PSS = re.compile(r"^Pss_(?:Anon|Shmem): +(\d+) kB", re.MULTILINE)

MEMORY_WORDS = (
    "peak of the sum over all processes of Pss_Anon and Pss_Shmem (smaps_rollup) and of files in memory that "
    f"are open but not mapped, sampled every {_EVERY_S} s; page cache does not count"
)


@dataclass(frozen=True)
class Measured:
    """cpu_s: of the process and all its descendants, as far as they were waited for or seen.

    peak_bytes: of all processes at one moment; parent_peak_bytes, worker_peak_bytes: of the first
    process, and of the largest other one, each at its own worst moment.
    """

    wall_s: float
    cpu_s: float
    peak_bytes: int
    parent_peak_bytes: int
    worker_peak_bytes: int
    output: str


def run(command: Sequence[str], cwd: Path, environment: dict[str, str] | None = None) -> Measured:
    """Run to the end. Raises RuntimeError with what it printed when it fails."""
    with open(cwd / "command.log", "w+b") as log:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd, env={**os.environ, **(environment or {})}, stdout=log, stderr=subprocess.STDOUT
        )
        sampler = Sampler(process.pid)
        sampler.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        sampler.stop()
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}:\n{output[-3000:]}")
    cpu = max(usage.ru_utime + usage.ru_stime, sampler.cpu_s)
    return Measured(
        round(wall, 3), round(cpu, 3), sampler.peak, sampler.parent, sampler.worker, output
    )  # fmt: skip


class Sampler(threading.Thread):
    """Looks at a process and its descendants until stopped; looking takes at most a twentieth of one core."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._done = pid, threading.Event()
        self.peak = self.parent = self.worker = 0
        self._cpu_s: dict[tuple[int, str], float] = {}

    def run(self) -> None:
        pause = _EVERY_S / 4  # short commands are seen as well
        while not self._done.wait(pause):
            started = time.perf_counter()
            self._look()
            pause = max(_EVERY_S, 20 * (time.perf_counter() - started))

    def stop(self) -> None:
        self._done.set()
        self.join()

    @property
    def cpu_s(self) -> float:
        """Of all processes, each as it was when last seen: some tools do not wait for theirs."""
        return sum(self._cpu_s.values())

    def _look(self) -> None:
        children = _descendants(self._pid)
        for pid in (self._pid, *children):
            with suppress(OSError):
                # the name in brackets may hold anything; then state, parent, ..., utime, stime, ..., start
                facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._cpu_s[pid, facts[19]] = (int(facts[11]) + int(facts[12])) / _TICKS_A_SECOND
        files: dict[int, int] = {}
        held = {pid: _held(pid) for pid in (self._pid, *children)}
        for pid in held:
            files.update(_files_in_memory(pid))
        self.peak = max(self.peak, sum(held.values()) + sum(files.values()))
        self.parent = max(self.parent, held[self._pid])
        self.worker = max(self.worker, *(held[pid] for pid in children), 0) if children else self.worker


def _descendants(pid: int) -> list[int]:
    """Children, theirs, and so on, by what the kernel lists for each thread."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with suppress(OSError):
            for thread in Path(f"/proc/{parent}/task").iterdir():
                children = [int(child) for child in (thread / "children").read_text().split()]
                found += children
                waiting += children
    return found


def _held(pid: int) -> int:
    """Bytes; 0 when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return 1024 * sum(map(int, _PSS.findall(text)))


def _files_in_memory(pid: int) -> dict[int, int]:
    """Inode to bytes of each memfd that the process has open and nobody maps."""
    found = {}
    try:
        maps = Path(f"/proc/{pid}/maps").read_text()
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            if str(entry.readlink()).startswith("/memfd:"):
                facts = entry.stat()
                if f" {facts.st_ino} " not in maps:
                    found[facts.st_ino] = 512 * facts.st_blocks
    except OSError:
        pass
    return found
