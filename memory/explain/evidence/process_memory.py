"""Memory of the main process, of its children, of others in the cgroup; and which process was killed."""

from __future__ import annotations

from dataclasses import dataclass

from experiment_utils.json_values import mapping, mappings, seconds, text, unsigned
from memory.explain.evidence.amounts import u_of
from memory.explain.evidence.rise import last_rise
from memory.explain.evidence.run_facts import RunFacts
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
        who = "the main process" if self.is_main else child
        named = ", ".join(filter(None, [self.name, f"pid {self.pid}" if self.pid else ""]))
        return f"{who} ({named})" if named else who


@dataclass(frozen=True)
class Workers:
    """Processes that the main one started, at the highest U; nothing but zeros without any."""

    count: int = 0
    own_bytes: int = 0
    """Anon that they hold themselves: not what they share with the main process since a fork."""
    smallest_bytes: int = 0
    largest_bytes: int = 0
    """The anon of one of them."""
    are_forked: bool = False
    """Some began with the anon of the main process, and share it."""
    copied_bytes: int = 0
    """Pages that were shared at the fork, and have been copied since: the cgroup holds them, no process grew.
    """
    shared_bytes: int = 0
    """Most that was shared at one time."""
    all_seen: bool = True
    """Every process of the cgroup could be read, so that no other one holds what looks copied."""


def workers(facts: RunFacts) -> Workers:
    """Measure what the children of the main process hold."""
    known = [s for s in facts.samples if s.anon_bytes is not None and s.tree_anon_bytes is not None]
    several = [s for s in known if len(s.tree) > 1]
    if not several:
        return Workers()
    first: dict[int, int] = {}
    forked: set[int] = set()
    for sample in several:
        main = sample.tree[0]
        shares = anon_of_run(sample) < 0.9 * (sample.tree_anon_bytes or 0)
        for child in sample.tree[1:]:
            if child.pid not in first:
                first[child.pid] = child.anon_bytes or 0
                if _looks_forked(child, main, shares=shares):
                    forked.add(child.pid)
    top = max(several, key=lambda sample: sample.unreclaimable_bytes or 0)
    sizes = sorted(child.anon_bytes or 0 for child in top.tree[1:])
    own = sum(
        max(0, (child.anon_bytes or 0) - (first[child.pid] if child.pid in forked else 0))
        for child in top.tree[1:]
    )
    return Workers(
        count=max(len(sizes), (top.processes or 0) - 1),
        own_bytes=min(own, max(0, anon_of_run(top) - (top.tree[0].anon_bytes or 0))),
        smallest_bytes=sizes[0],
        largest_bytes=sizes[-1],
        are_forked=bool(forked),
        copied_bytes=max(0, *(_copied(each, first, forked) for each in several)) if forked else 0,
        shared_bytes=max((s.tree_anon_bytes or 0) - anon_of_run(s) for s in several),
        all_seen=all(s.neighbours_anon_bytes is not None for s in several),
    )


def _looks_forked(child: ProcessSample, main: ProcessSample, *, shares: bool) -> bool:
    """It begins with the anon of the main process, which it shares, or has touched few libraries."""
    anon, of_main = child.anon_bytes or 0, main.anon_bytes or 0
    alike = of_main >= _FORKED_BYTES and abs(anon - of_main) <= _FROZEN_DURING_FORK * of_main
    return alike and (shares or (child.file_bytes or 0) < 0.7 * (main.file_bytes or 0))


def _copied(sample: Sample, first: dict[int, int], forked: set[int]) -> int:
    """Anon of the run that no process accounts for: neither main, nor grown forks, nor other children."""
    grown = (
        max(0, (child.anon_bytes or 0) - (first.get(child.pid, 0) if child.pid in forked else 0))
        for child in sample.tree[1:]
    )
    return anon_of_run(sample) - (sample.tree[0].anon_bytes or 0) - sum(grown)


def anon_of_run(sample: Sample) -> int:
    """The cgroup's anon less that of processes of others.

    memory.stat of cgroup v1 lags by seconds, usage does not: what of it is no cache is anon, or kernel
    memory.
    """
    in_use = (sample.usage_bytes or 0) - (sample.cache_bytes or 0) - (sample.shmem_bytes or 0)
    of_job = max(sample.anon_bytes or 0, in_use - (sample.kernel_bytes or 0) - (sample.locked_bytes or 0))
    return max(0, of_job - (sample.neighbours_anon_bytes or 0))


