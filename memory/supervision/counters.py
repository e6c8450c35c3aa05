"""The kernel's counts of its kills, in each cgroup from the run's own up, before and after the run.

v2 counts a kill in the victim's cgroup and in all above it (memory.events is hierarchical); v1 in the
victim's own alone (memory.oom_control), so that a whole tree of cgroups is summed.
"""

from __future__ import annotations

from typing import Any

from memory.files.procfs import folders_below, read_counters, read_number
from memory.measure.cgroup import Level, levels_of, limit_hits, read_limit, unseen_cgroup
from memory.measure.limits import MOST_CGROUPS


class KillCounters:
    """Counts of each cgroup when it was first seen; a run can move to another one."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._version = 0
        self._levels: tuple[Level, ...] = ()
        self._before: dict[str, dict[str, int]] = {}
        self._unseen: str | None = None
        self._has_looked = False

    def note(self, pid: int) -> None:
        """Look up the cgroups of a process, and count those that are new."""
        version, levels = levels_of(pid, self._root)
        if not levels and not self._has_looked:
            self._has_looked = True
            self._unseen = unseen_cgroup(pid, self._root)
        if levels and levels is not self._levels:
            self._version, self._levels = version, levels
            for level in levels:
                if level.folder not in self._before:
                    self._before[level.folder] = self._read(level.folder)

    def facts(self, limit_at: str | None) -> dict[str, Any]:
        """For outcome.json: the counts now and before, by cgroup.

        `counters_before` and `counters_after` are of the cgroup `limit_at`, else of the run's own: above it
        processes of others are killed too. `parents`: each cgroup from the run's own up. `unseen_cgroup`: the
        one that counts its memory, if no file of it is visible.
        """
        after = {level.folder: self._read(level.folder) for level in self._levels}
        counted = next((level for level in self._levels if level.path == limit_at), None)
        folder = counted.folder if counted else self._levels[0].folder if self._levels else ""
        return {
            "cgroup_version": self._version or None,
            "cgroup_path": self._levels[0].path if self._levels else None,
            "unseen_cgroup": None if self._levels else self._unseen,
            "counters_before": self._before.get(folder, {}),
            "counters_after": after.get(folder, {}),
            "parents": [
                {
                    "path": level.path,
                    "limit_bytes": read_limit(level.folder, self._version),
                    "oom_kill_before": self._before[level.folder].get("oom_kill"),
                    "oom_kill_after": after[level.folder].get("oom_kill"),
                }
                for level in self._levels
            ],
        }

    def _read(self, folder: str) -> dict[str, int]:
        if self._version == 2:
            return read_counters(f"{folder}/memory.events")
        found = {}
        hits = limit_hits(folder, read_number(f"{folder}/memory.max_usage_in_bytes"), read_limit(folder, 1))
        if hits is not None:
            found["failcnt"] = hits
        below = (read_counters(f"{one}/memory.oom_control") for one in folders_below(folder, MOST_CGROUPS))
        kills = [counts["oom_kill"] for counts in below if "oom_kill" in counts]
        if kills:
            found["oom_kill"] = sum(kills)
        return found
