"""Amounts and counters of the newest attempt, out of samples, stage records and outcome.json."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from experiment_utils.json_values import increase, mapping, mappings, seconds, text, unsigned
from memory.explain.evidence.attempts import Newest, newest
from memory.record.evidence import Evidence
from memory.record.samples import Sample

NEAR = 0.85
"""Share of the limit from which U is near it."""
_MET = 0.95
_TOGETHER_S = 5.0
"""Supervisors of several ranks sample each second, if the machine allows."""


@dataclass
class Amounts:
    """Numbers of one run; None where a file lacks them."""

    evidence: Evidence

    @cached_property
    def newest(self) -> Newest:
        """The part of the evidence that is of the newest attempt."""
        return newest(self.evidence)

    @property
    def attempt(self) -> int:
        return self.newest.number

    @property
    def outcome(self) -> dict[str, Any]:
        """outcome.json, if it is of this attempt."""
        return self.newest.outcome

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        ring = self.newest.ring
        return () if ring is None else tuple(s for s in ring.samples if seconds(s.time_s) is not None)

    @cached_property
    def ring_facts(self) -> dict[str, Any]:
        return mapping(self.newest.ring.facts if self.newest.ring else None)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Stage records of all ranks, by time."""
        found = [record for records in self.newest.records.values() for record in records]
        return sorted(found, key=lambda record: seconds(record.get("time_s")) or 0.0)

    def series(self, name: str) -> list[tuple[float, int]]:
        """(time_s, value) of a field of the samples, where it is known."""
        found = ((sample.time_s, unsigned(getattr(sample, name))) for sample in self.samples)
        return [(time_s, value) for time_s, value in found if value is not None]

    def of_other_ranks(self, time_s: float) -> int:
        """Anon bytes that the other ranks of the run held on this node at that time."""
        total = 0
        for samples in self._other_ranks:
            at = bisect_left(samples, time_s, key=lambda sample: sample.time_s)
            near = min(samples[max(0, at - 1) : at + 1], key=lambda sample: abs(sample.time_s - time_s))
            if abs(near.time_s - time_s) <= _TOGETHER_S:
                total += unsigned(near.tree_anon_bytes) or 0
        return total

    @cached_property
    def _other_ranks(self) -> list[list[Sample]]:
        host = text(self.ring_facts.get("host"))
        rings = [ring for ring in self.evidence.rings_of_other_ranks if ring.facts.get("host") == host]
        return [sorted(ring.samples, key=lambda sample: sample.time_s) for ring in rings if ring.samples]

    # U and its limit

    @cached_property
    def u_series(self) -> list[tuple[float, int]]:
        """U over time, by samples and stage records."""
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
        """(since when, limit), in order; one unless it changed.

        The last look may be of the whole machine: the cgroup goes with its process.
        """
        points = [(time_s, value) for time_s, value in self.series("limit_bytes") if value]
        if len(points) > 1 and points[-1][1] > points[-2][1]:
            points.pop()
        return points[:1] + [after for before, after in pairwise(points) if before[1] != after[1]]

    @property
    def limit_changed_s(self) -> float | None:
        return self.limits[-1][0] if len(self.limits) > 1 else None

    @cached_property
    def _limit(self) -> tuple[int | None, str]:
        """The smallest limit that was in force at the end, and the highest cgroup that has it."""
        since_s = self.limit_changed_s or 0.0
        records = [
            mapping(record.get("snapshot"))
            for record in self.records[-1:]
            if (seconds(record.get("time_s")) or 0.0) >= since_s
        ]
        sampled = self.limits[-1][1] if self.limits else None
        is_host = sampled is not None and sampled == unsigned(self.ring_facts.get("host_total_bytes"))
        found = [
            *((record.get("limit_bytes"), record.get("limit_at")) for record in records),
            *(
                (level.get("limit_bytes"), level.get("path"))
                for level in mappings(self.outcome.get("parents"))
            ),
            (self.outcome.get("limit_bytes"), self.outcome.get("limit_at")),
            (sampled, "host" if is_host else self.ring_facts.get("limit_at")),
        ]
        known = [(limit, text(where)) for amount, where in found if (limit := unsigned(amount))]
        smallest = min((limit for limit, _ in known), default=None)
        return smallest, min((at for limit, at in known if limit == smallest and at), key=len, default="")

    @property
    def limit_bytes(self) -> int | None:
        return self._limit[0]

    @property
    def limit_at(self) -> str:
        """Path of a cgroup, or `host`."""
        return self._limit[1]

    @property
    def unseen_cgroup(self) -> str:
        """The cgroup that counts the run's memory, if no file of it could be read."""
        name = text(self.outcome.get("unseen_cgroup")) or text(self.ring_facts.get("unseen_cgroup"))
        return name if self.limit_at == "host" else ""

    @cached_property
    def peak_bytes(self) -> int | None:
        """The highest U."""
        known = unsigned(self.outcome.get("peak_unreclaimable_bytes"))
        return max(
            [value for _, value in self.u_series] + ([known] if known is not None else []), default=None
        )

    @property
    def _under_limits(self) -> list[tuple[int, int]]:
        """(U, limit) of each sample, if the limit changed."""
        if self.limit_changed_s is None:
            return []
        known = [(u_of(sample), unsigned(sample.limit_bytes)) for sample in self.samples]
        return [(u, limit) for u, limit in known if u is not None and limit]

    @cached_property
    def peak_limit_bytes(self) -> int | None:
        """The limit when U was highest."""
        return max(self._under_limits, default=(0, self.limit_bytes))[1]

    @cached_property
    def peak_share(self) -> float | None:
        """Highest share of the limit of that moment."""
        shares = [u / limit for u, limit in self._under_limits]
        if self.peak_bytes is not None and self.limit_bytes and not shares:
            shares.append(self.peak_bytes / self.limit_bytes)
        return max(shares, default=None)

    @cached_property
    def near_limit(self) -> bool | None:
        """Whether U came near its limit; kernel memory that was given back without a kill does not count."""
        is_near = None if self.peak_share is None else self.peak_share >= NEAR
        if is_near and not self.kills and self.limit_bytes and self._reclaimed_kernel_bytes:
            is_near = (self.peak_bytes or 0) - self._reclaimed_kernel_bytes >= NEAR * self.limit_bytes
        return None if self.unseen_cgroup and not is_near else is_near

    @cached_property
    def _reclaimed_kernel_bytes(self) -> int:
        """Kernel memory that went in one look, such as the cache of file names (dentries)."""
        kernel = [value for _, value in self.series("kernel_bytes")]
        return max((before - after for before, after in pairwise(kernel)), default=0)

    @cached_property
    def host_bytes(self) -> int | None:
        for record in self.records:
            total = unsigned(mapping(mapping(record.get("snapshot")).get("host")).get("total_bytes"))
            if total:
                return total
        return self.limit_bytes if self.limit_at == "host" else None

    @cached_property
    def least_available_bytes(self) -> int | None:
        """The least that the machine had available in the last minute."""
        points = self.series("host_available_bytes")
        return min((value for at, value in points if at >= points[-1][0] - 60), default=None)

    # Counters

    def counted(self, name: str, sampled: str | None = None) -> int | None:
        """Increase of a counter while the run lived, by outcome.json, else by samples."""
        before, after = (mapping(self.outcome.get(f"counters_{when}")) for when in ("before", "after"))
        found = increase(before.get(name), after.get(name))
        points = self.series(sampled) if found is None and sampled is not None else []
        return increase(points[0][1], points[-1][1]) if len(points) > 1 else found

    @cached_property
    def kills(self) -> int | None:
        """Kills for memory in the run's own cgroup; those in a cgroup above count neighbours as well."""
        own = text(self.outcome.get("cgroup_path"))
        for level in mappings(self.outcome.get("parents")):
            rose = increase(level.get("oom_kill_before"), level.get("oom_kill_after"))
            if own and level.get("path") == own and rose is not None:
                return rose
        found = self.counted("oom_kill", "oom_kills")
        if found is not None:
            return found
        jobs = (mapping(mapping(record.get("snapshot")).get("job")) for record in self.records)
        known = [
            count
            for job in jobs
            if (count := unsigned(mapping(job.get("events")).get("oom_kill"))) is not None
        ]
        return increase(known[0], known[-1]) if known else None

    @cached_property
    def kill_time_s(self) -> float | None:
        """Time of the first look at which the counter of kills had risen."""
        points = self.series("oom_kills")
        return next((at for (_, before), (at, after) in pairwise(points) if after > before), None)

    @cached_property
    def lived_on_s(self) -> float | None:
        """Seconds that the main process was seen alive after the last kill; None if it was not."""
        points = self.series("oom_kills")
        if not self.kills or len(points) < 2:
            return None
        at = seconds(self.outcome.get("last_oom_kill_s"))
        if at is None:
            if points[-1][1] != unsigned(mapping(self.outcome.get("counters_after")).get("oom_kill")):
                return None
            rises = [later for (_, before), (later, count) in pairwise(points) if count > before]
            at = rises[-1] if rises else points[0][0]
        looks = [time_s for time_s, _ in points if time_s > at]
        return looks[-1] - at if len(looks) >= 2 and looks[-1] - at >= 1.0 else None

    @cached_property
    def group_kills(self) -> int | None:
        return self.counted("oom_group_kill", "oom_group_kills")

    @cached_property
    def limit_hits(self) -> int | None:
        """Count of allocations that met the limit: `max` of v2, failcnt of v1. A hit is no kill."""
        after = mapping(self.outcome.get("counters_after"))
        if after and not {"max", "failcnt"} & after.keys():
            return None
        found = [self.counted(name) for name in ("max", "failcnt")] + [self.counted("max", "limit_hits")]
        return max((value for value in found if value is not None), default=None)

    @property
    def met_another_limit(self) -> bool:
        """The kernel killed, and the known limit was never met: one below it was."""
        return bool(self.kills) and self.limit_hits == 0 and (self.peak_share or 0.0) < _MET

    @cached_property
    def parents(self) -> list[tuple[str, int | None, int]]:
        """(path, limit, kills) of each cgroup above the run's own that counted kills."""
        own = text(self.outcome.get("cgroup_path"))
        found = (
            (text(level.get("path")), unsigned(level.get("limit_bytes")),
             increase(level.get("oom_kill_before"), level.get("oom_kill_after")) or 0)
            for level in mappings(self.outcome.get("parents"))
        )  # fmt: skip
        return [entry for entry in found if entry[2] and entry[0] != own]


def u_of(sample: Sample) -> int | None:
    """U of a sample, at least what its largest process holds: memory.stat of cgroup v1 lags by seconds."""
    u = unsigned(sample.unreclaimable_bytes)
    largest = max((unsigned(process.anon_bytes) or 0 for process in sample.tree), default=0)
    return None if u is None else max(u, largest + (unsigned(sample.shmem_bytes) or 0))
