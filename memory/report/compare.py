"""Two runs side by side: stage by stage, by process, by part, and what differs in their configs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from experiment_utils.json_values import leaves, mapping
from memory.record.evidence import Evidence
from memory.report.ending import Ending, ending
from memory.report.history import History, Track
from memory.report.moments import PARTS
from memory.report.processes import process_rows
from memory.report.stages import StageRow

DIFFERENCES = 40
"""Of two configs, so many are told."""
_WHERE_IT_RUNS = ("runs_dir", "study", "tags", "notes", "plan")


@dataclass(frozen=True)
class Pair:
    """An amount of both runs; None where one of them has none, or it is not known."""

    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class StagePair:
    """A stage of both runs by its path, which says how it is nested; None where one run has it not."""

    path: tuple[str, ...]
    thread: str | None
    a: StageRow | None
    b: StageRow | None

    def pair(self, name: str) -> Pair:
        """An amount of `StageRow`."""
        return Pair(*(None if row is None else getattr(row, name) for row in (self.a, self.b)))


@dataclass(frozen=True)
class Comparison:
    """Of the last attempts of two runs, and of their first ranks.

    stages: in the order of run A, those of B alone behind the stage that comes before them there. config:
    key -> (value in A, value in B) as JSON texts; None where either run has no config. processes: the main
    process, and its workers together.
    """

    a: History
    b: History
    stages: list[StagePair]
    processes: dict[str, Pair]
    parts: dict[str, Pair]
    config: dict[str, tuple[str, str]] | None

    @property
    def tracks(self) -> tuple[Track, Track]:
        return self.a.last.main, self.b.last.main

    @property
    def names(self) -> tuple[str, str]:
        """Of both; where they are alike, as around two foreign commands, their folders."""
        if self.a.name != self.b.name:
            return self.a.name, self.b.name
        return str(self.a.evidence.path), str(self.b.evidence.path)

    @property
    def endings(self) -> tuple[Ending, Ending]:
        return ending(self.a.evidence, self.a.last), ending(self.b.evidence, self.b.last)

    @property
    def highest(self) -> Pair:
        return Pair(*(None if t.highest is None else t.highest.u for t in self.tracks))

    @property
    def seconds(self) -> Pair:
        return Pair(*(track.lasted_s for track in self.tracks))


def compared(a: History, b: History) -> Comparison:
    """Both runs must have been read."""
    one, other = a.last.main, b.last.main
    return Comparison(
        a,
        b,
        _stages(one, other),
        {
            "main": Pair(_main(one), _main(other)),
            "workers": Pair(_workers(one), _workers(other)),
            "processes": Pair(len(process_rows(one.moments)), len(process_rows(other.moments))),
        },
        {part: Pair(_at_highest(one, part), _at_highest(other, part)) for part in PARTS},
        _config_differences(a.evidence, b.evidence),
    )


def to_json(found: Comparison) -> dict[str, Any]:
    """Amounts in bytes, times in seconds; difference: B less A; null where it cannot be told."""

    def told(pair: Pair) -> dict[str, Any]:
        return {"a": pair.a, "b": pair.b, "difference": pair.difference}

    return {
        "version": 1,
        **{
            which: {"run": history.name, "attempt": history.last.number, "ended": end.words}
            for which, history, end in zip("ab", (found.a, found.b), found.endings, strict=True)
        },
        "highest_unreclaimable_bytes": told(found.highest),
        "seconds": told(found.seconds),
        "parts_at_highest_bytes": {name: told(pair) for name, pair in found.parts.items()},
        "highest_anon_bytes": {name: told(found.processes[name]) for name in ("main", "workers")},
        "processes": told(found.processes["processes"]),
        "stages": [
            {
                "path": list(stage.path),
                "thread": stage.thread,
                **{
                    told_as: told(stage.pair(name))
                    for told_as, name in (
                        ("times", "times"),
                        ("seconds", "seconds"),
                        ("highest_bytes", "highest_bytes"),
                        ("after_bytes", "unreclaimable_bytes"),
                        ("change_bytes", "change_bytes"),
                        ("anon_change_bytes", "anon_change_bytes"),
                    )
                },
            }
            for stage in found.stages
        ],
        "config": None if found.config is None else {key: list(pair) for key, pair in found.config.items()},
    }


def _stages(one: Track, other: Track) -> list[StagePair]:
    of_b = {(row.thread, row.path): row for row in other.rows}
    pairs = [StagePair(row.path, row.thread, row, of_b.get((row.thread, row.path))) for row in one.rows]
    known = {(row.thread, row.path) for row in one.rows}
    before: tuple[str | None, tuple[str, ...]] | None = None
    for row in other.rows:
        key = row.thread, row.path
        if key not in known:
            places = [i for i, pair in enumerate(pairs) if (pair.thread, pair.path) == before]
            pairs.insert(places[0] + 1 if places else 0, StagePair(row.path, row.thread, None, row))
        before = key
    return pairs


def _main(track: Track) -> int | None:
    return next((row.highest_bytes for row in process_rows(track.moments) if row.is_main), None)


def _workers(track: Track) -> int | None:
    """What its descendants held together, at most."""
    return max((moment.workers for moment in track.moments if moment.workers is not None), default=None)


def _at_highest(track: Track, part: str) -> int | None:
    return None if track.highest is None else getattr(track.highest, part)


def _config_differences(a: Evidence, b: Evidence) -> dict[str, tuple[str, str]] | None:
    one, other = (mapping(run.run.get("config")) or run.config for run in (a, b))
    if not one or not other:
        return None
    left, right = ({path: _shown(value) for path, value in leaves(run).items()} for run in (one, other))
    keys = [key for key in dict.fromkeys([*left, *right]) if key.split(".")[0] not in _WHERE_IT_RUNS]
    found = {key: (left.get(key, "-"), right.get(key, "-")) for key in keys}
    differ = [(key, pair) for key, pair in found.items() if pair[0] != pair[1]]
    return dict(differ[:DIFFERENCES])


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
