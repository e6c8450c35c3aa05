"""How a run ended, as far as its files tell, in words and as marks in its plots. Why: `memory.explain`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from experiment_utils.json_values import finite, integer, mappings
from memory.explain.evidence.amounts import Amounts
from memory.explain.evidence.run_facts import RunFacts
from memory.record.evidence import Evidence
from memory.report.chart import Mark
from memory.report.history import Attempt, Track


@dataclass(frozen=True)
class Ending:
    """what: `killed by SIGKILL`. where: the innermost stage that did not end, `train > forward`, or empty.

    is_bad: not as it should. at_s: of a bad end, seconds since zero. oom_kills: of the kernel in its cgroup
    while it ran; the run may have gone on without what was killed.
    """

    what: str
    is_bad: bool = False
    at_s: float | None = None
    where: str = ""
    oom_kills: int = 0
    is_oom: bool = False

    @property
    def words(self) -> str:
        """In one line."""
        told = self.what + (f" in {self.where}" if self.where else "")
        if not self.oom_kills or self.is_oom:
            return told
        return f"{told}, with {self.oom_kills} OOM kill{'s' * (self.oom_kills != 1)} in its cgroup"


def ending(evidence: Evidence, attempt: Attempt, *, is_last: bool = True) -> Ending:
    """Of an attempt; what is known of an earlier one is what its records tell."""
    found = _ending(evidence, attempt, is_last)
    kills = sum(count for _, count in _kills(evidence, attempt.main)) if is_last else 0
    if not kills:
        return found
    outcome = Amounts(evidence).outcome
    victim = outcome.get("victim")
    is_main = isinstance(victim, dict) and victim.get("is_main") is True
    if is_main and outcome.get("signal") == "SIGKILL":
        found = replace(found, what="killed by the OOM killer", is_oom=True)
    return replace(found, is_bad=True, oom_kills=kills)


def _ending(evidence: Evidence, attempt: Attempt, is_last: bool) -> Ending:
    track = attempt.main
    lost = [span for span in track.spans if span.end_s is None and span.thread is None]
    innermost = max(lost, key=lambda span: span.depth, default=None)
    where = "" if innermost is None else " > ".join(innermost.path)
    if not is_last:
        return Ending("lost", True, where=where) if where else Ending("ended")
    facts = RunFacts(evidence)
    outcome, state = facts.outcome, facts.status.get("state")
    ended_s = finite(outcome.get("ended_s"))
    at_s = None if ended_s is None else track.at(ended_s)
    signal, code = outcome.get("signal"), integer(outcome.get("exit_code"))
    if isinstance(signal, str):
        return Ending(f"killed by {signal}", True, _death(track, at_s), where)
    if code is not None:
        if code == 0:
            return Ending("ended")
        return Ending(f"ended with exit code {code}", True, at_s, where)
    if outcome.get("by") == "lost":
        return Ending("lost, nobody saw how", True, _death(track, at_s), where)
    if facts.is_running:
        return Ending("running", where=where)
    if isinstance(state, str) and state not in ("done", "running"):
        return Ending(state, state in ("failed", "oom"), where=where)
    if where:
        return Ending("no end recorded: running, or killed", where=where)
    is_told = state == "done" or (track.rows and not facts.samples)  # who samples it would have told
    return Ending("ended" if is_told else "no end recorded")


def marks(evidence: Evidence, track: Track, end: Ending, *, is_last: bool = True) -> list[Mark]:
    """Kills and the end, in order."""
    found: list[Mark] = []
    outcome = Amounts(evidence).outcome
    if is_last:
        kills = _kills(evidence, track)[-8:]
        if end.is_oom:
            kills.pop()  # that is its end
        found += [
            Mark(at_s, "OOM kill" if count == 1 else f"{count} OOM kills", is_bad=True)
            for at_s, count in kills
        ]
        found += [
            mark
            for child in mappings(outcome.get("children_lost"))[:8]
            if (mark := _lost_child(child, track)) is not None
        ]
        for told in mappings(outcome.get("signals_passed_on"))[:4]:
            at_s = _at(track, told.get("time_s"))
            if at_s is not None:
                found.append(Mark(at_s, f"{told.get('signal')} arrived"))
    if end.is_bad and end.at_s is not None:
        found.append(Mark(end.at_s, end.what, is_bad=True))
    return sorted(found, key=lambda mark: (mark.at, mark.label))


def _kills(evidence: Evidence, track: Track) -> list[tuple[float, int]]:
    """(seconds, how many) of the kernel's kills in the run's own cgroup: as many as `explain` counts.

    Samples say when. They may count others too, and fewer: what they do not tell of stands at the end.
    """
    left = Amounts(evidence).kills or 0
    counts = [
        sample for sample in (evidence.ring.samples if evidence.ring else ()) if sample.oom_kills is not None
    ]
    found: list[tuple[float, int]] = []
    for before, after in reversed(list(pairwise(counts))):
        rose = min(left, (after.oom_kills or 0) - (before.oom_kills or 0))
        at_s = track.at(after.time_s)
        if rose > 0 and at_s is not None:
            found.append((at_s, rose))
            left -= rose
    return found[::-1] + [(track.lasted_s, left)] * (left > 0)


def _lost_child(child: dict[str, Any], track: Track) -> Mark | None:
    at_s = _at(track, child.get("time_s"))
    return None if at_s is None else Mark(at_s, f"{child.get('name')} ({child.get('pid')}) vanished")


def _death(track: Track, at_s: float | None) -> float:
    """Where no clock tells, the end of what was seen."""
    return track.lasted_s if at_s is None else max(0.0, at_s)


def _at(track: Track, time_s: Any) -> float | None:
    known = finite(time_s)
    return None if known is None else track.at(known)
