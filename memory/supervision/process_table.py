"""Who was there, who is gone, and who of them the kernel killed."""

from __future__ import annotations

import os
import re
from collections import deque
from dataclasses import dataclass
from typing import Any

from memory.measure.process import Process, parent_of

_KEPT = 32
_KILLED = rb"([^\n;]*\bKilled process (\d+) \(([^)\n]*)\))"
_OUTLIVED_LOOKS, _OUTLIVED_S = 2, 1.0
"""Whoever is seen alive so often, for so long, after the count rose is not the one that it counts."""


@dataclass(slots=True)
class Known:
    """A descendant that was seen. anon_bytes: when it was last seen; looks: how often."""

    pid: int
    name: str
    parent_pid: int | None
    anon_bytes: int | None
    looks: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """One that was seen to be gone at time_s; killed: while the kernel's count of its kills rose."""

    known: Known
    time_s: float
    killed: bool


class ProcessTable:
    """lost: the last of the descendants that vanished while the main process lived. alive: by pid.

    seen_kills: by how much the kernel's count rose between looks; last_kill_s: at the look that saw it last.
    """

    def __init__(self, main_pid: int) -> None:
        self.main_pid = main_pid
        self.alive: dict[int, Known] = {}
        self.lost: deque[Lost] = deque(maxlen=_KEPT)
        self.seen_kills = 0
        self.last_kill_s: float | None = None
        self._kills: int | None = None
        self._looks_since = 0
        self._looked_s = 0.0

    def take(self, processes: tuple[Process, ...], oom_kills: int | None, time_s: float) -> None:
        """Compare with whom was seen before."""
        rose = oom_kills is not None and self._kills is not None and oom_kills > self._kills
        if rose:
            self.seen_kills += (oom_kills or 0) - (self._kills or 0)
            self.last_kill_s, self._looks_since = time_s, 0
        elif self.last_kill_s is not None:
            self._looks_since += 1
        self._kills, self._looked_s = self._kills if oom_kills is None else oom_kills, time_s
        seen = {one.pid for one in processes}
        for pid in [pid for pid in self.alive if pid not in seen]:
            known = self.alive.pop(pid)
            if pid != self.main_pid:
                self.lost.append(Lost(known, time_s, rose))
        for one in processes:
            known = self.alive.get(one.pid) or Known(one.pid, one.name, parent_of(one.pid), None)
            known.name, known.anon_bytes = one.name, one.anon_bytes
            known.looks += 1
            self.alive[one.pid] = known

    def outlived(self, rose: int) -> bool:
        """Whether the main process lived on after each of the kills that were counted over the run."""
        if self.last_kill_s is None or rose > self.seen_kills:
            return False
        return self._looks_since >= _OUTLIVED_LOOKS and self._looked_s - self.last_kill_s >= _OUTLIVED_S

    def victim(self, *, main_was_killed: bool, rose: int | None, kernel_log: bytes) -> dict[str, Any] | None:
        """Whom the kernel killed, if that is known: by its log, or as the only one gone when its count rose.

        main_was_killed: the main process ended by SIGKILL. rose: by how much the count did, over the run;
        None where there is no count, and the log alone can tell: `said` is its line. It also tells of a kill
        in a cgroup that was made below and is gone, with its count.
        """
        everyone = {known.pid: known for known in (*(lost.known for lost in self.lost), *self.alive.values())}
        said: list[tuple[bool, Known, bytes]] = []
        for line, number, name in re.findall(_KILLED, kernel_log):
            # its process ids are the machine's, which within a container are others
            known = everyone.get(int(number))
            if known is not None and known.name == name.decode(errors="replace"):
                said.append((main_was_killed and known.pid == self.main_pid, known, line))
        if said:
            # the last of several; the main one, by which the run ended, goes before its children
            _, known, line = max(reversed(said), key=lambda one: one[0])
            return self._told(known) | {"said": line.decode(errors="replace").strip()[-300:]}
        if not rose:
            return None
        killed = [lost.known for lost in self.lost if lost.killed]
        main_was_killed = main_was_killed and not self.outlived(rose)
        if main_was_killed and not killed:
            main = self.alive.get(self.main_pid) or Known(self.main_pid, "", None, None)
            return self._told(main)
        return self._told(killed[0]) if len(killed) == 1 and not main_was_killed else None

    def _told(self, known: Known) -> dict[str, Any]:
        return {"pid": known.pid, "name": known.name, "is_main": known.pid == self.main_pid}


class KernelLog:
    """What the kernel says from now on, where it may be read (/dev/kmsg, mostly root's)."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError:
            self._descriptor = -1

    def read(self) -> bytes:
        """All since then."""
        records: list[bytes] = []
        while self._descriptor >= 0 and len(records) < 5000:
            try:
                record = os.read(self._descriptor, 8192)
            except BrokenPipeError:  # the kernel has overwritten some: the next read goes on
                continue
            except OSError:
                break
            if not record:
                break
            records.append(record)
        return b"".join(records)
