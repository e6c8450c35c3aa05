"""Memory of a run over time, read from its folder: attempts, their tracks, moments and stages.

Records are read one by one and thinned on the way, so that a run of a million stages takes as much memory as
one of a thousand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiment_utils.errors import UserError
from experiment_utils.json_values import finite, integer, mapping, text
from memory.explain.evidence.attempts import Newest, newest
from memory.record.evidence import Evidence
from memory.record.ring import Ring
from memory.report.data.moments import AMOUNTS, Moment, at_peak, recorded_moment, sampled_moment
from memory.report.data.stage_rows import Span, StageBook, StageRow
from memory.report.data.thin import kept

POINTS = 2000
"""Most moments of a track that are kept."""
_HELD = 8 * POINTS
_Key = tuple[int, int]
"""Attempt and rank of a record."""


@dataclass
class Track:
    """One process of a distributed run in one attempt, or the whole job as its supervisor saw it."""

    rank: int | None
    """None if only the supervisor recorded it."""
    moments: list[Moment] = field(default_factory=list)
    """Oldest first, at most `POINTS`."""
    spans: list[Span] = field(default_factory=list)
    rows: list[StageRow] = field(default_factory=list)
    zero_s: float | None = None
    """Unix time at which the attempt began, by its first record or sample."""
    limit_at: str | None = None
    """Path of the cgroup that has the limit, or `host`."""
    scope: str = "job"
    """The processes that U counts: of the job's cgroup, or of the process tree."""
    main_pid: int | None = None
    records: int = 0
    samples: int = 0
    ended_s: float | None = None
    """Time of its end, as its supervisor saw it."""

    def at(self, time_s: float) -> float | None:
        """Seconds since the attempt began at a Unix time; None if that is unknown."""
        return None if self.zero_s is None else time_s - self.zero_s

    @property
    def lasted_s(self) -> float:
        ends = [self.moments[-1].at_s] if self.moments else []
        ends += [span.begin_s if span.end_s is None else span.end_s for span in self.spans]
        ends += [] if self.ended_s is None else [self.ended_s]
        return max(ends, default=0.0)

    @property
    def highest(self) -> Moment | None:
        """The moment of the highest U."""
        known = [moment for moment in self.moments if moment.u is not None]
        return max(known, key=lambda moment: moment.u or 0, default=None)

    @property
    def limit_bytes(self) -> int | None:
        """The limit when U was highest. The last sample can be of the host: the cgroup goes with the run."""
        highest = self.highest
        if highest is not None and highest.limit is not None:
            return highest.limit
        return next((moment.limit for moment in reversed(self.moments) if moment.limit is not None), None)

    def stage_at(self, at_s: float) -> str | None:
        """`train > forward`: the innermost stage of the main thread at that time; None between stages."""
        around = [
            span
            for span in self.spans
            if span.thread is None and span.begin_s <= at_s and (span.end_s is None or at_s <= span.end_s)
        ]
        deepest = max(around, key=lambda span: (span.depth, span.begin_s), default=None)
        return None if deepest is None else " > ".join(deepest.path)


@dataclass
class Attempt:
    """One start of the run."""

    number: int
    """From 1."""
    tracks: list[Track] = field(default_factory=list)
    """By rank. On one machine U of each is that of the same job."""
    own_bytes: int | None = None
    """The most that the run's own processes held, as its supervisor saw it."""

    @property
    def main(self) -> Track:
        """The track that a report begins with: the sampled one, else the lowest rank."""
        return max(self.tracks, key=lambda track: (track.samples > 0, -(track.rank or 0)))

    @property
    def fullest(self) -> Track:
        """The track that saw the highest U."""
        return max(self.tracks, key=lambda track: (track.highest.u or 0) if track.highest is not None else -1)

    @property
    def lasted_s(self) -> float:
        """Seconds of the longest track."""
        return max((track.lasted_s for track in self.tracks), default=0.0)


@dataclass
class History:
    """All attempts of a run."""

    name: str
    evidence: Evidence
    attempts: list[Attempt]
    """Oldest first, at least one."""
    notes: list[str] = field(default_factory=list)
    """Remarks on damaged or missing evidence."""

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]


