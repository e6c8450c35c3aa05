"""Files of the newest attempt in a folder that holds several.

A run resumes in the folder of an earlier attempt, and a command runs again with the same `--output`. Times
separate attempts; numbers do only where there are no times, since two programs can count differently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from experiment_utils.json_values import at_path, mapping, seconds, unsigned
from memory.record.evidence import Evidence
from memory.record.ring import Ring

_SKEW_S = 2.0
"""Between the clocks of two machines: records of other ranks can come from another."""

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


def newest(evidence: Evidence) -> Newest:
    """Select the newest attempt; a file with neither time nor number counts as one of it."""
    outcome, ring, status = evidence.outcome, evidence.ring, evidence.status
    facts = mapping(ring.facts if ring else None)
    began_s, ring_began_s = seconds(outcome.get("started_s")), seconds(facts.get("started_s"))
    if began_s is not None and ring_began_s is not None and began_s != ring_began_s:  # of two supervisors
        outcome, ring = ({}, ring) if ring_began_s > began_s else (outcome, None)
        began_s = max(began_s, ring_began_s)
    began_s = ring_began_s if began_s is None else began_s
    kept = {rank: _since(began_s, rank, records) for rank, records in evidence.records.items()}
    records = {rank: found for rank, found in kept.items() if found}
    of_records = max((unsigned(found[-1].get("attempt")) or 0 for found in records.values()), default=0)
    of_status, heard_s = unsigned(status.get("attempt")), seconds(status.get("heartbeat_s")) or began_s or 0.0
    if heard_s < (began_s or 0.0):
        status, of_status = {}, None
    number = unsigned((outcome or facts).get("attempt")) if outcome or ring else None
    is_later = (of_status or 0) > (number or of_status or 0)
    if (
        not (outcome or ring)
        or is_later
        or _begin_after(outcome, ring, began_s, records, number or of_records)
    ):
        number, outcome, ring, began_s = max(of_status or 0, of_records), {}, None, None
    number = number or max(of_records, of_status or 0) or 1
    if unsigned(facts.get("attempt")) not in (None, number):
        ring = None
    return Newest(number, outcome, status if of_status in (None, number) else {}, ring, records, began_s)


def _since(began_s: float | None, rank: int, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records from the first one that is not older than the supervisor: a clock can be set back later."""
    least_s = float("-inf") if began_s is None else began_s - (_SKEW_S if rank else 0.0)
    times = (seconds(record.get("time_s")) for record in records)
    is_new = (at for at, time_s in enumerate(times) if time_s is None or time_s >= least_s)
    return records[next(is_new, len(records)) :]


def _begin_after(
    outcome: dict[str, Any], ring: Ring | None, began_s: float | None, records: Records, number: int
) -> bool:
    """Whether the records are of an attempt that began when the supervisor had ended."""
    lowest = records[min(records)] if records else []
    first_s = next((time_s for record in lowest if (time_s := seconds(record.get("time_s")))), None)
    times = [time_s for sample in (ring.samples if ring else ()) if (time_s := seconds(sample.time_s))]
    ended_s = seconds(outcome.get("ended_s")) or max(times, default=None)
    if first_s is None or ended_s is None or began_s is None:
        return any((unsigned(found[-1].get("attempt")) or 0) > number for found in records.values())
    pid = unsigned(at_path(lowest[0], "snapshot.main.pid"))
    watched = {unsigned(outcome.get("pid")), unsigned(mapping(ring.facts if ring else None).get("pid"))}
    return first_s > ended_s and (pid is None or pid not in watched)