@dataclass(frozen=True)
class Neighbours:
    """Processes in the cgroup that are none of this run's."""

    share: float = 0.0
    """Share of the highest U; 0 if it is not known."""
    rise_bytes: int = 0
    """By how much U rose in the upper half of its last rise."""
    of_rise_bytes: int = 0
    """Part of it that neighbours have."""


def neighbours(facts: RunFacts) -> Neighbours:
    """Measure what others in the cgroup held, and whether they grew at last."""
    known = [(of_others(facts, sample), u) for sample in facts.samples if (u := u_of(sample)) is not None]
    others, top = max(known, key=lambda pair: pair[1], default=(0, 1))
    rise, of_rise = _late_rise(facts)
    return Neighbours((others or 0) / max(1, top), rise, of_rise)


def of_others(facts: RunFacts, sample: Sample) -> int | None:
    """Bytes of U that belong to processes of others; other ranks of the run are not counted."""
    found = _seen_or_left_over(sample)
    return None if found is None else max(0, found - facts.of_other_ranks(sample.time_s))


def _seen_or_left_over(sample: Sample) -> int | None:
    """Anon of neighbours by the last look at them, or at least the rest of U that is not the run's."""
    seen = unsigned(sample.neighbours_anon_bytes)
    u, own = u_of(sample), unsigned(sample.tree_anon_bytes)
    if u is None or own is None:
        return seen
    if seen is not None and sample.limit_bytes and u > HURRIES_FROM * sample.limit_bytes:
        return seen
    parts = (sample.shmem_bytes, sample.kernel_bytes, sample.locked_bytes)
    return max(0, u - own - sum(unsigned(part) or 0 for part in parts), seen or 0)


def _late_rise(facts: RunFacts) -> tuple[int, int]:
    found = last_rise([point for point in facts.u_series if point[0] >= (facts.limit_changed_s or 0.0)])
    if found is None:
        return 0, 0
    known = [
        (u, others)
        for sample in facts.samples
        if found.begin_s <= sample.time_s <= found.end_s
        and (u := u_of(sample)) is not None
        and (others := of_others(facts, sample)) is not None
    ]
    upper = [pair for pair in known if pair[0] >= found.from_bytes + found.bytes / 2]
    if len(upper) < 2 or upper[-1][0] <= upper[0][0]:
        return 0, 0
    return upper[-1][0] - upper[0][0], max(0, upper[-1][1] - upper[0][1])


def victim_of(facts: RunFacts) -> Victim | None:
    """The process that was killed: as the supervisor saw it, the main one if it ended by SIGKILL, else a
    child.
    """
    named = mapping(facts.outcome.get("victim"))
    main = unsigned(facts.outcome.get("pid")) or unsigned(facts.ring_facts.get("pid"))
    if named:
        return Victim(named.get("is_main") is True, unsigned(named.get("pid")), text(named.get("name")))
    if text(facts.outcome.get("signal")) == "SIGKILL":
        return Victim(True, main, _name_of(facts, main))
    if facts.exit_code is None and facts.signal is None:
        return Victim(True, main, _name_of(facts, main)) if facts.vanished and facts.group_kills else None
    lost = [c for c in mappings(facts.outcome.get("children_lost")) if unsigned(c.get("last_anon_bytes"))]
    at = facts.kill_time_s
    near = [child for child in lost if at is None or abs((seconds(child.get("time_s")) or 0) - at) < 5]
    if not near:
        return Victim(False) if facts.kills else None
    largest = max(near, key=lambda child: unsigned(child.get("last_anon_bytes")) or 0)
    return Victim(False, unsigned(largest.get("pid")), text(largest.get("name")))


def _name_of(facts: RunFacts, pid: int | None) -> str:
    for sample in reversed(facts.samples):
        for process in sample.tree:
            if process.pid == pid:
                return process.name
    return ""


def known_pids(facts: RunFacts) -> set[int]:
    """Processes of the run, as far as they were seen."""
    found = [facts.outcome.get("pid"), facts.ring_facts.get("pid")]
    found += [mapping(facts.outcome.get("victim")).get("pid")]
    found += [child.get("pid") for child in mappings(facts.outcome.get("children_lost"))]
    found += [process.pid for sample in facts.samples for process in sample.tree]
    return {pid for value in found if (pid := unsigned(value))}


def known_names(facts: RunFacts) -> set[str]:
    """Names of the run's processes; in a container the kernel says another pid, and the same name."""
    found = [text(child.get("name")) for child in mappings(facts.outcome.get("children_lost"))]
    found += [text(mapping(facts.outcome.get("victim")).get("name"))]
    found += [process.name for sample in facts.samples for process in sample.tree]
    return set(found) - {""}