def read_history(folder: Path) -> History:
    """Read a folder: stage records of all attempts, and samples of each attempt that has some.

    Raises:
        UserError: the folder has neither stage records nor samples, or they are damaged.
    """
    evidence = Evidence(folder)
    notes: list[str] = []
    latest = newest(evidence)
    attempts, is_repeated = _read_records(evidence, latest)
    ring = evidence.ring
    number = _sampled_number(ring, latest, attempts)
    is_older = ring is not None and latest.ring is None and number == latest.number and bool(attempts)
    if is_repeated or is_older:
        notes.append("an earlier process in this folder, with the same number of its attempt, is left out")
    for place in evidence.attempt_folders():
        if (earlier := int(place.name)) != number:
            kept = Evidence(place)
            _add_samples(attempts, earlier, kept.ring)
            if earlier in attempts:
                _note_end(attempts[earlier], kept.outcome, (earlier,))
    if ring is not None and ring.samples and not is_older:
        _add_samples(attempts, number, ring)
        for track in attempts[number].tracks:
            track.limit_at = track.limit_at or text(evidence.outcome.get("limit_at")) or None
        _note_end(attempts[number], evidence.outcome, (number, integer(ring.facts.get("attempt"))))
        if ring.damaged:
            notes.append(f"{ring.damaged} samples were being written when the run was killed: left out")
    damaged = ["memory.ring"] if ring is None and (folder / "memory.ring").exists() else []
    notes += [f"{name} is damaged: no sample can be read" for name in damaged]
    notes += evidence.damage
    found = [one for _, one in sorted(attempts.items()) if any(track.moments for track in one.tracks)]
    damaged += [] if attempts else sorted(path.name for path in folder.glob("memory*.jsonl"))
    if not found and damaged:
        raise UserError(
            f"{folder}: {' and '.join(damaged)} {'are' if len(damaged) > 1 else 'is'} damaged or empty: "
            "no record or sample of this run's memory can be read",
            code="damaged-records",
        )
    if not found:
        raise UserError(
            f"{folder}: nothing of this run's memory was recorded: expected memory.jsonl (stages) or "
            "memory.ring (samples). To measure any command: python -m memory run --output DIR -- COMMAND",
            code="no-records",
        )
    return History(folder.name or folder.resolve().name, evidence, found, notes)


def _read_records(evidence: Evidence, latest: Newest) -> tuple[dict[int, Attempt], bool]:
    """Attempts by number, and whether older records with the number of the newest attempt are left out.

    A command that runs again in its folder counts its attempts from 1 again.
    """
    firsts = {_key(records[0]): records[0] for records in latest.records.values()}
    known = {_key(records[0]) for records in evidence.records.values()}
    readers: dict[_Key, _Reader] = {}
    is_repeated = False
    for record in evidence.all_records():
        key = _key(record)
        if key in known - firsts.keys():
            is_repeated = True
            continue
        if key not in readers or record == firsts.get(key):
            is_repeated = is_repeated or key in readers
            readers[key] = _Reader(key[1])
        readers[key].add(record)
    attempts: dict[int, Attempt] = {}
    for (number, _), reader in sorted(readers.items()):
        attempts.setdefault(number, Attempt(number)).tracks.append(reader.track())
    return attempts, is_repeated


def _key(record: dict[str, Any]) -> _Key:
    return max(1, integer(record.get("attempt")) or 1), max(0, integer(record.get("rank")) or 0)


def _sampled_number(ring: Ring | None, latest: Newest, attempts: dict[int, Attempt]) -> int:
    """Number of the sampled attempt by its records: a supervisor that does not know it writes 1."""
    records = latest.records.get(min(latest.records, default=0))
    if records and ring is not None and latest.ring is ring:
        return _key(records[0])[0]
    return (integer(ring.facts.get("attempt")) if ring else None) or max(attempts, default=1)


