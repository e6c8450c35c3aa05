"""Whether memory leaks: as the run itself told, else by step where stages tell of steps, else by time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from experiment_utils.json_values import mapping, seconds, text, unsigned
from experiment_utils.quantities import format_bytes
from memory.explain.facts import Facts
from memory.explain.trend import last_rise
from memory.host import left_bytes

_FEWEST_STEPS = 12
_LEAST_BYTES = 8 << 20
_GOOD_PART = 0.1
_LEAST_S, _LASTING_S = 5.0, 600.0


@dataclass(frozen=True)
class Leaking:
    """rate, eta: in words. line: of evidence."""

    rate: str
    eta: str | None
    line: str
    confidence: str


def leak_as_told(facts: Facts) -> Leaking | None:
    """The run measures after each step, of which its stages, here its last `train`, keep what that says.

    Of a run that died only where the leak makes up a good part of the limit: another rise may have met it.
    """
    last = next((r for r in reversed(facts.records) if mapping(r.get("leak"))), None) or {}
    told = mapping(last.get("leak"))
    slope, since = (unsigned(told.get(name)) for name in ("slope_bytes_per_step", "since_step"))
    step = unsigned(mapping(last.get("facts")).get("step"))
    if told.get("is_leak") is not True or not slope or slope < 0 or since is None or step is None:
        return None
    is_dead = bool(facts.signal or facts.kills or facts.vanished)
    if is_dead and slope * (step - since) < _GOOD_PART * (facts.limit_bytes or 0):
        return None
    steps, holder = unsigned(told.get("eta_steps")), text(told.get("holder"))
    return Leaking(
        rate=f"{format_bytes(slope)} a step",
        eta=f"{steps:,} steps" if steps else None,
        line=f"the run itself told a leak after stage {text(last.get('stage'))} step {step:,}: "
        f"{format_bytes(slope)} a step{f' in {holder}' if holder else ''}, since step {since:,} "
        "(memory.jsonl)",
        confidence="likely",
    )


def leak_by_step(facts: Facts) -> Leaking | None:
    """Anon after each stage of one name that tells its step."""
    by_name: dict[str, list[tuple[int, int, float]]] = {}
    for record in facts.records:
        step = unsigned(mapping(record.get("facts")).get("step"))
        anon = unsigned(mapping(record.get("snapshot")).get("anon_bytes"))
        if record.get("event") == "end" and step is not None and anon is not None:
            by_name.setdefault(str(record.get("stage")), []).append((step, anon, record.get("time_s") or 0.0))
    name = max(by_name, key=lambda name: len(by_name[name]), default=None)
    if name is None or len(by_name[name]) < _FEWEST_STEPS:
        return None
    points = sorted(by_name[name])
    steps, amounts = [step for step, _, _ in points], [anon for _, anon, _ in points]
    slope = _slope(facts, steps, amounts)
    least = max(_LEAST_BYTES, 0.01 * (facts.limit_bytes or 0))
    if slope is None or slope * (steps[-1] - steps[0]) < least:
        return None
    left = (_left_bytes(facts, amounts[-1]) or 0) / slope
    return Leaking(
        rate=f"{format_bytes(slope)} a step",
        eta=f"{left:,.0f} steps" if left else None,
        line=f"anon after stage {name}: {format_bytes(amounts[0])} at step {steps[0]:,}, "
        f"{format_bytes(amounts[-1])} at "
        f"step {steps[-1]:,}, {len(points)} records (memory.jsonl)",
        confidence="likely",
    )


def leak_by_time(facts: Facts) -> Leaking | None:
    """A rise of U at an even rate, which lasts to the end."""
    since_s = _repeats_since_s(facts)
    series = facts.series("anon_bytes") or facts.u_series
    points = [point for point in series if since_s is not None and point[0] >= since_s]
    found = last_rise(points)
    if (
        found is None
        or not found.is_steady
        or found.seconds < _LEAST_S
        or found.end_s < points[-1][0] - 0.2 * found.seconds
    ):
        return None
    least = 0.1 * facts.limit_bytes if facts.limit_bytes else 256 << 20
    rate = found.bytes_per_s or 0.0
    # of a run that lives on, a rise of minutes may be its beginning
    lasting = found.seconds >= (_LEAST_S if facts.signal or facts.kills else _LASTING_S)
    long = lasting and found.seconds >= 0.5 * (points[-1][0] - points[0][0])
    if found.bytes < least or rate <= 0 or not long:
        return None
    left_s = (_left_bytes(facts, points[-1][1]) or 0) / rate
    return Leaking(
        rate=f"{format_bytes(rate)} a second",
        eta=_duration(left_s) if left_s else None,
        line=f"anon rose from {found} in {found.points} samples, on a line (R2 "
        f"{found.steadiness:.3f}; memory.ring)",
        confidence="likely" if found.points >= 20 else "possible",
    )


def _repeats_since_s(facts: Facts) -> float | None:
    """From when on what it does was done before: of a run of experiments.py from the end of its first step
    on, None if that did not end. What it takes until then is what it needs, at however even a rate.
    """
    if not facts.is_ours or not facts.records:
        return 0.0
    for record in facts.records:
        if record.get("event") == "end" and unsigned(mapping(record.get("facts")).get("step")) is not None:
            return seconds(record.get("time_s")) or 0.0
    return None


def _left_bytes(facts: Facts, held: int) -> int | None:
    """What could still be had at last. held: in place of U, where that is not known."""
    u = facts.u_series[-1][1] if facts.u_series else held
    available = facts.series("host_available_bytes")
    return left_bytes(facts.limit_bytes, u, available[-1][1] if available else None)


def _slope(facts: Facts, steps: Sequence[int], amounts: Sequence[int]) -> float | None:
    """Bytes a step where the growth is significant; by the detector that also watches while training."""
    try:
        from memory import leaks  # type: ignore[attr-defined,unused-ignore]
    except ImportError:
        return _slope_of_blocks(steps, amounts)
    try:
        found: Any = leaks.find_leak(list(steps), list(amounts), limit_bytes=facts.limit_bytes)
    except Exception:
        return _slope_of_blocks(steps, amounts)
    slope = getattr(found, "slope_bytes_per_step", None)
    return float(slope) if getattr(found, "is_significant", False) and slope and slope > 0 else None


def _slope_of_blocks(steps: Sequence[int], amounts: Sequence[int], blocks: int = 6) -> float | None:
    """Medians of six blocks that rise one after the other, also in the second half."""
    size = len(amounts) // blocks
    if size < 2 or steps[-1] <= steps[0]:
        return None
    middles = [at * size + size // 2 for at in range(blocks)]
    medians = [statistics.median(amounts[at * size : (at + 1) * size]) for at in range(blocks)]
    rises = [after - before for before, after in pairwise(medians)]
    if min(rises) <= 0 or sum(rises[blocks // 2 :]) < 0.25 * sum(rises):
        return None
    return (medians[-1] - medians[0]) / max(1, steps[middles[-1]] - steps[middles[0]])


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
