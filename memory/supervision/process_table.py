"""Descendants of a run: those that were seen, those that vanished, and which of them the kernel killed."""

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
"""A process seen alive this often and this long after the count of kills rose is not the one killed."""


@dataclass(slots=True)
class SeenProcess:
    """A process of the run as last seen."""

    pid: int
    name: str
    parent_pid: int | None
    anon_bytes: int | None
    looks: int = 0
    """Number of samples that saw it."""


@dataclass(frozen=True, slots=True)
class LostProcess:
    """A process that had vanished at time_s."""

    known: SeenProcess
    time_s: float
    killed: bool
    """The kernel's count of its kills rose meanwhile."""


class ProcessTable:
    """Processes of a run over time.

    alive: by pid. lost: the last descendants that vanished while the main process lived. seen_kills: by how
    much the kernel's count of kills rose between samples. last_kill_s: time of the sample that saw it last.
    """

    def __init__(self, main_pid: int) -> None:
        self.main_pid = main_pid
        self.alive: dict[int, SeenProcess] = {}
        self.lost: deque[LostProcess] = deque(maxlen=_KEPT)
        self.seen_kills = 0
        self.last_kill_s: float | None = None
        self._kills: int | None = None
        self._looks_since = 0
        self._looked_s = 0.0

    def take(self, processes: tuple[Process, ...], oom_kills: int | None, time_s: float) -> None:
        """Add a sample: the processes that live, and the kernel's count of kills (None: unknown)."""
        rose = self._note_kills(oom_kills, time_s)
        self._looked_s = time_s
        seen = {process.pid for process in processes}
        for pid in [pid for pid in self.alive if pid not in seen and pid != self.main_pid]:
            self.lost.append(LostProcess(self.alive.pop(pid), time_s, rose))
        for process in processes:
            pid = process.pid
            known = self.alive.get(pid) or SeenProcess(pid, process.name, parent_of(pid), None)
            known.name = process.name
            known.anon_bytes = process.anon_bytes
            known.looks += 1
            self.alive[pid] = known

    def _note_kills(self, oom_kills: int | None, time_s: float) -> bool:
        """Whether the count rose since the last sample."""
        rise = 0 if oom_kills is None or self._kills is None else max(0, oom_kills - self._kills)
        self.seen_kills += rise
        self._looks_since = 0 if rise else self._looks_since + 1
        if rise:
            self.last_kill_s = time_s
        if oom_kills is not None:
            self._kills = oom_kills
        return rise > 0

    def outlived(self, rise: int) -> bool:
        """Whether the main process lived on after each of the `rise` kills that were counted over the run."""
        if self.last_kill_s is None or rise > self.seen_kills:
            return False
        return self._looks_since >= _OUTLIVED_LOOKS and self._looked_s - self.last_kill_s >= _OUTLIVED_S

    def victim(self, *, main_was_killed: bool, rose: int | None, kernel_log: bytes) -> dict[str, Any] | None:
        """The process that the kernel killed: by its log, or as the only one that vanished as its count rose.

        Args:
            main_was_killed: the main process ended by SIGKILL.
            rose: by how much the count rose over the run; None: there is no count.
            kernel_log: records of the run's time. They include a kill in a removed cgroup below this one.

        Returns:
            pid, name, is_main, and `said`, the line of the log; None if unknown.
        """
        logged = self._logged_victim(main_was_killed, kernel_log)
        if logged is not None or not rose:
            return logged
        killed = [lost.known for lost in self.lost if lost.killed]
        main_was_killed = main_was_killed and not self.outlived(rose)
        if main_was_killed and not killed:
            return self._facts(self.alive.get(self.main_pid) or SeenProcess(self.main_pid, "", None, None))
        return self._facts(killed[0]) if len(killed) == 1 and not main_was_killed else None

    def _logged_victim(self, main_was_killed: bool, kernel_log: bytes) -> dict[str, Any] | None:
        """The last process of the run that the log names; the main one first, if it was killed."""
        known = {one.pid: one for one in (*(lost.known for lost in self.lost), *self.alive.values())}
        named = [
            (process, line)
            for line, pid, name in re.findall(_KILLED, kernel_log)
            # pids of the log are the machine's, which within a container are others
            if (process := known.get(int(pid))) and process.name == name.decode(errors="replace")
        ]
        if not named:
            return None
        of_main = [one for one in named if main_was_killed and one[0].pid == self.main_pid]
        process, line = (of_main or named)[-1]
        return self._facts(process) | {"said": line.decode(errors="replace").strip()[-300:]}

    def _facts(self, known: SeenProcess) -> dict[str, Any]:
        return {"pid": known.pid, "name": known.name, "is_main": known.pid == self.main_pid}


class KernelLog:
    """Records of /dev/kmsg from now on, if it may be read (mostly by root)."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError:
            self._descriptor = -1

    def read(self) -> bytes:
        """All records since it was opened."""
        records: list[bytes] = []
        while self._descriptor >= 0 and len(records) < 5000:
            try:
                record = os.read(self._descriptor, 8192)
            except BrokenPipeError:  # the kernel has overwritten some: the next read returns later ones
                continue
            except OSError:
                break
            if not record:
                break
            records.append(record)
        return b"".join(records)

    def close(self) -> None:
        """Close the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
