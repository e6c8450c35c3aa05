"""A process and its descendants: resident memory, split into anon, file and shmem.

Sources: proc(5), /proc/PID/status and /proc/PID/task/TID/children. RssAnon is the process's own
data; RssFile is mapped files, which the kernel can drop and read again; RssShmem is /dev/shm and
shared maps, which it cannot. psutil answers where /proc does not (it has no such split).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memory.files.cached_procfs import read_kept
from memory.files.procfs import (
    exists,
    kilobytes,
    kilobytes_after,
    list_folder,
    read_file,
    read_long_file,
    to_number,
)
from memory.measure.cgroup import Cgroup, read_cgroup

_AMOUNTS_BYTES = 300
"""Of /proc/PID/status, from VmHWM on: VmRSS, the split and VmSwap stand within them."""
_AMOUNTS = (b"VmRSS:", b"RssAnon:", b"RssFile:", b"RssShmem:", b"VmSwap:", b"VmHWM:", b"VmPTE:")
_LINES = [
    b"VmHWM:", b"VmRSS:", b"RssAnon:", b"RssFile:", b"RssShmem:", b"VmData:", b"VmStk:", b"VmExe:", b"VmLib:",
    b"VmPTE:", b"VmSwap:",
]  # fmt: skip
"""As Linux writes them from 4.5 on; other orders are read too, in twice the time."""
_PAGE_BYTES = 4096
_MAX_PROCESSES = 10_000
"""Guard against a walk without end over a garbled /proc."""


@dataclass(frozen=True, slots=True)
class Process:
    """Memory of one process, in bytes; None where the system does not tell.

    anon_bytes counts a page that is shared since a fork in every process that still shares it.
    peak_rss_bytes is the kernel's VmHWM, the high-water mark of rss_bytes since the process began; of another
    process that measures stages itself, since the last of them began. page_tables_bytes: what the kernel
    holds to map its pages, VmPTE, about 2 MB per GB mapped. pss_bytes: resident memory with each shared page
    divided by how many processes share it; only where it was asked for, since the kernel walks all pages.
    """

    pid: int
    name: str = ""
    threads: int | None = None
    rss_bytes: int | None = None
    anon_bytes: int | None = None
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    swap_bytes: int | None = None
    peak_rss_bytes: int | None = None
    page_tables_bytes: int | None = None
    pss_bytes: int | None = None


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """Measure one process; None if it has ended, also if its parent has not waited for it yet (a zombie)."""
    status = read_kept(f"{proc}/{pid}/status")
    if status is None:
        return None if exists(f"{proc}/self") else _ask_psutil(pid)
    name = status[6 : status.find(b"\n")].decode(errors="replace") if status.startswith(b"Name:\t") else ""
    at = max(status.find(b"VmHWM:"), 0) or max(status.find(b"VmRSS:"), 0)
    amounts = _amounts(status[at : at + _AMOUNTS_BYTES])
    if amounts[0] is None and (b"\nState:\tZ" in status or b"\nState:\tX" in status):
        return None
    at = status.find(b"\nThreads:\t", at) + len(b"\nThreads:\t")
    threads = to_number(status[at : status.find(b"\n", at)])
    return Process(pid, name, threads, *amounts)


def _amounts(lines: bytes) -> list[int | None]:
    """Those of _AMOUNTS, in bytes."""
    words = lines.split()
    if words[: 3 * len(_LINES) : 3] != _LINES:
        return kilobytes(lines, _AMOUNTS)
    try:
        mark, rss, anon, file, shmem, _, _, _, _, tables, swap = map(int, words[1 : 3 * len(_LINES) : 3])
    except ValueError:
        return kilobytes(lines, _AMOUNTS)
    return [1024 * amount for amount in (rss, anon, file, shmem, swap, mark, tables)]


def read_pss(pid: int, proc: str = "/proc") -> int | None:
    """Pss of /proc/PID/smaps_rollup (Linux 4.14), in bytes: 0.3 ms, and 18 ms per GB that is mapped.

    None where the process is gone, or another user's.
    """
    words = (read_file(f"{proc}/{pid}/smaps_rollup") or b"").split()
    return kilobytes_after(words, b"Pss:")


def parent_of(pid: int, proc: str = "/proc") -> int | None:
    """Pid of the parent process (field 4 of /proc/PID/stat); None if the process has ended."""
    words = _stat(pid, proc)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None


def started_at(pid: int, proc: str = "/proc") -> int | None:
    """Start time in clock ticks after boot (field 22 of /proc/PID/stat); None if the process has ended.

    Together with the pid it identifies one process.
    """
    words = _stat(pid, proc)
    if len(words) < 20 or words[0] in (b"Z", b"X") or not words[19].isdigit():
        return None
    return int(words[19])


def name_of(pid: int, proc: str = "/proc") -> str | None:
    """Name of the program, at most 15 letters (/proc/PID/comm); None if the process has ended."""
    name = read_file(f"{proc}/{pid}/comm")
    return name.decode(errors="replace").rstrip("\n") or None if name else None


def _stat(pid: int, proc: str) -> list[bytes]:
    """Fields of /proc/PID/stat from the state on: the name before it can contain anything."""
    return (read_file(f"{proc}/{pid}/stat") or b"").rpartition(b")")[2].split()


class Reads:
    """How processes, and what is told of their job, are read; a subclass may read less often."""

    def process(self, pid: int, proc: str) -> Process | None:
        """As `read_process`."""
        return read_process(pid, proc)

    def children(self, process: Process, proc: str) -> list[int]:
        """As `children_of`."""
        return children_of(process, proc)

    def cgroup(self, pid: int, root: str, host_bytes: int | None) -> Cgroup | None:
        """As `read_cgroup`."""
        return read_cgroup(pid, root, host_bytes)

    def beside(self, pid: int, path: str, ours: set[int], root: str) -> int | None:
        """Anon of other processes in a cgroup above `pid`, where that is looked for."""
        return None


_ALWAYS = Reads()


def read_descendants(main: Process, proc: str = "/proc", reads: Reads = _ALWAYS) -> tuple[Process, ...]:
    """Measure all children of `main`, their children and so on, of every thread."""
    forked = reads.children(main, proc)
    if not forked and not exists(f"{proc}/{main.pid}/task/{main.pid}/children"):
        # no /proc, or a kernel without CONFIG_PROC_CHILDREN
        asked = (read_process(pid, proc) for pid in _ask_psutil_for_descendants(main.pid))
        return tuple(process for process in asked if process is not None)
    seen, found, waiting = {main.pid}, [], [forked]
    while waiting and len(seen) < _MAX_PROCESSES:
        for pid in waiting.pop():
            child = None if pid in seen else reads.process(pid, proc)
            seen.add(pid)
            if child is not None:
                found.append(child)
                waiting.append(reads.children(child, proc))
    return tuple(found)


def children_of(process: Process, proc: str) -> list[int]:
    """Numbers of the processes that any of its threads has forked."""
    tasks = f"{proc}/{process.pid}/task"
    threads = [str(process.pid)]
    if process.threads != 1:  # a child stands under the thread that forked it
        threads = list_folder(tasks)
    words = b"".join(_list_of(f"{tasks}/{thread}/children") for thread in threads).split()
    return [int(word) for word in words if word.isdigit() and len(word) < 10]


def _list_of(path: str) -> bytes:
    """A list of up to a page comes in one read."""
    content = read_kept(path) or b""
    return content if len(content) < _PAGE_BYTES - 16 else read_long_file(path) or b""


def _psutil() -> Any:
    """psutil, or None: this package also works where only the standard library is at hand."""
    try:
        import psutil
    except ImportError:
        return None
    return psutil


def _ask_psutil(pid: int) -> Process | None:
    psutil = _psutil()
    if psutil is None:
        return None
    try:
        process = psutil.Process(pid)
        return Process(pid, process.name(), process.num_threads(), process.memory_info().rss)
    except (psutil.Error, OSError):
        return None


def _ask_psutil_for_descendants(pid: int) -> list[int]:
    psutil = _psutil()
    if psutil is None:
        return []
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except (psutil.Error, OSError):
        return []
