"""A row of the table: a condition on the signals, and what it means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from experiment_utils.json_values import unsigned
from memory.explain.evidence.process_memory import Victim
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.signals import Signals
from memory.explain.verdict.evidence_lines import (
    counters_line,
    ended_line,
    limit_line,
    peak_line,
    rise_line,
    stack_line,
    stage_line,
)
from memory.explain.verdict.explanation import CONFIDENCES, Advice, Finding

CERTAIN, LIKELY, UNKNOWN, NO = "certain", "likely", "unknown", ""
"""Confidence of a row; NO: its condition does not hold."""

Line = Callable[[RunFacts], str | None]
Lines = Callable[[Signals], Iterable[str | None]]
AdviceOf = Callable[[RunFacts], Iterable[Advice]]

BEFORE_END: tuple[Line, ...] = (peak_line, limit_line, rise_line, stage_line, stack_line)
COUNTED: tuple[Line, ...] = (counters_line, ended_line)


@dataclass(frozen=True)
class TableRow:
    """One cause of an end, or of its memory."""

    name: str
    sign: str
    """The condition as text, for the docs."""
    when: Callable[[Signals], str]
    """CERTAIN, LIKELY or UNKNOWN if the condition holds, else NO."""
    says: Callable[[Signals], str] | str
    """One sentence."""
    verdict: str | None = None
    """A code of VERDICTS; None for a row that explains its memory alone."""
    cause: str | None = None
    shows: tuple[Line, ...] = ()
    """Evidence lines, the most important first; those that are absent are left out."""
    more: Lines = lambda signals: ()
    """Evidence lines of this row, shown before `shows`."""
    advice: AdviceOf | tuple[Advice, ...] = ()
    victim: str = ""
    """`main`, `child`, or `seen`: as the kernel or the supervisor saw it."""
    or_else: Callable[[Signals], tuple[str, ...]] = lambda signals: ()
    """Causes that the same signals fit as well."""

    def find(self, signals: Signals) -> Finding | None:
        """Apply the row; None if its condition does not hold."""
        confidence = self.when(signals)
        if confidence == NO or signals.facts is None:
            return None
        lines = [*self.more(signals), *(line(signals.facts) for line in self.shows)]
        return Finding(
            rule=self.name,
            says=self.says if isinstance(self.says, str) else self.says(signals),
            confidence=confidence,
            verdict=self.verdict,
            cause=self.cause,
            other_causes=self.or_else(signals),
            victim=self._victim(signals),
            evidence=tuple(dict.fromkeys(line for line in lines if line)),
            advice=self.advice if isinstance(self.advice, tuple) else tuple(self.advice(signals.facts)),
        )

    def _victim(self, signals: Signals) -> Victim | None:
        seen, facts = signals.victim, signals.facts
        if self.victim in ("", "seen"):
            return seen if self.victim else None
        is_main = self.victim == "main"
        if seen is not None and seen.is_main == is_main:
            return seen
        if not is_main:
            return Victim(False, signals.error.pid or None)
        return Victim(True, unsigned(facts.outcome.get("pid"))) if facts and facts.outcome else None


def at_most(*confidences: str) -> str:
    """The weakest."""
    return min(confidences, key=CONFIDENCES.index)


def if_so(condition: object, confidence: str = LIKELY) -> str:
    """The confidence if the condition holds."""
    return confidence if condition else NO
