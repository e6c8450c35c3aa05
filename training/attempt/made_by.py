"""Versions of the code that made the runs of a study, from what each attempt records in run.json."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiment_utils.json_values import is_number

_SHORT = 7
_NAMED = 3


@dataclass(frozen=True)
class Code:
    """A version of the code that computes."""

    hash: str
    """Content hash, 16 hex digits."""
    commit: str | None = None
    """Git commit of a tree without changes; None if there was none."""
    started_s: float = math.inf
    """Unix time of the start of the attempt."""

    @property
    def name(self) -> str:
        """`1a2b3c4`, or `1a2b3c4@536eabc` if the commit is known."""
        return self.hash[:_SHORT] + (f"@{self.commit[:_SHORT]}" if self.commit else "")


def codes_of(run: Mapping[str, Any]) -> list[Code | None]:
    """The code of each attempt since the run last began at step 0, oldest first. Never raises.

    Args:
        run: the content of run.json.

    Returns:
        None for an attempt without a record.
    """
    attempts = run.get("attempts")
    codes: list[Code | None] = []
    for attempt in attempts if isinstance(attempts, list) else []:
        if isinstance(attempt, dict) and attempt.get("again") is True:
            codes = []
        codes.append(_code(attempt))
    return codes


def _code(attempt: Any) -> Code | None:
    code = attempt.get("code") if isinstance(attempt, dict) else None
    if not isinstance(code, dict) or not isinstance(code.get("hash"), str):
        return None
    commit, started_s = code.get("commit"), attempt.get("started_s")
    return Code(
        hash=code["hash"],
        commit=commit if isinstance(commit, str) and code.get("dirty") is False else None,
        started_s=started_s if is_number(started_s) else math.inf,
    )


class Versions:
    """The versions that made some runs, in the order of their first use.

    Args:
        runs: (name of the run, code of each of its attempts), in the order of the study. A run without
            attempts has no version.
    """

    def __init__(self, runs: Iterable[tuple[str, Sequence[Code | None]]]) -> None:
        self._newest: list[tuple[str, str | None]] = []
        self._continued: list[str] = []
        found: list[Code] = []
        for run, attempts in runs:
            if not attempts:
                continue
            known = [code for code in attempts if code is not None]
            found += known
            self._newest.append((run, attempts[-1].hash if attempts[-1] is not None else None))
            if len({code.hash for code in known}) > 1:
                self._continued.append(run)
        self._codes: dict[str, Code] = {}
        for code in sorted(found, key=lambda code: code.started_s):
            if self._codes.setdefault(code.hash, code).commit is None and code.commit is not None:
                self._codes[code.hash] = code

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def are_several(self) -> bool:
        return len(self._codes) > 1

    def name_of(self, attempts: Sequence[Code | None]) -> str | None:
        """Name of a run's version; all of them joined by `+` if its attempts differ; None if unknown."""
        if not attempts or attempts[-1] is None:
            return None
        return "+".join(dict.fromkeys(self._codes[code.hash].name for code in attempts if code is not None))

    def notes(self) -> list[str]:
        """Lines below a table or an answer; none if one version made all runs."""
        counts = Counter(newest for _, newest in self._newest)
        unknown = counts.pop(None, 0)
        lines = []
        if self.are_several:
            listed = ", ".join(f"{code.name} ({_runs(counts[code.hash])})" for code in self._codes.values())
            lines.append(f"made by {len(self._codes)} versions of the code: {listed}")
        if self._continued:
            shown = ", ".join(self._continued[:_NAMED])
            more = f" and {len(self._continued) - _NAMED} more" if len(self._continued) > _NAMED else ""
            lines.append(f"continued with other code (code=any): {shown}{more}")
        if unknown and self._codes:
            lines.append(f"{_runs(unknown)} recorded no code: the version is unknown")
        return lines

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values; keys are added, never renamed. Runs without a record have the hash null."""
        found: list[dict[str, Any]] = [
            {"name": code.name, "hash": code.hash, "commit": code.commit, "runs": self._runs_of(code.hash)}
            for code in self._codes.values()
        ]
        unknown = self._runs_of(None)
        return found + ([{"name": None, "hash": None, "commit": None, "runs": unknown}] if unknown else [])

    def _runs_of(self, newest: str | None) -> list[str]:
        return [run for run, own in self._newest if own == newest]


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count != 1)}"
