"""Who was killed, who else was there, and what of that contradicts itself."""

from __future__ import annotations

from experiment_utils.json_values import mapping, mappings, seconds, text, unsigned
from memory.explain.facts import Facts
from memory.explain.finding import Victim
from memory.explain.measured import u_of
from memory.explain.telling import cache_at_the_kill
from memory.explain.testimony import of_a_killed_worker
from memory.samples import Sample
from memory.supervision.pace import HURRIES_FROM

_SHORTLY_S = 3.0
_HELD_BYTES = 1 << 20
"""Less than this no interpreter holds."""


def victim_of(facts: Facts) -> Victim | None:
    """Who was killed: as the supervisor saw it; the main process where it ended by SIGKILL; else a child."""
    told = mapping(facts.outcome.get("victim"))
    main = unsigned(facts.outcome.get("pid")) or unsigned(facts.ring_facts.get("pid"))
    if told:
        return Victim(told.get("is_main") is True, unsigned(told.get("pid")), text(told.get("name")))
    if text(facts.outcome.get("signal")) == "SIGKILL":
        return Victim(True, main, _name_of(facts, main))
    if facts.exit_code is None and facts.signal is None:
        # of one that vanished, the supervisor that cannot tell any more may have been the victim
        return Victim(True, main, _name_of(facts, main)) if facts.vanished and facts.group_kills else None
    lost = [
        child
        for child in mappings(facts.outcome.get("children_lost"))
        if unsigned(child.get("last_anon_bytes"))
    ]
    at = facts.kill_time_s
    near = [child for child in lost if at is None or abs((seconds(child.get("time_s")) or 0) - at) < 5]
    if not near:
        return Victim(False) if facts.kills else None
    largest = max(near, key=lambda child: unsigned(child.get("last_anon_bytes")) or 0)
    return Victim(False, unsigned(largest.get("pid")), text(largest.get("name")))


def how_surely_ours(facts: Facts, victim: Victim | None) -> str:
    """A process beside this run, in the same cgroup, may have been the one that was killed."""
    if mapping(facts.outcome.get("victim")) or of_a_killed_worker(facts):
        return "certain"
    if facts.signal == "SIGKILL":
        # told of by a shell, long after the count rose: it may have been another one
        return "certain" if facts.signal_is_certain or facts.lived_on_s is None else "likely"
    if victim is not None and victim.pid is not None and facts.kill_time_s is not None:
        return "likely"  # it vanished as the counter rose
    crowded = facts.limit_at in ("", "host") or neighbours_share(facts) > 0.5 or neighbour_went(facts)
    return "possible" if crowded else "likely"


def neighbour_went(facts: Facts) -> bool:
    """Others held memory shortly before the kill, and much less right after: one of them was killed, most
    likely. One that fills the job between two samples is seen by no share of U.
    """
    at = facts.kill_time_s
    if at is None:
        return False
    seen = [(s.time_s, s.beside_anon_bytes) for s in facts.samples if s.beside_anon_bytes is not None]
    before = [held for time_s, held in seen if at - _SHORTLY_S <= time_s < at]
    after = [held for time_s, held in seen if at <= time_s <= at + _SHORTLY_S]
    held = max(before, default=0)
    fell = held - min(after, default=held)
    return fell >= _HELD_BYTES and fell >= held / 4


def neighbours_share(facts: Facts) -> float:
    """Of U at its peak, the share that no process of this run holds; 0 where that is not known."""
    known = [(of_others(facts, sample), u) for sample in facts.samples if (u := u_of(sample))]
    others, top = max(known, key=lambda pair: pair[1], default=(0, 1))
    return (others or 0) / top


def of_others(facts: Facts, sample: Sample) -> int | None:
    """Of U, at least so much belongs to processes beside this run, of which other ranks are a part."""
    found = _beside(sample)
    return None if found is None else max(0, found - facts.of_other_ranks(sample.time_s))


def _beside(sample: Sample) -> int | None:
    """As they were looked at; while that is done seldom, at least what of U is not the run's, where a child
    counts that has just begun.
    """
    seen = unsigned(sample.beside_anon_bytes)
    u, own = u_of(sample), unsigned(sample.tree_anon_bytes)
    if u is None or own is None:
        return seen
    if seen is not None and sample.limit_bytes and u > HURRIES_FROM * sample.limit_bytes:
        return seen
    parts = (sample.shmem_bytes, sample.kernel_bytes, sample.locked_bytes)
    return max(0, u - own - sum(unsigned(part) or 0 for part in parts), seen or 0)


def doubts(facts: Facts, verdict: str) -> tuple[str, ...]:
    """What of the evidence contradicts itself, or the verdict."""
    found = []
    told = mapping(facts.outcome.get("victim"))
    if told.get("is_main") is True and facts.signal != "SIGKILL" and facts.outcome:
        found.append(
            "outcome.json names the main process as the victim, yet "
            f"{facts.how_it_ended or 'how it ended is not told'}"
        )
    if facts.exit_code == 0 and text(facts.outcome.get("signal")):
        found.append(f"outcome.json says both exit code 0 and {facts.signal}")
    if facts.state == "done" and (facts.signal or (facts.exit_code or 0) > 0):
        found.append(f"status.json says done, yet {facts.how_it_ended}")
    far = facts.peak_share is not None and facts.peak_share < 0.5 and not cache_at_the_kill(facts)
    if verdict == "oom_cgroup" and facts.kills and far:
        found.append(
            f"the highest U seen was {100 * (facts.peak_share or 0):.0f}% of the limit: it rose faster "
            "than it was sampled, or "
            "another cgroup's limit was met"
        )
    return tuple(found)


def _name_of(facts: Facts, pid: int | None) -> str:
    for sample in reversed(facts.samples):
        for process in sample.tree:
            if process.pid == pid:
                return process.name
    return ""
