"""A process and its descendants: resident memory, split into anon, file and shmem.

Sources: proc(5), /proc/PID/status and /proc/PID/task/TID/children. RssAnon is the process's own data; RssFile
is mapped files, which the kernel can drop and read again; RssShmem is /dev/shm and shared maps, which it
cannot. Without /proc (macOS) psutil reports the resident memory of one process alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from memory.files.procfs import exists, kilobytes, list_folder, read_file, read_long_file, to_number

_AMOUNTS_BYTES = 300
"""Length of the part of /proc/PID/status, from VmHWM on, that has all of _AMOUNTS."""
_AMOUNTS = (b"VmRSS:", b"RssAnon:", b"RssFile:", b"RssShmem:", b"VmSwap:", b"VmHWM:", b"VmPTE:")
_PAGE_BYTES = 4096
_MAX_PROCESSES = 10_000
"""Guard against an endless walk over a garbled /proc."""
_REUSED_S = 3.5


@dataclass(frozen=True, slots=True)
class Process:
    """Memory of one process; None where the system does not report it."""

    pid: int
    name: str = ""
    threads: int | None = None
    rss_bytes: int | None = None
    anon_bytes: int | None = None
    """A page that is shared since a fork counts in each process that still shares it."""
    file_bytes: int | None = None
    shmem_bytes: int | None = None
    swap_bytes: int | None = None
    peak_rss_bytes: int | None = None
    """VmHWM: highest rss_bytes since the process began, or since its last stage began."""
    page_tables_bytes: int | None = None
    """VmPTE: what the kernel holds to map its pages, about 2 MB per GB mapped."""
    pss_bytes: int | None = None
    """Resident memory with each page divided by the number of processes that share it; see `read_pss`."""


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """Measure one process; None if it has ended, also if its parent has not waited for it yet (a zombie)."""
    status = read_file(f"{proc}/{pid}/status")
    if status is None:
        return None if exists(f"{proc}/self") else _ask_psutil(pid)
    name = status[6 : status.find(b"\n")].decode(errors="replace") if status.startswith(b"Name:\t") else ""
    at = max(status.find(b"VmHWM:"), 0) or max(status.find(b"VmRSS:"), 0)
    amounts = kilobytes(status[at : at + _AMOUNTS_BYTES], _AMOUNTS)
    if amounts[0] is None and (b"\nState:\tZ" in status or b"\nState:\tX" in status):
        return None
    at = status.find(b"\nThreads:\t", at) + len(b"\nThreads:\t")
    threads = to_number(status[at : status.find(b"\n", at)])
    return Process(pid, name, threads, *amounts)


ReadWithChildren = Callable[[int, str], "tuple[Process, list[int]] | None"]


def read_with_children(pid: int, proc: str = "/proc") -> tuple[Process, list[int]] | None:
    """Measure one process, and list the pids of its children; None as for `read_process`."""
    process = read_process(pid, proc)
    return None if process is None else (process, children_of(process, proc))


class ProcessReader:
    """Reads processes again and again: for 3.5 s, one whose /proc/PID/statm is as before is not read again.

    Its resident memory is the same then; swap, peak, page tables and children can be as old. Without this the
    supervisor takes half as much CPU time again.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes | None, float, tuple[Process, list[int]]]] = {}

    def read(self, pid: int, proc: str = "/proc") -> tuple[Process, list[int]] | None:
        """Measure a process as `read_with_children` does."""
        statm, now_s = read_file(f"{proc}/{pid}/statm"), time.monotonic()
        before, read_s, found = self._known.pop(pid, (None, 0.0, None))
        if found is None or statm is None or statm != before or now_s - read_s > _REUSED_S:
            read_s, found = now_s, read_with_children(pid, proc)
        if found is not None and len(self._known) < _MAX_PROCESSES:
            self._known[pid] = statm, read_s, found
        return found


def read_pss(pid: int, proc: str = "/proc") -> int | None:
    """Pss of a process in bytes (/proc/PID/smaps_rollup, Linux 4.14); None if it ended or is not readable.

    The kernel walks all pages: 0.3 ms, and 18 ms per GB that is mapped.
    """
    content = read_file(f"{proc}/{pid}/smaps_rollup") or b""
    return kilobytes(content.partition(b"\n")[2], (b"Pss:",))[0]


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


def read_descendants(
    main: Process, proc: str = "/proc", read: ReadWithChildren = read_with_children
) -> tuple[Process, ...]:
    """Measure all children of a process, their children and so on, of each thread."""
    seen, found, waiting = {main.pid}, [], children_of(main, proc)
    for pid in waiting:
        measured = None if pid in seen or len(seen) > _MAX_PROCESSES else read(pid, proc)
        seen.add(pid)
        if measured is not None:
            found.append(measured[0])
            waiting += measured[1]
    return tuple(found)


def children_of(process: Process, proc: str) -> list[int]:
    """Pids of the processes that any thread of a process has forked; each is listed under its thread."""
    tasks = f"{proc}/{process.pid}/task"
    threads = [str(process.pid)] if process.threads == 1 else list_folder(tasks)
    words = b"".join(_whole_list(f"{tasks}/{thread}/children") for thread in threads).split()
    return [int(word) for word in words if word.isdigit() and len(word) < 10]


def _whole_list(path: str) -> bytes:
    """Content of a list; one of up to a page comes in one read."""
    content = read_file(path) or b""
    return content if len(content) < _PAGE_BYTES - 16 else read_long_file(path) or b""


def _ask_psutil(pid: int) -> Process | None:
    try:
        import psutil

        process = psutil.Process(pid)
        return Process(pid, process.name(), process.num_threads(), process.memory_info().rss)
    except Exception:  # psutil is missing, or one of its own errors
        return None
