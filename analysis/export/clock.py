"""When each step was done: metrics.csv counts seconds of training alone, memory.jsonl has the time of day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiment_utils.json_values import is_number

_STAGES = ("first_step", "train")


class WallClock:
    """A step's time: that at which its stage began, and the seconds of training since.

    Where no stage is known, as of most runs of an ensemble, attempts stand for them, whose setup and
    evaluations are then missing in the times.
    """

    def __init__(self, attempts: Any, otherwise_s: float) -> None:
        """attempts: those of run.json. otherwise_s: Unix time to use if neither has one."""
        self._stages: list[tuple[int, float]] = []
        self._attempts: list[tuple[int, float]] = []
        for attempt in attempts if isinstance(attempts, Sequence) else ():
            if isinstance(attempt, Mapping):
                _add(self._attempts, attempt.get("resumed_from_step") or 0, attempt.get("started_s"))
        self._otherwise_s = otherwise_s
        self._last_step, self._last_s = 0, 0.0
        self._begun: tuple[int, float] | None = None
        self._seconds_then = 0.0

    def add(self, record: Mapping[str, Any]) -> None:
        """One of memory.jsonl. Stages of an attempt that began at an earlier step replace those behind."""
        if record.get("event") == "begin" and record.get("stage") in _STAGES and not record.get("depth"):
            facts = record.get("facts")
            step = facts.get("step") if isinstance(facts, Mapping) else None
            _add(self._stages, step, record.get("time_s"))

    def time_of(self, step: int, seconds: float) -> float:
        """Unix time of the end of a step; to be asked for one step after the other. seconds: of its row."""
        begun = self._begun_before(step)
        if begun != self._begun or step <= self._last_step:
            self._begun = begun
            self._seconds_then = self._last_s if self._last_step < step else 0.0
        self._last_step, self._last_s = step, seconds
        return (self._otherwise_s if begun is None else begun[1]) + max(0.0, seconds - self._seconds_then)

    def _begun_before(self, step: int) -> tuple[int, float] | None:
        known = self._stages or self._attempts
        if self._begun is not None and known and known[-1] == self._begun and known[-1][0] < step:
            return self._begun  # mostly: a row of the newest stage
        low, high = 0, len(known)
        while low < high:  # the last that began at an earlier step
            middle = (low + high) // 2
            low, high = (middle + 1, high) if known[middle][0] < step else (low, middle)
        return known[low - 1] if low else None


def _add(known: list[tuple[int, float]], step: Any, time_s: Any) -> None:
    if not isinstance(step, int) or not is_number(time_s):
        return
    while known and known[-1][0] >= step:
        known.pop()
    known.append((step, float(time_s)))
