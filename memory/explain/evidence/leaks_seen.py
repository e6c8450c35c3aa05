"""A leak: reported by the run itself, else by step if stages have steps, else by time."""

from __future__ import annotations

from dataclasses import dataclass

from experiment_utils.json_values import mapping, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.rise import last_rise
from memory.explain.evidence.run_facts import RunFacts
from memory.measure.host import left_bytes

_FEWEST_STEPS = 12
_LEAST_BYTES = 8 << 20
_GOOD_PART = 0.1
_LEAST_S, _LASTING_S = 5.0, 600.0


@dataclass(frozen=True)
class Leaking:
    """A leak that was seen."""

    rate: str
    """Text such as `1.0 MB a step`."""
    eta: str | None
    """Time or steps to the limit, as text."""
    line: str
    confidence: str
    is_by_time: bool = False
    """Seen by time alone: a load that is even looks the same."""


def leak_seen(facts: RunFacts) -> Leaking | None:
    """Find the leak in whatever shows it best."""
    return _reported(facts) or _by_step(facts) or _by_time(facts)


def _reported(facts: RunFacts) -> Leaking | None:
    """The run's own watch. In a run that died only if the leak makes up a good part of the limit."""
    last = next((r for r in reversed(facts.records) if mapping(r.get("leak"))), None) or {}
    leak = mapping(last.get("leak"))
    slope, since = (unsigned(leak.get(name)) for name in ("slope_bytes_per_step", "since_step"))
    step = unsigned(mapping(last.get("facts")).get("step"))
    if leak.get("is_leak") is not True or not slope or since is None or step is None:
        return None
    is_dead = bool(facts.signal or facts.kills or facts.vanished)
    if is_dead and slope * (step - since) < _GOOD_PART * (facts.limit_bytes or 0):
        return None
    steps, holder = unsigned(leak.get("eta_steps")), text(leak.get("holder"))
    return Leaking(
        rate=f"{format_bytes(slope)} a step",
        eta=f"{steps:,} steps" if steps else None,
        line=f"the run itself reported a leak after stage {text(last.get('stage'))} step {step:,}: "
        f"{format_bytes(slope)} a step{f' in {holder}' if holder else ''}, since step {since:,} "
        "(memory.jsonl)",
        confidence="likely",
    )


def _by_step(facts: RunFacts) -> Leaking | None:
    """Anon after each stage of one name that records its step."""
    by_name: dict[str, list[tuple[int, int]]] = {}
    for record in facts.records:
        step = unsigned(mapping(record.get("facts")).get("step"))
        anon = unsigned(mapping(record.get("snapshot")).get("anon_bytes"))
        if record.get("event") == "end" and step is not None and anon is not None:
            by_name.setdefault(str(record.get("stage")), []).append((step, anon))
    name = max(by_name, key=lambda name: len(by_name[name]), default=None)
    if name is None or len(by_name[name]) < _FEWEST_STEPS:
        return None
    points = sorted(by_name[name])
    steps, amounts = [step for step, _ in points], [anon for _, anon in points]
    from memory.leaks.detector import find_leak  # numpy

    found = find_leak(steps, amounts, limit_bytes=facts.limit_bytes)
    slope = (found.slope_bytes_per_step or 0.0) if found.is_significant else 0.0
    if slope <= 0 or slope * (steps[-1] - steps[0]) < max(_LEAST_BYTES, 0.01 * (facts.limit_bytes or 0)):
        return None
    left = (_left_bytes(facts, amounts[-1]) or 0) / slope
    return Leaking(
        rate=f"{format_bytes(slope)} a step",
        eta=f"{left:,.0f} steps" if left else None,
        line=f"anon after stage {name}: {format_bytes(amounts[0])} at step {steps[0]:,}, "
        f"{format_bytes(amounts[-1])} "
        f"at step {steps[-1]:,}, {len(points)} records (memory.jsonl)",
        confidence="likely",
    )


def _by_time(facts: RunFacts) -> Leaking | None:
    """Anon that rises at an even rate to the end; a program needs whatever came before that rate.

    Two loads with a pause between them have no even rate: in each fifth of the time about a fifth must come.
    """
    since_s = _repeats_since_s(facts)
    series = facts.series("anon_bytes") or facts.u_series
    points = [point for point in series if since_s is not None and point[0] >= since_s]
    whole = last_rise(points)
    if whole is None or whole.end_s < points[-1][0] - 0.2 * whole.seconds:
        return None
    lasting_s = _LEAST_S if facts.signal or facts.kills else _LASTING_S
    least = 0.1 * facts.limit_bytes if facts.limit_bytes else 256 << 20
    for skipped in (0.0, 0.25, 0.5):
        begin_s = whole.begin_s + skipped * whole.seconds
        found = last_rise([point for point in points if begin_s <= point[0] <= whole.end_s])
        is_long = found is not None and found.seconds >= max(lasting_s, 0.4 * (points[-1][0] - points[0][0]))
        if found is None or not is_long or not found.is_even or found.bytes < least:
            continue
        rate = found.bytes_per_s or 0.0
        left_s = (_left_bytes(facts, points[-1][1]) or 0) / rate
        return Leaking(
            rate=f"{format_bytes(rate)} a second",
            eta=_duration(left_s) if left_s else None,
            line=f"anon rose from {found} in {found.points} samples, on a line (R2 {found.steadiness:.3f}; "
            "memory.ring)",
            confidence="likely" if found.points >= 20 else "unknown",
            is_by_time=True,
        )
    return None


def _repeats_since_s(facts: RunFacts) -> float | None:
    """Time from which on a run of experiments.py repeats its work: the end of its first step; or None."""
    if not facts.is_ours or not facts.records:
        return 0.0
    ends = (r for r in facts.records if r.get("event") == "end")
    steps = (r for r in ends if unsigned(mapping(r.get("facts")).get("step")) is not None)
    first = next(steps, None)
    return None if first is None else seconds(first.get("time_s")) or 0.0


def _left_bytes(facts: RunFacts, held: int) -> int | None:
    """Bytes that could still be had at last. held: used instead of U if that is not known."""
    u = facts.u_series[-1][1] if facts.u_series else held
    available = facts.series("host_available_bytes")
    return left_bytes(facts.limit_bytes, u, available[-1][1] if available else None)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
