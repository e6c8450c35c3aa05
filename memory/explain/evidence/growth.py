"""Growth of memory: the last rise of an amount, a leak, and page cache that came with it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiment_utils.json_values import at_path, mapping, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.run_facts import RunFacts
from memory.leaks.detector import find_leak

_JUMP_S, _LOAD_S = 2.0, 30.0
_DIP, _NOISE = 0.15, 0.02
_WATCHED = {"anon": "", "shmem": " of shared memory", "gpu": " of tensors on its GPU"}
_GOOD_PART = 0.1
"""Part of the limit that a leak must make up."""
_LEAST_S, _LASTING_S = 5.0, 600.0
"""Least length of an even rise before a death, and in a run that lives or ended well."""


@dataclass(frozen=True)
class Rise:
    """From the lowest point before the top, without a dip of more than 15% of the rise (or 2% of the top)."""

    from_bytes: int
    to_bytes: int
    begin_s: float
    end_s: float
    jump_bytes: int
    """The largest rise within two seconds, or between two neighbours."""
    points: int
    least_fifth: float = 0.0
    """Five times the share of the rise in its slowest fifth of time: 1 at a constant rate."""

    @property
    def bytes(self) -> int:
        return self.to_bytes - self.from_bytes

    @property
    def seconds(self) -> float:
        return max(0.0, self.end_s - self.begin_s)

    @property
    def is_jump(self) -> bool:
        """Most of it came within two seconds."""
        return self.jump_bytes >= 0.6 * self.bytes

    @property
    def is_even(self) -> bool:
        """Many samples, with a like part of the rise in each fifth of its time."""
        return self.points >= 12 and not self.is_jump and self.least_fifth >= 0.4


def last_rise(points: Sequence[tuple[float, int]]) -> Rise | None:
    """Find the last rise of (time_s, bytes), sorted by time; None if there is none."""
    if len(points) < 2:
        return None
    top = max(range(len(points)), key=lambda at: (points[at][1], at))
    peak, low = points[top][1], top
    for at in range(top - 1, -1, -1):
        amount = points[at][1]
        if amount < points[low][1]:
            low = at
        elif amount - points[low][1] > max(_DIP * (peak - points[low][1]), _NOISE * peak):
            break
    found = points[low : top + 1]
    if len(found) < 2 or peak <= found[0][1]:
        return None
    jump, begin, end = _largest_jump(found), found[0], found[-1]
    return Rise(begin[1], peak, begin[0], end[0], jump, len(found), _least_fifth(found))


def _largest_jump(points: Sequence[tuple[float, int]]) -> int:
    largest, begin = 0, 0
    for end in range(1, len(points)):
        while begin < end - 1 and points[end][0] - points[begin][0] > _JUMP_S:
            begin += 1
        largest = max(largest, points[end][1] - points[begin][1])
    return largest


def _least_fifth(points: Sequence[tuple[float, int]]) -> float:
    (begin_s, foot), (end_s, top) = points[0], points[-1]
    if end_s <= begin_s:
        return 0.0
    times = [time_s for time_s, _ in points]

    def at(time_s: float) -> float:
        after = min(len(points) - 1, max(1, bisect_left(times, time_s)))
        (before_s, before), (after_s, amount) = points[after - 1], points[after]
        part = (time_s - before_s) / (after_s - before_s) if after_s > before_s else 1.0
        return before + (amount - before) * min(1.0, max(0.0, part))

    borders = [at(begin_s + (end_s - begin_s) * part / 5) for part in range(6)]
    return 5 * min(after - before for before, after in pairwise(borders)) / (top - foot)


@dataclass(frozen=True)
class Leaking:
    """A leak that was seen."""

    rate: str
    """Text such as `1.0 MB a step`."""
    line: str
    confidence: str = "likely"
    is_by_time: bool = False
    """Seen by time alone: a load that is even looks the same."""
    bytes: int = 0
    """Growth since it began, by the run's own report."""


def leak_seen(facts: RunFacts) -> Leaking | None:
    """A leak: reported by the run itself, else by step in its stage records, else an even rise over time."""
    return _reported(facts) or _by_step(facts) or _by_time(facts)


def step_of(record: dict[str, Any]) -> int | None:
    """Step that a stage record names."""
    return unsigned(at_path(record, "facts.step"))


def step_ends(facts: RunFacts) -> list[dict[str, Any]]:
    """Records of the ends of stages that name their step, by time."""
    return [each for each in facts.records if each.get("event") == "end" and step_of(each) is not None]


