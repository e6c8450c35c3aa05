"""What is read less often while nothing makes haste: a sample costs most by the files that it reads.

A process's statm is a third of the work of its status, and tells whether anything but its anon memory has
changed (proc(5): resident less shared is RssAnon, shared is RssFile and RssShmem). New children are looked
for seldom. A machine of whose memory, and whose /dev/shm, more than half is to be had does not run out of it
within some seconds.
"""

from __future__ import annotations

import os

from memory.files.cached_procfs import read_kept
from memory.measure.cgroup import Cgroup, read_cgroup
from memory.measure.host import Host, read_host
from memory.measure.process import Process, Reads, children_of, read_process
from memory.supervision.neighbours import anon_beside

LOOKS_IN_CALM = 4
"""Of so many looks, a second apart, one asks a process for its children."""
LOOKS_OF_THE_REST = 8
"""Of so many one reads all that is told of a process, and of the machine."""
_LOOKS_AFTER_A_KILL = 3
"""See who of the others is gone: one that was killed may still be ending at the first."""
_MOST_KEPT = 1000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MUCH = 0.5
"""Of the machine's memory, and of /dev/shm, is to be had."""


class CalmReads(Reads):
    """Of one job, from look to look. In calm a process's name, swap, peak and threads, its new children, how
    often the cgroup met its limit, and what the machine has while that is much, may be some looks old;
    resident, anon, file and shmem never are.
    """

    def __init__(self) -> None:
        self._looks = 0
        self._is_calm = False
        self._children: dict[int, list[int]] = {}
        self._before: dict[int, Process] = {}
        self._seen: dict[int, Process] = {}
        self._statm: dict[int, bytes] = {}
        self._host: Host | None = None
        self._job: Cgroup | None = None
        self._beside: tuple[str, int | None] = "", None
        self._kills: int | None = None
        self._after_a_kill = 0

    def begin(self, *, is_calm: bool) -> None:
        """A look begins. is_calm: the one before found nothing that makes haste."""
        self._looks += 1
        self._is_calm = is_calm
        self._before, self._seen = self._seen, {}
        if not is_calm or len(self._children) > _MOST_KEPT:
            self._children.clear()
            self._before.clear()
            self._statm.clear()

    def children(self, process: Process, proc: str) -> list[int]:
        """As `children_of`; in calm the list may be some looks old."""
        known = self._children.get(process.pid)
        if known is not None and not self.is_turn_of(process.pid):
            return known
        self._children[process.pid] = found = children_of(process, proc)
        return found

    def process(self, pid: int, proc: str) -> Process | None:
        """As `read_process`; in calm some facts may be some looks old."""
        known = self._before.get(pid)
        found = None if known is None or self.is_turn_of(pid, LOOKS_OF_THE_REST) else self._brief(known, proc)
        if found is None:
            self._statm.pop(pid, None)
            found = read_process(pid, proc)
        if found is not None and self._is_calm:
            self._seen[pid] = found
        return found

    def host(self) -> Host:
        """As `read_host` with /dev/shm; in calm, while much is to be had, it may be some looks old."""
        known = self._host
        if known is not None and not self.is_turn_of(0, LOOKS_OF_THE_REST) and _has_much(known):
            return known
        self._host = read_host("/proc", "/dev/shm")
        return self._host

    def cgroup(self, pid: int, root: str, host_bytes: int | None) -> Cgroup | None:
        """As `read_cgroup`; in calm its peak, and how often it met the limit, may be some looks old."""
        known = None if self.is_turn_of(0, LOOKS_OF_THE_REST) else self._job
        self._job = read_cgroup(pid, root, host_bytes, known)
        kills = None if self._job is None else (self._job.events or {}).get("oom_kill")
        rose = kills is not None and self._kills is not None and kills > self._kills
        self._after_a_kill = _LOOKS_AFTER_A_KILL if rose else max(0, self._after_a_kill - 1)
        self._kills = self._kills if kills is None else kills
        return self._job

    def beside(self, pid: int, path: str, ours: set[int], root: str) -> int | None:
        """As `anon_beside`; in calm it may be some looks old, but not where a kill was just counted."""
        if self._after_a_kill or self.is_turn_of(0, LOOKS_OF_THE_REST) or path != self._beside[0]:
            self._beside = path, anon_beside(pid, path, ours, root, helpers=frozenset({os.getpid()}))
        return self._beside[1]

    def is_turn_of(self, number: int, of: int = LOOKS_IN_CALM) -> bool:
        """Whether what has this number is to be read anew: always in haste, else at one look of so many."""
        return not self._is_calm or (self._looks + number) % of == 0

    def _brief(self, known: Process, proc: str) -> Process | None:
        """Of statm; None where that does not tell all: its shared part has changed, or it has ended."""
        told = read_kept(f"{proc}/{known.pid}/statm") or b""
        if told == self._statm.get(known.pid):  # most do nothing most of the time
            return known
        words = told.split(None, 3)
        if len(words) < 4 or known.file_bytes is None or known.shmem_bytes is None:
            return None
        try:
            rss, shared = _PAGE_BYTES * int(words[1]), _PAGE_BYTES * int(words[2])
        except ValueError:
            return None
        if rss == 0 or shared != known.file_bytes + known.shmem_bytes:
            return None
        self._statm[known.pid] = told
        return Process(
            known.pid, known.name, known.threads, rss, rss - shared, known.file_bytes, known.shmem_bytes,
            known.swap_bytes, None if known.peak_rss_bytes is None else max(known.peak_rss_bytes, rss),
            known.page_tables_bytes,
        )  # fmt: skip


def _has_much(host: Host) -> bool:
    available, used = host.available_bytes or 0, host.dev_shm_used_bytes or 0
    return available > _MUCH * (host.total_bytes or 0) and used <= _MUCH * (host.dev_shm_total_bytes or used)
