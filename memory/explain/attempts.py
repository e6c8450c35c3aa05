"""Which of the files in a folder are of its newest attempt.

A run goes on in the folder of an earlier attempt, a command is run again with the same `--output`: what an
earlier one left stays there. Numbers tell them apart only where one program counts: a supervisor that was
given none says 1, whatever the run calls itself. So times go first, and numbers where there are none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiment_utils.json_values import mapping, seconds, unsigned
from memory.evidence import Evidence
from memory.ring import Ring

_SKEW_S = 2.0
"""Between the clocks of two machines: records of other ranks may come from another."""

Records = dict[int, list[dict[str, Any]]]


@dataclass(frozen=True)
class Newest:
    """number: of the attempt. outcome, status, ring, records: as in `Evidence`, empty where they are of an
    earlier one. began_s: when its supervisor began, None where it has none.
    """

    number: int
    outcome: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    ring: Ring | None = None
    records: Records = field(default_factory=dict)
    began_s: float | None = None


@dataclass(frozen=True)
class _Life:
    """What a supervisor saw from its beginning to its end, or to its last sample."""

    number: int | None
    began_s: float | None
    ended_s: float | None
    outcome: dict[str, Any]
    ring: Ring | None


def newest(evidence: Evidence) -> Newest:
    """Sort out; a file that tells neither time nor number is taken for one of the newest."""
    life, status = _supervised(evidence), evidence.status
    known = evidence.records
    records = {rank: _since(life.began_s, rank, found) for rank, found in known.items()}
    records = {rank: found for rank, found in records.items() if found}
    of_records = max((_attempt(found[-1]) for found in records.values()), default=0)
    of_status = unsigned(status.get("attempt"))
    heard_s = seconds(status.get("heartbeat_s")) or None
    status_is_old = heard_s is not None and life.began_s is not None and heard_s < life.began_s
    is_alone = not life.outcome and life.ring is None
    goes_on = not status_is_old and (of_status or 0) > (life.number or of_status or 0)
    is_over = goes_on or _begin_after(life, records, of_records)
    if is_alone or is_over:
        counted = max(of_status or 0, of_records) or 1
        return Newest(counted, status=status if of_status in (None, counted) else {}, records=records)
    counted = life.number or max(of_records, of_status or 0) or 1
    kept = not status_is_old and of_status in (None, counted)
    ring = life.ring if _number_of(life.ring) in (None, counted) else None
    return Newest(counted, life.outcome, status if kept else {}, ring, records, life.began_s)


def _supervised(evidence: Evidence) -> _Life:
    """Of outcome.json and memory.ring; where two supervisors wrote them, of the later one."""
    outcome, ring = evidence.outcome, evidence.ring
    facts = mapping(ring.facts if ring else None)
    began_s, ring_began_s = seconds(outcome.get("started_s")), seconds(facts.get("started_s"))
    if began_s is not None and ring_began_s is not None and began_s != ring_began_s:
        if ring_began_s > began_s:
            outcome, began_s = {}, ring_began_s
        else:
            ring = None
    told = [time_s for sample in (ring.samples if ring else ()) if (time_s := seconds(sample.time_s))]
    return _Life(
        number=unsigned(outcome.get("attempt")) if outcome else _number_of(ring),
        began_s=began_s if began_s is not None else ring_began_s,
        ended_s=seconds(outcome.get("ended_s")) or max(told, default=None),
        outcome=outcome,
        ring=ring,
    )


def _since(began_s: float | None, rank: int, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without those that were on disk before its supervisor began. Only from the beginning on: a clock may be
    set back later.
    """
    if began_s is None:
        return records
    slack_s = _SKEW_S if rank else 0.0
    times = [seconds(record.get("time_s")) for record in records]
    first = next(
        (at for at, time_s in enumerate(times) if time_s is None or time_s >= began_s - slack_s), len(records)
    )
    return records[first:]


def _begin_after(life: _Life, records: Records, of_records: int) -> bool:
    """Whether the records are of an attempt that began when that life was over; without times by number."""
    lowest = records[min(records)] if records else []
    first_s = next((time_s for record in lowest if (time_s := seconds(record.get("time_s")))), None)
    if first_s is None or life.ended_s is None or life.began_s is None:
        return of_records > (life.number or of_records)
    pid = unsigned(mapping(mapping(lowest[0].get("snapshot")).get("main")).get("pid"))
    watched = {
        unsigned(life.outcome.get("pid")),
        unsigned(mapping(life.ring.facts).get("pid") if life.ring else None),
    }
    return first_s > life.ended_s and (pid is None or pid not in watched)


def _number_of(ring: Ring | None) -> int | None:
    return unsigned(mapping(ring.facts).get("attempt")) if ring else None


def _attempt(record: dict[str, Any]) -> int:
    return unsigned(record.get("attempt")) or 0
