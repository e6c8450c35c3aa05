"""Amounts and counters of the last attempt, out of samples, stage records and outcome.json."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from experiment_utils.json_values import increase, mapping, mappings, seconds, text, unsigned
from memory.evidence import Evidence
from memory.explain.attempts import Newest, newest
from memory.samples import Sample

NEAR = 0.85
"""Of its limit: U above it is near."""
MET = 0.95
_AT_ONE_TIME_S = 5.0
"""Supervisors of several ranks sample each second, if they are let."""


@dataclass
class Measured:
    """evidence: of a run."""

    evidence: Evidence

    @cached_property
    def newest(self) -> Newest:
        """What of the evidence is of the newest attempt."""
        return newest(self.evidence)

    @property
    def attempt(self) -> int:
        """The newest that left a trace."""
        return self.newest.number

    @property
    def outcome(self) -> dict[str, Any]:
        """outcome.json, if it is of this attempt."""
        return self.newest.outcome

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        ring = self.newest.ring
        return () if ring is None else tuple(s for s in ring.samples if seconds(s.time_s) is not None)

    def of_other_ranks(self, time_s: float) -> int:
        """Bytes of anon that the other ranks of the run on this node held then."""
        total = 0
        for samples in self._other_ranks:
            at = bisect_left(samples, time_s, key=lambda sample: sample.time_s)
            near = min(samples[max(0, at - 1) : at + 1], key=lambda sample: abs(sample.time_s - time_s))
            if abs(near.time_s - time_s) <= _AT_ONE_TIME_S:
                total += unsigned(near.tree_anon_bytes) or 0
        return total

    @cached_property
    def _other_ranks(self) -> list[list[Sample]]:
        """By time, of each of this node."""
        host = text(self.ring_facts.get("host"))
        rings = [ring for ring in self.evidence.rings_of_other_ranks if ring.facts.get("host") == host]
        return [sorted(ring.samples, key=lambda sample: sample.time_s) for ring in rings if ring.samples]

    @cached_property
    def ring_facts(self) -> dict[str, Any]:
        ring = self.newest.ring
        return mapping(ring.facts if ring else None)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Of all ranks, by time."""
        found = [record for records in self.newest.records.values() for record in records]
        return sorted(found, key=lambda record: seconds(record.get("time_s")) or 0.0)

    def series(self, name: str) -> list[tuple[float, int]]:
        """(time_s, value) of that field of the samples, where it is known."""
        found = [(sample.time_s, unsigned(getattr(sample, name))) for sample in self.samples]
        return [(time_s, value) for time_s, value in found if value is not None]

    @cached_property
    def u_series(self) -> list[tuple[float, int]]:
        """U over time: of the samples, and of stage records beside them, or alone."""
        found = [(sample.time_s, u) for sample in self.samples if (u := u_of(sample)) is not None]
        for record in self.records:
            snapshot = mapping(record.get("snapshot"))
            u, at = unsigned(snapshot.get("unreclaimable_bytes")), seconds(record.get("time_s"))
            same = snapshot.get("limit_at") == (self.limit_at or snapshot.get("limit_at"))
            if u is not None and at is not None and same:
                found.append((at, u))
        return sorted(found)

    @cached_property
    def limits(self) -> list[tuple[float, int]]:
        """(since when, limit): one, or as many as were in force one after the other.

        When the process is gone, so is its cgroup: what was looked at last may have been the whole machine.
        """
        points = [(time_s, value) for time_s, value in self.series("limit_bytes") if value]
        if len(points) > 1 and points[-1][1] > points[-2][1]:
            points.pop()
        return points[:1] + [after for before, after in pairwise(points) if before[1] != after[1]]

    @property
    def limit_changed_s(self) -> float | None:
        """When it was raised, lowered or left for another cgroup's, the last time."""
        return self.limits[-1][0] if len(self.limits) > 1 else None

    @cached_property
    def _limit(self) -> tuple[int | None, str]:
        """The smallest limit that anybody saw of those in force at the end, and where it stands."""
        since_s = self.limit_changed_s or 0.0
        records = [
            mapping(record.get("snapshot"))
            for record in self.records[-1:]
            if (seconds(record.get("time_s")) or 0.0) >= since_s
        ]
        levels = mappings(self.outcome.get("parents"))
        sampled = self.limits[-1][1] if self.limits else None
        is_host = sampled is not None and sampled == unsigned(self.ring_facts.get("host_total_bytes"))
        told = [
            *((record.get("limit_bytes"), record.get("limit_at")) for record in records),
            *((level.get("limit_bytes"), level.get("path")) for level in levels),
            (self.outcome.get("limit_bytes"), self.outcome.get("limit_at")),
            (sampled, "host" if is_host else self.ring_facts.get("limit_at")),
        ]
        known = [(limit, text(where)) for amount, where in told if (limit := unsigned(amount))]
        smallest = min((limit for limit, _ in known), default=None)
        # of equal limits the highest: more processes count against it
        names = [where for limit, where in known if limit == smallest and where]
        return smallest, min(names, key=len, default="")

    @property
    def limit_bytes(self) -> int | None:
        return self._limit[0]

    @property
    def limit_at(self) -> str:
        """A cgroup's path, or `host`."""
        return self._limit[1]

    @cached_property
    def peak_bytes(self) -> int | None:
        """The highest U that was seen."""
        told = unsigned(self.outcome.get("peak_unreclaimable_bytes"))
        found = [value for _, value in self.u_series] + ([told] if told is not None else [])
        return max(found, default=None)

    @cached_property
    def peak_limit_bytes(self) -> int | None:
        """The limit as U was highest."""
        highest = max(self._under_limits, default=None)
        return self.limit_bytes if highest is None else highest[1]

    @cached_property
    def peak_share(self) -> float | None:
        """The most that U was of the limit that stood at that moment."""
        shares = [u / limit for u, limit in self._under_limits]
        if self.peak_bytes is not None and self.limit_bytes and not shares:
            shares.append(self.peak_bytes / self.limit_bytes)
        return max(shares, default=None)

    @property
    def _under_limits(self) -> list[tuple[int, int]]:
        """(U, the limit) of each sample, where that changed."""
        if self.limit_changed_s is None:
            return []
        known = [(u_of(sample), unsigned(sample.limit_bytes)) for sample in self.samples]
        return [(u, limit) for u, limit in known if u is not None and limit]

    @property
    def unseen_cgroup(self) -> str:
        """The one that counts its memory, where nothing could be seen of it: its limit is not known, and
        what stands for it is the machine's memory. Empty otherwise.
        """
        told = text(self.outcome.get("unseen_cgroup")) or text(self.ring_facts.get("unseen_cgroup"))
        return told if self.limit_at == "host" else ""

    @cached_property
    def near_limit(self) -> bool | None:
        """None: not known; so also far from all that the machine has, under a limit that nobody saw."""
        is_near = None if self.peak_share is None else self.peak_share >= NEAR
        return None if self.unseen_cgroup and not is_near else is_near

    @property
    def met_limit(self) -> bool:
        """It was seen near, or the kernel counted a kill: on a busy machine the last sample is an old one."""
        return bool(self.near_limit or self.kills)

    @cached_property
    def host_bytes(self) -> int | None:
        for record in self.records:
            total = unsigned(mapping(mapping(record.get("snapshot")).get("host")).get("total_bytes"))
            if total:
                return total
        return self.limit_bytes if self.limit_at == "host" else None

    @cached_property
    def least_available_bytes(self) -> int | None:
        """The least that the machine still had, in the last minute."""
        points = self.series("host_available_bytes")
        return (
            min((value for at, value in points if at >= points[-1][0] - 60), default=None) if points else None
        )

    def counted(self, name: str, sampled: str | None = None) -> int | None:
        """How often since the run began: from outcome.json, else between the first and the last sample."""
        before, after = (mapping(self.outcome.get(f"counters_{when}")) for when in ("before", "after"))
        told = increase(before.get(name), after.get(name))
        if told is not None or sampled is None:
            return told
        points = self.series(sampled)
        return increase(points[0][1], points[-1][1]) if len(points) > 1 else None

    @cached_property
    def kills(self) -> int | None:
        """Kills for memory in the run's own cgroup, by the kernel, while it lived.

        Not those in the cgroup whose limit counts, where that is another: there its neighbours count as well.
        """
        own = text(self.outcome.get("cgroup_path"))
        for level in mappings(self.outcome.get("parents")):
            rose = increase(level.get("oom_kill_before"), level.get("oom_kill_after"))
            if own and level.get("path") == own and rose is not None:
                return rose
        told = self.counted("oom_kill", "oom_kills")
        if told is None:
            first, last = (self._recorded_kills(records) for records in (self.records, self.records[::-1]))
            return increase(first, last)
        return told

    @staticmethod
    def _recorded_kills(records: list[dict[str, Any]]) -> int | None:
        for record in records:
            job = mapping(mapping(record.get("snapshot")).get("job"))
            if (found := unsigned(mapping(job.get("events")).get("oom_kill"))) is not None:
                return found
        return None

    @cached_property
    def kill_time_s(self) -> float | None:
        """When the counter of kills rose, of samples."""
        points = self.series("oom_kills")
        return next((at for (_, before), (at, after) in pairwise(points) if after > before), None)

    @cached_property
    def lived_on_s(self) -> float | None:
        """How long the main process was seen alive after the last kill for memory; None where it was not.

        A count that rose so long before the end is of another process.
        """
        points = self.series("oom_kills")
        if not self.kills or len(points) < 2:
            return None
        told = seconds(self.outcome.get("last_oom_kill_s"))
        after = unsigned(mapping(self.outcome.get("counters_after")).get("oom_kill"))
        if told is not None:
            at = told
        elif points[-1][1] == after:
            rises = [later for (_, before), (later, count) in pairwise(points) if count > before]
            at = rises[-1] if rises else points[0][0]
        else:
            return None
        looks = [time_s for time_s, _ in points if time_s > at]
        return looks[-1] - at if len(looks) >= 2 and looks[-1] - at >= 1.0 else None

    @cached_property
    def group_kills(self) -> int | None:
        return self.counted("oom_group_kill", "oom_group_kills")

    @cached_property
    def limit_hits(self) -> int | None:
        """How often an allocation met the limit: `max` of v2, failcnt of v1. No sign of a kill by itself.

        Where the supervisor counted at the end and could not tell this (`memory.limit_hits`), nor do samples:
        they are of before, when it had not yet been met.
        """
        after = mapping(self.outcome.get("counters_after"))
        if after and not {"max", "failcnt"} & after.keys():
            return None
        found = [self.counted(name) for name in ("max", "failcnt")] + [self.counted("max", "limit_hits")]
        return max((value for value in found if value is not None), default=None)

    @property
    def met_another_limit(self) -> bool:
        """Killed for memory, while the limit that is known was never met: one below it was."""
        return bool(self.kills) and self.limit_hits == 0 and (self.peak_share or 0.0) < MET

    @cached_property
    def parents(self) -> list[tuple[str, int | None, int]]:
        """(path, limit, kills) of each cgroup above the run's own in which a kill was counted."""
        found, own = [], text(self.outcome.get("cgroup_path"))
        for parent in mappings(self.outcome.get("parents")):
            rose = increase(parent.get("oom_kill_before"), parent.get("oom_kill_after"))
            if rose and parent.get("path") != own:
                found.append((text(parent.get("path")), unsigned(parent.get("limit_bytes")), rose))
        return found


def u_of(sample: Sample) -> int | None:
    """U of a sample: no less than what its largest process alone holds.

    On cgroup v1 the kernel brings memory.stat up to date every two seconds; /proc/PID/status is always.
    """
    u = unsigned(sample.unreclaimable_bytes)
    largest = max((unsigned(process.anon_bytes) or 0 for process in sample.tree), default=0)
    return None if u is None else max(u, largest + (unsigned(sample.shmem_bytes) or 0))
