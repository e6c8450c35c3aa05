"""The end of an attempt as its files show it, and the kills before it. The cause: `memory.explain`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

from experiment_utils.json_values import finite, integer, mapping, mappings
from memory.explain.evidence.run_facts import RunFacts
from memory.record.evidence import Evidence
from memory.report.data.history import Attempt, History, Track

_KILLS, _SIGNALS = 8, 4
"""Events of each kind that a figure shows."""


@dataclass(frozen=True)
class Ending:
    """The end of an attempt."""

    what: str
    """`killed by SIGKILL`."""
    is_bad: bool = False
    at_s: float | None = None
    """Seconds since the attempt began, for a bad end."""
    where: str = ""
    """The innermost stage that did not end, `train > forward`."""
    oom_kills: int = 0
    """Kills by the kernel in the run's cgroup while it ran. The run can outlive them."""
    is_oom: bool = False

    @property
    def words(self) -> str:
        """The end in one line."""
        line = self.what + (f" in {self.where}" if self.where else "")
        if not self.oom_kills or self.is_oom:
            return line
        return f"{line}, with {self.oom_kills} OOM kill{'s' * (self.oom_kills != 1)} in its cgroup"


class Event(NamedTuple):
    """Something that happened to the run."""

    at_s: float
    label: str
    is_bad: bool = False


def ending(history: History, attempt: Attempt) -> Ending:
    """The end of an attempt. Only stage records describe the end of an earlier one."""
    is_last = attempt is history.last
    found = _last_ending(history.evidence, attempt) if is_last else _earlier_ending(attempt)
    kills = sum(count for _, count in _kills(history.evidence, attempt.main)) if is_last else 0
    if not kills:
        return found
    outcome = RunFacts(history.evidence).outcome
    if mapping(outcome.get("victim")).get("is_main") is True and outcome.get("signal") == "SIGKILL":
        found = replace(found, what="killed by the OOM killer", is_oom=True)
    return replace(found, is_bad=True, oom_kills=kills)


def _open_stage(track: Track) -> str:
    lost = [span for span in track.spans if span.end_s is None and span.thread is None]
    return " > ".join(max(lost, key=lambda span: span.depth).path) if lost else ""


def _earlier_ending(attempt: Attempt) -> Ending:
    where = _open_stage(attempt.main)
    return Ending("lost", True, where=where) if where else Ending("ended")


def _last_ending(evidence: Evidence, attempt: Attempt) -> Ending:
    track, facts, where = attempt.main, RunFacts(evidence), _open_stage(attempt.main)
    outcome, state = facts.outcome, facts.status.get("state")
    at_s = _at(track, outcome.get("ended_s"))
    died_s = track.lasted_s if at_s is None else max(0.0, at_s)
    signal, code = outcome.get("signal"), integer(outcome.get("exit_code"))
    if isinstance(signal, str):
        return Ending(f"killed by {signal}", True, died_s, where)
    if code is not None:
        return Ending(f"ended with exit code {code}", True, at_s, where) if code else Ending("ended")
    if outcome.get("by") == "lost":
        return Ending("lost, no process saw its end", True, died_s, where)
    if facts.is_running:
        return Ending("running", where=where)
    if isinstance(state, str) and state not in ("done", "running"):
        return Ending(state, state in ("failed", "oom"), where=where)
    if where:
        return Ending("no end recorded: running, or killed", where=where)
    is_known = state == "done" or (track.rows and not facts.samples)  # a supervisor would have noted it
    return Ending("ended" if is_known else "no end recorded")


def events(history: History, attempt: Attempt) -> list[Event]:
    """Kills, signals and a bad end, by time."""
    found: list[Event] = []
    track, end = attempt.main, ending(history, attempt)
    if attempt is history.last:
        outcome = RunFacts(history.evidence).outcome
        kills = _kills(history.evidence, track)[-_KILLS:]
        if end.is_oom:
            kills.pop()  # that is its end
        found += [Event(at_s, "OOM kill" if n == 1 else f"{n} OOM kills", True) for at_s, n in kills]
        for sent in mappings(outcome.get("signals_passed_on"))[:_SIGNALS]:
            at_s = _at(track, sent.get("time_s"))
            found += [] if at_s is None else [Event(at_s, f"{sent.get('signal')} arrived")]
    if end.is_bad and end.at_s is not None:
        found.append(Event(end.at_s, end.what, True))
    return sorted(found)


def _kills(evidence: Evidence, track: Track) -> list[tuple[float, int]]:
    """(seconds, count) of the kernel's kills in the run's own cgroup, in all as many as `explain` counts.

    Samples say when. Their counter can include other cgroups, or miss the last kills, which then count at the
    end.
    """
    left = RunFacts(evidence).kills or 0
    counts = [s for s in (evidence.ring.samples if evidence.ring else ()) if s.oom_kills is not None]
    found: list[tuple[float, int]] = []
    for before, after in reversed(list(pairwise(counts))):
        rose = min(left, (after.oom_kills or 0) - (before.oom_kills or 0))
        at_s = track.at(after.time_s)
        if rose > 0 and at_s is not None:
            found.append((at_s, rose))
            left -= rose
    return found[::-1] + [(track.lasted_s, left)] * (left > 0)


def _at(track: Track, time_s: Any) -> float | None:
    known = finite(time_s)
    return None if known is None else track.at(known)
