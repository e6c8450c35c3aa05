"""Files of the newest attempt in a folder that holds several.

A run resumes in the folder of an earlier attempt, and a command runs again with the same `--output`. Times
separate
attempts; numbers do only where there are no times, since two programs may count differently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiment_utils.json_values import mapping, seconds, unsigned
from memory.record.evidence import Evidence
from memory.record.ring import Ring

_SKEW_S = 2.0
"""Between the clocks of two machines: records of other ranks may come from another."""

Records = dict[int, list[dict[str, Any]]]


@dataclass(frozen=True)
class Newest:
    """Evidence of the newest attempt; a file of an earlier one is left out."""

    number: int
    outcome: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    ring: Ring | None = None
    records: Records = field(default_factory=dict)
    began_s: float | None = None
    """When its supervisor began; None without one."""


@dataclass(frozen=True)
class _Life:
    """The time that a supervisor saw, to its last sample or to the end."""

    number: int | None
    began_s: float | None
    ended_s: float | None
    outcome: dict[str, Any]
    ring: Ring | None


def newest(evidence: Evidence) -> Newest:
    """Select the newest attempt; a file with neither time nor number counts as one of it."""
    life, status = _supervised(evidence), evidence.status
    found = {rank: _since(life.began_s, rank, records) for rank, records in evidence.records.items()}
    records = {rank: kept for rank, kept in found.items() if kept}
    of_records = max((unsigned(kept[-1].get("attempt")) or 0 for kept in records.values()), default=0)
    of_status = unsigned(status.get("attempt"))
    heard_s = seconds(status.get("heartbeat_s")) or None
    status_is_old = heard_s is not None and life.began_s is not None and heard_s < life.began_s
    is_later = not status_is_old and (of_status or 0) > (life.number or of_status or 0)
    if (not life.outcome and life.ring is None) or is_later or _begin_after(life, records, of_records):
        counted = max(of_status or 0, of_records) or 1
        return Newest(counted, status=status if of_status in (None, counted) else {}, records=records)
    counted = life.number or max(of_records, of_status or 0) or 1
    kept_status = status if not status_is_old and of_status in (None, counted) else {}
    ring = life.ring if _number(life.ring) in (None, counted) else None
    return Newest(counted, life.outcome, kept_status, ring, records, life.began_s)


def _supervised(evidence: Evidence) -> _Life:
    """outcome.json and memory.ring; if two supervisors wrote them, the later one's."""
    outcome, ring = evidence.outcome, evidence.ring
    began_s = seconds(outcome.get("started_s"))
    ring_began_s = seconds(mapping(ring.facts if ring else None).get("started_s"))
    if began_s is not None and ring_began_s is not None and began_s != ring_began_s:
        if ring_began_s > began_s:
            outcome, began_s = {}, ring_began_s
        else:
            ring = None
    times = [time_s for sample in (ring.samples if ring else ()) if (time_s := seconds(sample.time_s))]
    return _Life(
        number=unsigned(outcome.get("attempt")) if outcome else _number(ring),
        began_s=began_s if began_s is not None else ring_began_s,
        ended_s=seconds(outcome.get("ended_s")) or max(times, default=None),
        outcome=outcome,
        ring=ring,
    )


def _since(began_s: float | None, rank: int, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records from the first one that is not older than the supervisor: a clock may be set back later."""
    if began_s is None:
        return records
    slack_s = _SKEW_S if rank else 0.0
    times = (seconds(record.get("time_s")) for record in records)
    is_new = (at for at, time_s in enumerate(times) if time_s is None or time_s >= began_s - slack_s)
    return records[next(is_new, len(records)) :]


def _begin_after(life: _Life, records: Records, of_records: int) -> bool:
    """Whether the records are of an attempt that began when that life was over."""
    lowest = records[min(records)] if records else []
    first_s = next((time_s for record in lowest if (time_s := seconds(record.get("time_s")))), None)
    if first_s is None or life.ended_s is None or life.began_s is None:
        return of_records > (life.number or of_records)
    pid = unsigned(mapping(mapping(lowest[0].get("snapshot")).get("main")).get("pid"))
    ring_facts = mapping(life.ring.facts if life.ring else None)
    watched = {unsigned(life.outcome.get("pid")), unsigned(ring_facts.get("pid"))}
    return first_s > life.ended_s and (pid is None or pid not in watched)


def _number(ring: Ring | None) -> int | None:
    return unsigned(mapping(ring.facts).get("attempt")) if ring else None
