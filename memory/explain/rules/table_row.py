"""A row of the table: a condition on the signals, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from experiment_utils.json_values import unsigned
from memory.explain.evidence.process_memory import Victim
from memory.explain.signals import Signals
from memory.explain.verdict.advice import advice_of
from memory.explain.verdict.evidence_lines import lines_of
from memory.explain.verdict.explanation import CONFIDENCES, Finding
from memory.explain.verdict.templates import Text, fill

CERTAIN, LIKELY, UNKNOWN, NO = "certain", "likely", "unknown", ""
"""Confidence of a row; NO: its condition does not hold."""


@dataclass(frozen=True)
class TableRow:
    """One cause of an end, or of its memory."""

    name: str
    sign: str
    """The condition as text, for the docs."""
    when: Callable[[Signals], str]
    """CERTAIN, LIKELY or UNKNOWN if the condition holds, else NO."""
    says: Text
    """One sentence."""
    verdict: Callable[[Signals], str] | str | None = None
    """A code of VERDICTS; None for a row that explains its memory alone."""
    cause: Callable[[Signals], str | None] | str | None = None
    shows: str = ""
    """Names of evidence lines (`verdict.evidence_lines`), the most important first."""
    advice: str = ""
    """Names of advice (`verdict.advice`), the best first."""
    victim: str = ""
    """`main`, `child`, `seen` by the supervisor, or `signalled`: main if signal or error are its own."""
    or_else: Callable[[Signals], tuple[str, ...]] = lambda signals: ()
    """Causes that the same signals fit as well."""

    def find(self, signals: Signals) -> Finding | None:
        """Apply the row; None if its condition does not hold."""
        confidence = self.when(signals)
        if confidence == NO:
            return None
        return Finding(
            rule=self.name,
            says=fill(self.says, signals),
            confidence=confidence,
            verdict=self.verdict(signals) if callable(self.verdict) else self.verdict,
            cause=self.cause(signals) if callable(self.cause) else self.cause,
            other_causes=self.or_else(signals),
            victim=self._victim(signals),
            evidence=lines_of(signals, self.shows),
            advice=advice_of(signals, self.advice),
        )

    def _victim(self, signals: Signals) -> Victim | None:
        seen, outcome = signals.victim, signals.facts.outcome
        if self.victim in ("", "seen"):
            return seen if self.victim else None
        of_error = not signals.signal and signals.error.kind not in ("", "worker_bus")
        is_main = self.victim == "main" or (
            self.victim == "signalled" and (signals.signal_is_certain or of_error)
        )
        if seen is not None and seen.is_main == is_main:
            return seen
        if not is_main:
            return Victim(False, signals.error.pid or None)
        return Victim(True, unsigned(outcome.get("pid"))) if outcome else None


def at_most(*confidences: str) -> str:
    """The weakest."""
    return min(confidences, key=CONFIDENCES.index)


def if_so(condition: object, confidence: str = LIKELY) -> str:
    """The confidence if the condition holds."""
    return confidence if condition else NO
