"""Memory of the main process, of its children, of others in the cgroup; and which process was killed."""

from __future__ import annotations

from dataclasses import dataclass

from experiment_utils.json_values import mapping, mappings, seconds, text, unsigned
from memory.explain.evidence.growth import Rise
from memory.explain.evidence.run_facts import RunFacts, u_of
from memory.record.samples import ProcessSample, Sample
from memory.supervision.sampling_interval import HURRIES_FROM

_FORKED_BYTES = 24 << 20
"""Anon of a process from which a fork differs from a spawn: a spawned interpreter begins with 7 MB."""
_FROZEN_DURING_FORK = 0.25


@dataclass(frozen=True)
class Victim:
    """The process that was killed."""

    is_main: bool
    """The run's own process, not a descendant of it."""
    pid: int | None = None
    name: str = ""

    def __str__(self) -> str:
        child = "a child process" if self.pid or self.name else "another process than the main one"
        named = ", ".join(filter(None, [self.name, f"pid {self.pid}" if self.pid else ""]))
        return ("the main process" if self.is_main else child) + f" ({named})" * bool(named)


@dataclass(frozen=True)
class Workers:
    """Processes that the main one started, at the highest U; nothing but zeros without any."""

    count: int = 0
    own_bytes: int = 0
    """Anon that they hold themselves: not what they share with the main process since a fork."""
    smallest_bytes: int = 0
    largest_bytes: int = 0
    """The anon of one of them."""
    copied_bytes: int = 0
    """Pages that were shared at a fork, and were copied since: the cgroup holds them, no process grew."""
    all_seen: bool = True
    """Every process of the cgroup could be read, so that no other one holds what looks copied."""


def workers(facts: RunFacts) -> Workers:
    """Measure what the children of the main process hold."""
    known = [s for s in facts.samples if s.anon_bytes is not None and s.tree_anon_bytes is not None]
    several = [s for s in known if len(s.tree) > 1]
    if not several:
        return Workers()
    shared: dict[int, int] = {}
    for sample in several:
        shares = _anon_of_run(sample) < 0.9 * (sample.tree_anon_bytes or 0)
        for child in sample.tree[1:]:
            is_fork = _looks_forked(child, sample.tree[0], shares=shares)
            shared.setdefault(child.pid, (child.anon_bytes or 0) * is_fork)

    def grown(sample: Sample) -> int:
        return sum(max(0, (child.anon_bytes or 0) - shared[child.pid]) for child in sample.tree[1:])

    top = max(several, key=lambda sample: sample.unreclaimable_bytes or 0)
    sizes = [child.anon_bytes or 0 for child in top.tree[1:]]
    rest = [_anon_of_run(sample) - (sample.tree[0].anon_bytes or 0) - grown(sample) for sample in several]
    return Workers(
        count=max(len(sizes), (top.processes or 0) - 1),
        own_bytes=min(grown(top), max(0, _anon_of_run(top) - (top.tree[0].anon_bytes or 0))),
        smallest_bytes=min(sizes),
        largest_bytes=max(sizes),
        copied_bytes=max(0, *rest) if any(shared.values()) else 0,
        all_seen=all(s.neighbours_anon_bytes is not None for s in several),
    )


def _looks_forked(child: ProcessSample, main: ProcessSample, *, shares: bool) -> bool:
    """It begins with the anon of the main process, which it shares, or has touched few libraries."""
    anon, of_main = child.anon_bytes or 0, main.anon_bytes or 0
    alike = of_main >= _FORKED_BYTES and abs(anon - of_main) <= _FROZEN_DURING_FORK * of_main
    return alike and (shares or (child.file_bytes or 0) < 0.7 * (main.file_bytes or 0))


def _anon_of_run(sample: Sample) -> int:
    """The cgroup's anon less that of processes of others.

    memory.stat of cgroup v1 lags by seconds, usage does not: usage without cache is anon or the kernel's.
    """
    in_use = (sample.usage_bytes or 0) - (sample.cache_bytes or 0) - (sample.shmem_bytes or 0)
    of_job = max(sample.anon_bytes or 0, in_use - (sample.kernel_bytes or 0) - (sample.locked_bytes or 0))
    return max(0, of_job - (sample.neighbours_anon_bytes or 0))