def reported_leaks(facts: RunFacts) -> dict[str, Leaking]:
    """Leaks in the last report of the run's own watch: `anon`, `shmem`, `gpu`."""
    last: dict[str, Any] = next((r for r in reversed(facts.records) if mapping(r.get("leak"))), {})
    found, step, report = {}, step_of(last), mapping(last.get("leak"))
    for kind, what in _WATCHED.items():
        leak = report if kind == "anon" else mapping(report.get(kind))
        slope, since = (unsigned(leak.get(name)) for name in ("slope_bytes_per_step", "since_step"))
        if leak.get("is_leak") is not True or not slope or since is None or step is None:
            continue
        rate, holder = f"{format_bytes(slope)}{what} a step", text(leak.get("holder"))
        line = f"the run itself reported a leak after stage {text(last.get('stage'))} step {step:,}: {rate}"
        line += f"{f' in {holder}' if holder else ''} over the last {step - since:,} steps (memory.jsonl)"
        found[kind] = Leaking(rate, line, bytes=slope * max(0, step - since))
    return found


def _reported(facts: RunFacts) -> Leaking | None:
    """The run's own watch. A leak on the GPU fills no memory of the host."""
    found = reported_leaks(facts).items()
    return next((leak for kind, leak in found if _is_enough(facts, leak.bytes * (kind != "gpu"))), None)


def _is_enough(facts: RunFacts, grown: int) -> bool:
    """Whether a leak matters: in a run that died only if it makes up a good part of the limit."""
    is_dead = bool(facts.signal or facts.kills or facts.vanished)
    return not is_dead or grown >= max(1, _GOOD_PART * (facts.limit_bytes or 0))


def _by_step(facts: RunFacts) -> Leaking | None:
    """Anon at the ends of the stage that names a step most often."""
    by_stage: dict[str, list[tuple[int, int]]] = {}
    for record in step_ends(facts):
        anon = unsigned(at_path(record, "snapshot.anon_bytes"))
        if anon is not None:
            by_stage.setdefault(text(record.get("stage")), []).append((step_of(record) or 0, anon))
    stage, points = max(by_stage.items(), key=lambda each: len(each[1]), default=("", []))
    points.sort()
    found = find_leak([step for step, _ in points], [anon for _, anon in points])
    slope = found.slope_bytes_per_step or 0.0
    if not found.is_significant or not _is_enough(facts, int(slope * (points[-1][0] - points[0][0]))):
        return None
    (first, low), (last, high) = points[0], points[-1]
    line = f"anon after stage {stage}: {format_bytes(low)} at step {first:,}, {format_bytes(high)} at step "
    return Leaking(f"{format_bytes(slope)} a step", f"{line}{last:,}, {len(points)} records (memory.jsonl)")


def _by_time(facts: RunFacts) -> Leaking | None:
    """Anon that rises at an even rate to the end; a program needs whatever came before that rate.

    Two loads with a pause between them have no even rate: in each fifth of the time about a fifth must come.
    A run of experiments.py repeats its work from the end of its first step on.
    """
    first_s = next((seconds(end.get("time_s")) or 0.0 for end in step_ends(facts)), float("inf"))
    since_s = first_s if facts.is_ours and facts.records else 0.0
    points = [p for p in facts.series("anon_bytes") or facts.u_series if p[0] >= since_s]
    whole = last_rise(points)
    if whole is None or whole.end_s < points[-1][0] - 0.2 * whole.seconds:
        return None
    lived_s = points[-1][0] - points[0][0]
    lasting_s = max(_LEAST_S if facts.signal or facts.kills else _LASTING_S, 0.4 * lived_s)
    least = _GOOD_PART * facts.limit_bytes if facts.limit_bytes else 256 << 20
    for skipped in (0.0, 0.25, 0.5):
        begin_s = whole.begin_s + skipped * whole.seconds
        found = last_rise([point for point in points if begin_s <= point[0] <= whole.end_s])
        if found and found.seconds >= lasting_s and found.is_even and found.bytes >= least:
            rate = f"{format_bytes(found.bytes / found.seconds)} a second"
            line = f"anon rose evenly over {found.seconds:.3g} s, in {found.points} samples (memory.ring)"
            return Leaking(rate, line, "likely" if found.points >= 20 else "unknown", is_by_time=True)
    return None


def cache_per_anon(facts: RunFacts) -> float:
    """Bytes of page cache that came with each byte of anon, at least, in a rise within half a minute.

    Up to the sample at which page cache was highest: at the limit it goes again as anon memory comes.
    """
    rise = last_rise(facts.series("anon_bytes"))
    if rise is None or not (rise.is_jump or rise.seconds < _LOAD_S):
        return 0.0
    inside = [
        s for s in facts.samples if rise.begin_s <= s.time_s <= rise.end_s and s.cache_bytes is not None
    ]
    looks = [(s.cache_bytes or 0, s.anon_bytes) for s in inside if s.anon_bytes is not None]
    cache, anon = max(looks, key=lambda look: look[0], default=(0, 0))
    grown = (cache - looks[0][0], anon - looks[0][1]) if looks else (0, 0)
    is_enough = grown[1] >= 0.05 * (facts.limit_bytes or 0)
    return max(0, grown[0]) / max(1, grown[1]) if is_enough else 0.0
