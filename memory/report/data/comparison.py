"""Two runs compared: stage by stage, by process, by part of U, and by their configs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from experiment_utils.json_values import leaves, mapping
from memory.report.data.ending import Ending, ending
from memory.report.data.history import History
from memory.report.data.moments import PARTS
from memory.report.data.processes import process_rows
from memory.report.data.stage_rows import StageRow

DIFFERENCES = 40
"""Most keys of two configs that are shown."""
_WHERE_IT_RUNS = ("runs_dir", "study", "tags", "notes", "plan")
_STAGE_AMOUNTS = {
    "times": "times", "seconds": "seconds", "highest_bytes": "highest_bytes",
    "after_bytes": "unreclaimable_bytes", "change_bytes": "change_bytes",
    "anon_change_bytes": "anon_change_bytes",
}  # fmt: skip
"""Key of the JSON -> field of `StageRow`."""


@dataclass(frozen=True)
class Pair:
    """An amount of both runs; None if it is unknown."""

    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        """B - A."""
        return None if self.a is None or self.b is None else self.b - self.a

    def to_json(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b, "difference": self.difference}


@dataclass(frozen=True)
class StagePair:
    """A stage of both runs, paired by its path and thread; None if a run lacks it."""

    path: tuple[str, ...]
    thread: str | None
    a: StageRow | None
    b: StageRow | None

    def pair(self, name: str) -> Pair:
        """An amount of `StageRow`."""
        return Pair(*(None if row is None else getattr(row, name) for row in (self.a, self.b)))


class Comparison:
    """Last attempts of two runs, and their main tracks."""

    def __init__(self, a: History, b: History) -> None:
        self.a, self.b = a, b
        self.tracks = a.last.main, b.last.main

    @property
    def names(self) -> tuple[str, str]:
        """Names of both; their folders if the names are equal."""
        if self.a.name != self.b.name:
            return self.a.name, self.b.name
        return str(self.a.evidence.path), str(self.b.evidence.path)

    @cached_property
    def endings(self) -> tuple[Ending, Ending]:
        return ending(self.a, self.a.last), ending(self.b, self.b.last)

    @property
    def highest(self) -> Pair:
        """Highest U."""
        return Pair(*(None if t.highest is None else t.highest.u for t in self.tracks))

    @property
    def parts(self) -> dict[str, Pair]:
        """Parts of U at its highest."""
        moments = [track.highest for track in self.tracks]
        return {part: Pair(*(getattr(m, part) if m else None for m in moments)) for part in PARTS}

    @property
    def processes(self) -> dict[str, Pair]:
        """Most anon of the main process, and of its workers together."""
        main = (next((r for r in process_rows(t.moments) if r.is_main), None) for t in self.tracks)
        workers = ([m.workers for m in t.moments if m.workers is not None] for t in self.tracks)
        return {
            "main": Pair(*(row.highest_bytes if row else None for row in main)),
            "workers": Pair(*(max(known, default=None) for known in workers)),
        }

    @cached_property
    def stages(self) -> list[StagePair]:
        """Stages in the order of run A; each one of B alone follows the stage before it in B."""
        one, other = ({(row.thread, row.path): row for row in track.rows} for track in self.tracks)
        keys, before = list(one), None
        for key in other:
            if key not in one:
                keys.insert(0 if before is None else keys.index(before) + 1, key)
            before = key
        return [
            StagePair(path, thread, one.get(key), other.get(key)) for key in keys for thread, path in [key]
        ]

    @cached_property
    def config(self) -> dict[str, tuple[str, str]] | None:
        """Key -> (value in A, value in B) as JSON; None if a run has no config."""
        a, b = (mapping(one.evidence.run.get("config")) or one.evidence.config for one in (self.a, self.b))
        if not a or not b:
            return None
        left, right = ({path: _shown(value) for path, value in leaves(run).items()} for run in (a, b))
        keys = [key for key in dict.fromkeys([*left, *right]) if key.split(".")[0] not in _WHERE_IT_RUNS]
        found = {key: (left.get(key, "-"), right.get(key, "-")) for key in keys}
        return dict([(key, pair) for key, pair in found.items() if pair[0] != pair[1]][:DIFFERENCES])

    def to_json(self) -> dict[str, Any]:
        """Amounts in bytes, times in seconds; null is unknown."""
        runs = zip("ab", (self.a, self.b), self.endings, strict=True)
        counts = Pair(*(len(process_rows(track.moments)) for track in self.tracks))
        return {
            "version": 1,
            **{
                which: {"run": one.name, "attempt": one.last.number, "ended": end.words}
                for which, one, end in runs
            },
            "highest_unreclaimable_bytes": self.highest.to_json(),
            "seconds": Pair(*(track.lasted_s for track in self.tracks)).to_json(),
            "parts_at_highest_bytes": {name: pair.to_json() for name, pair in self.parts.items()},
            "highest_anon_bytes": {name: pair.to_json() for name, pair in self.processes.items()},
            "processes": counts.to_json(),
            "stages": [
                {"path": list(stage.path), "thread": stage.thread}
                | {key: stage.pair(name).to_json() for key, name in _STAGE_AMOUNTS.items()}
                for stage in self.stages
            ],
            "config": None if self.config is None else {k: list(pair) for k, pair in self.config.items()},
        }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
