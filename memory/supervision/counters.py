"""The kernel's counts of its kills, in every cgroup from the run's own up, before and after.

v2 counts a kill in the victim's cgroup and in all above it (memory.events is hierarchical); v1 in the
victim's own alone (memory.oom_control), so there a whole tree of cgroups is added up.
"""

from __future__ import annotations

from typing import Any

from memory.files.cached_procfs import read_kept
from memory.files.procfs import folders_in, read_counters, read_number
from memory.measure.cgroup import Level, find_levels, limit_hits, read_membership, unseen_cgroup

_MOST_CGROUPS = 512
"""Of a tree that are looked at."""


class Counters:
    """before: by cgroup, when it was first seen. The run may move to another while it lives."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._version = 0
        self._levels: tuple[Level, ...] = ()
        self._before: dict[str, dict[str, int]] = {}
        self._unseen: str | None = None
        self._has_looked = False

    def note(self, pid: int) -> None:
        """Look up where the process is now; costs a read of one small file where that is known."""
        membership = read_membership(pid, self._root, read_kept)
        if not membership:
            return
        version, levels = find_levels(self._root, membership)
        if not levels and not self._has_looked:
            self._has_looked = True
            self._unseen = unseen_cgroup(pid, self._root)
        if levels and levels is not self._levels:
            self._version, self._levels = version, levels
            for level in levels:
                if level.folder not in self._before:
                    self._before[level.folder] = self._read(level.folder)

    def told(self, limit_at: str | None) -> dict[str, Any]:
        """counters_before and counters_after of the cgroup whose limit counts, else of the run's own: above
        it others are killed too. `parents`: each cgroup from the run's own up. cgroup_version, cgroup_path.
        unseen_cgroup: the one that counts its memory, where no file of it could be seen.
        """
        if not self._levels:
            empty: dict[str, Any] = {}
            return {
                "cgroup_version": None,
                "cgroup_path": None,
                "unseen_cgroup": self._unseen,
                "counters_before": empty,
                "counters_after": empty,
                "parents": [],
            }
        after = {level.folder: self._read(level.folder) for level in self._levels}
        counted = next((level for level in self._levels if level.path == limit_at), self._levels[0])
        return {
            "cgroup_version": self._version,
            "cgroup_path": self._levels[0].path,
            "unseen_cgroup": None,
            "counters_before": self._before.get(counted.folder, {}),
            "counters_after": after[counted.folder],
            "parents": [
                {
                    "path": level.path,
                    "limit_bytes": self._limit(level.folder),
                    "oom_kill_before": self._before.get(level.folder, {}).get("oom_kill"),
                    "oom_kill_after": after[level.folder].get("oom_kill"),
                }
                for level in self._levels
            ],
        }

    def _limit(self, folder: str) -> int | None:
        if self._version == 2:
            return read_number(f"{folder}/memory.max")
        limit = read_number(f"{folder}/memory.limit_in_bytes")
        return None if limit is None or limit >= 2**60 else limit

    def _read(self, folder: str) -> dict[str, int]:
        if self._version == 2:
            return read_counters(f"{folder}/memory.events")
        found = {}
        hits = limit_hits(folder, read_number(f"{folder}/memory.max_usage_in_bytes"), self._limit(folder))
        if hits is not None:
            found["failcnt"] = hits
        kills = _kills_below(folder)
        if kills is not None:
            found["oom_kill"] = kills
        return found


def _kills_below(folder: str) -> int | None:
    """v1: the kills in the cgroup and in all below it."""
    total, waiting, seen = None, [folder], 0
    while waiting and seen < _MOST_CGROUPS:
        current = waiting.pop()
        seen += 1
        kills = read_counters(f"{current}/memory.oom_control").get("oom_kill")
        if kills is not None:
            total = kills + (total or 0)
        waiting += folders_in(current)
    return total