@dataclass(frozen=True)
class Neighbours:
    """Processes in the cgroup that are none of this run's."""

    held_bytes: int = 0
    share: float = 0.0
    """Share of the highest U; 0 if it is not known."""
    rise_bytes: int = 0
    """By how much U rose in the upper half of its last rise."""
    of_rise_bytes: int = 0
    """Part of it that neighbours have."""


def neighbours(facts: RunFacts, rise: Rise | None) -> Neighbours:
    """Measure what others in the cgroup held, and whether they grew in the last rise of U."""
    looks = [(s.time_s, u, _of_others(facts, s)) for s in facts.samples if (u := u_of(s)) is not None]
    known = [(time_s, u, others) for time_s, u, others in looks if others is not None]
    if not known or rise is None:
        return Neighbours()
    _, top, held = max(known, key=lambda look: look[1])
    half = rise.from_bytes + rise.bytes / 2
    upper = [(u, others) for time_s, u, others in known if rise.begin_s <= time_s <= rise.end_s and u >= half]
    grown = [max(0, upper[-1][n] - upper[0][n]) for n in (0, 1)] if upper else [0, 0]
    return Neighbours(held, held / max(1, top), *grown)


def _of_others(facts: RunFacts, sample: Sample) -> int | None:
    """Bytes of U that belong to processes of others; other ranks of the run are not counted.

    Far from the limit neighbours are looked at seldom: there it is at least the rest of U.
    """
    found, u, own = sample.neighbours_anon_bytes, u_of(sample), unsigned(sample.tree_anon_bytes)
    is_fresh = found is not None and sample.limit_bytes and (u or 0) > HURRIES_FROM * sample.limit_bytes
    if u is not None and own is not None and not is_fresh:
        parts = (sample.shmem_bytes, sample.kernel_bytes, sample.locked_bytes)
        found = max(0, u - own - sum(unsigned(part) or 0 for part in parts), found or 0)
    return None if found is None else max(0, found - facts.of_other_ranks(sample.time_s))


def victim_of(facts: RunFacts) -> Victim | None:
    """The process that was killed: as the supervisor saw it, the main one after SIGKILL, else a child."""
    named, main = mapping(facts.outcome.get("victim")), unsigned(facts.recorded("pid"))
    if named:
        return Victim(named.get("is_main") is True, unsigned(named.get("pid")), text(named.get("name")))
    names = (p.name for sample in reversed(facts.samples) for p in sample.tree if p.pid == main)
    all_killed = facts.vanished and facts.counted("oom_group_kill", "oom_group_kills")
    if text(facts.outcome.get("signal")) == "SIGKILL" or all_killed:
        return Victim(True, main, next(names, ""))
    if not facts.kills or (facts.exit_code is None and not facts.signal):
        return None
    at, lost = facts.kill_time_s, mappings(facts.outcome.get("children_lost"))
    near = [c for c in lost if at is None or abs((seconds(c.get("time_s")) or 0) - at) < 5]
    largest = max(near, key=lambda child: unsigned(child.get("last_anon_bytes")) or 0, default={})
    return Victim(False, unsigned(largest.get("pid")), text(largest.get("name")))


def known_processes(facts: RunFacts) -> tuple[set[int], set[str]]:
    """Pids and names of the run's processes, as far as they were seen.

    In a container the kernel reports another pid, and the same name.
    """
    listed = [mapping(facts.outcome.get("victim")), *mappings(facts.outcome.get("children_lost"))]
    found = [(facts.recorded("pid"), ""), *((each.get("pid"), text(each.get("name"))) for each in listed)]
    found += [(process.pid, process.name) for sample in facts.samples for process in sample.tree]
    return {pid for value, _ in found if (pid := unsigned(value))}, {name for _, name in found if name}
