"""Result types: the finding of a row, and the explanation that all rows come to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from memory.explain.evidence.process_memory import Victim

VERDICTS = (
    "healthy", "oom_cgroup", "oom_host", "oom_gpu", "memory_error", "shm_full", "killed_from_outside",
    "terminated", "timeout", "failed", "unknown",
)  # fmt: skip
CONFIDENCES = ("unknown", "likely", "certain")
"""certain: the kernel, Slurm or the run itself says so. likely: several signs agree, none speaks against it.
unknown: it fits, and so do other things."""


@dataclass(frozen=True)
class Advice:
    """Something to change."""

    text: str
    """The change, and its cost."""
    override: str | None = None
    """Words to type or to write; None if there is no such word."""


@dataclass(frozen=True)
class Finding:
    """A row that holds on the evidence."""

    rule: str
    """Name of the row."""
    says: str
    """One sentence."""
    confidence: str
    verdict: str | None = None
    """The end of the run, for rows that can say."""
    cause: str | None = None
    victim: Victim | None = None
    evidence: tuple[str, ...] = ()
    """Lines, each with its numbers and the file they are from."""
    advice: tuple[Advice, ...] = ()
    """The best first."""
    other_causes: tuple[str, ...] = ()
    """Causes that the same evidence fits as well."""

    @property
    def rank(self) -> int:
        """3 for `certain` down to 1."""
        return CONFIDENCES.index(self.confidence) + 1


@dataclass(frozen=True)
class Explanation:
    """The end of a run, and its cause."""

    verdict: str
    cause: str
    """`none` if there is nothing to explain, `unknown` if the evidence does not say."""
    sentence: str
    """The answer in one or two sentences."""
    confidence: str
    """Confidence of the verdict."""
    cause_confidence: str | None = None
    victim: Victim | None = None
    near_limit: bool | None = None
    """U came to 85% of its limit, or the kernel killed at it; None if one of the two is not known."""
    is_running: bool = False
    is_waiting: bool = False
    """In Slurm's queue."""
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    """When U was highest."""
    evidence: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    doubts: tuple[str, ...] = ()
    """Lines that speak against the verdict."""
    missing: tuple[str, ...] = ()
    """Evidence that does not exist, and how to have it next time."""
    findings: tuple[Finding, ...] = field(default=())
    other_causes: tuple[str, ...] = ()
    """Causes that the evidence cannot tell apart from `cause`."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; keys are added, never renamed."""
        return {"version": 1, **asdict(self)}