class _Reader:
    """Builds a track from its records, one after the other."""

    def __init__(self, rank: int) -> None:
        self._track = Track(rank)
        self._book = StageBook()
        self._moments: list[Moment] = []

    def add(self, record: dict[str, Any]) -> None:
        track, snapshot = self._track, record.get("snapshot")
        self._book.add(record)
        track.records += 1
        at_s, time_s = finite(record.get("elapsed_s")), finite(record.get("time_s"))
        at_s = self._book.last_at_s if at_s is None else at_s
        if track.zero_s is None and time_s is not None:
            track.zero_s = time_s - at_s
        if not isinstance(snapshot, dict):
            return
        moment = recorded_moment(snapshot, at_s)
        if moment.u is None and moment.rss is None:
            return
        if self._book.hidden_peak_bytes is not None:
            before_s = self._moments[-1].at_s if self._moments else 0.0
            self._moments.append(at_peak(moment, self._book.hidden_peak_bytes, (before_s + at_s) / 2))
        self._moments.append(moment)
        if len(self._moments) >= _HELD:
            self._moments = thinned(self._moments, _HELD // 2)
        track.limit_at = text(snapshot.get("limit_at")) or track.limit_at
        track.scope = text(snapshot.get("scope")) or track.scope
        main = mapping(snapshot.get("main"))
        track.main_pid = integer(main.get("pid")) if main else track.main_pid

    def track(self) -> Track:
        """The track of all records so far."""
        self._track.moments = thinned(sorted(self._moments, key=lambda moment: moment.at_s), POINTS)
        self._track.rows, self._track.spans = self._book.rows, self._book.spans
        return self._track


def thinned(moments: list[Moment], most: int) -> list[Moment]:
    """At most `most` of the moments, with the peaks of every amount."""
    if len(moments) <= most:
        return moments
    columns = [[getattr(moment, name) for moment in moments] for name in AMOUNTS]
    if all(u is None for u in columns[0]):
        columns[0] = columns[AMOUNTS.index("rss")]
    return [moments[index] for index in kept(columns, most)]


def _add_samples(attempts: dict[int, Attempt], number: int, ring: Ring | None) -> None:
    """Merge the samples, if there are some, into the track of their process."""
    if ring is None or not ring.samples:
        return
    attempt = attempts.setdefault(number, Attempt(number))
    pid = integer(ring.facts.get("pid"))
    track = next((track for track in attempt.tracks if track.main_pid == pid and pid is not None), None)
    if track is None and len(attempt.tracks) == 1:
        track = attempt.tracks[0]
    if track is None:
        track = Track(None)
        attempt.tracks.append(track)
    first_s = ring.samples[0].time_s
    if track.zero_s is None:
        track.zero_s = min(finite(ring.facts.get("started_s")) or first_s, first_s)
    early_s = max(0.0, track.zero_s - first_s)  # the supervisor looked before the first record
    track.zero_s -= early_s
    for span in track.spans:
        span.begin_s += early_s
        span.end_s = None if span.end_s is None else span.end_s + early_s
    recorded = [replace(moment, at_s=moment.at_s + early_s) for moment in track.moments]
    seen = [sampled_moment(sample, sample.time_s - track.zero_s) for sample in ring.samples]
    track.samples = len(seen)
    track.main_pid = pid if track.main_pid is None else track.main_pid
    track.limit_at = track.limit_at or text(ring.facts.get("limit_at")) or None
    _raise_highest(track, seen)
    neighbours = [
        (moment.at_s, amount)
        for moment, sample in zip(seen, ring.samples, strict=True)
        if (amount := sample.neighbours_anon_bytes)
    ]
    recorded = [_without_neighbours(moment, neighbours) for moment in recorded]
    track.moments = thinned(sorted([*recorded, *seen], key=lambda moment: moment.at_s), POINTS)


def _note_end(attempt: Attempt, outcome: dict[str, Any], numbers: tuple[int | None, ...]) -> None:
    """Note the recorded end, if it is of one of these numbers. The last sample can be a second older."""
    time_s, number = finite(outcome.get("ended_s")), integer(outcome.get("attempt"))
    if time_s is not None and number is not None and number in numbers:
        attempt.main.ended_s = attempt.main.at(time_s)
        attempt.own_bytes = integer(outcome.get("peak_own_bytes"))


def _raise_highest(track: Track, seen: list[Moment]) -> None:
    """Count the samples within each stage for its highest U; its records are of before and after."""
    rows = {(row.thread, row.path): row for row in track.rows}
    times = [moment.at_s for moment in seen]
    for span in track.spans:
        until = len(seen) if span.end_s is None else bisect_right(times, span.end_s)
        for moment in seen[bisect_left(times, span.begin_s) : until]:
            rows[span.thread, span.path].saw(moment.u)


def _without_neighbours(moment: Moment, neighbours: list[tuple[float, int]]) -> Moment:
    """Move anon of other processes in the cgroup, by the nearest sample, from workers to other."""
    if not moment.workers or not neighbours:
        return moment
    at = bisect_left(neighbours, (moment.at_s, 0))
    amount = min(neighbours[max(0, at - 1) : at + 1], key=lambda one: abs(one[0] - moment.at_s))[1]
    moved = min(moment.workers, max(0, amount - (moment.other or 0)))
    return replace(moment, workers=moment.workers - moved, other=(moment.other or 0) + moved)
