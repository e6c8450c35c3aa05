"""What a rule says, and what all of them together come to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

VERDICTS = (
    "healthy", "oom_cgroup", "oom_host", "oom_gpu", "memory_error", "shm_full", "killed_from_outside",
    "terminated", "timeout", "failed", "unknown",
)  # fmt: skip
CONFIDENCES = ("possible", "likely", "certain")
"""certain: the kernel, Slurm or the run itself says so. likely: several signs agree, and nothing stands
against it. possible: it fits, and so may other things."""


@dataclass(frozen=True)
class Advice:
    """text: what to do and what it costs. override: what to type or to write, None where there is no such
    word.
    """

    text: str
    override: str | None = None


@dataclass(frozen=True)
class Victim:
    """The process that was killed. is_main: the run's own process, not a descendant of it."""

    is_main: bool
    pid: int | None = None
    name: str = ""

    def __str__(self) -> str:
        a_child = "a child process" if self.pid or self.name else "another process than the main one"
        who = "the main process" if self.is_main else a_child
        told = ", ".join(filter(None, [self.name, f"pid {self.pid}" if self.pid else ""]))
        return f"{who} ({told})" if told else who


@dataclass(frozen=True)
class Finding:
    """What one rule found.

    says: one sentence. verdict: how the run ended, of rules that can tell; cause: what made it so.
    evidence: lines, each with its numbers and the file they are from. advice: the best first.
    """

    rule: str
    says: str
    confidence: str
    verdict: str | None = None
    cause: str | None = None
    victim: Victim | None = None
    evidence: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()

    @property
    def rank(self) -> int:
        """3 of `certain` down to 1."""
        return CONFIDENCES.index(self.confidence) + 1


def weaker(confidence: str) -> str:
    """One step less sure."""
    return CONFIDENCES[max(0, CONFIDENCES.index(confidence) - 1)]


@dataclass(frozen=True)
class Explanation:
    """How a run ended and why.

    sentence: the answer in one or two sentences. cause: `none` where there is nothing to explain, `unknown`
    where the evidence does not say. is_running: now; is_waiting: in Slurm's queue. near_limit: U came to 85%
    of its limit, or the kernel killed at it; None where one of the two is not known. limit_bytes: as U was
    highest. confidence: of the verdict; cause_confidence: of the cause. doubts: what speaks against the
    verdict. missing: evidence that is not there, and how to have it next time.
    """

    verdict: str
    cause: str
    sentence: str
    confidence: str
    cause_confidence: str | None = None
    victim: Victim | None = None
    near_limit: bool | None = None
    is_running: bool = False
    is_waiting: bool = False
    peak_bytes: int | None = None
    limit_bytes: int | None = None
    evidence: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    doubts: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Plain values; keys are added, never renamed."""
        return {"version": 1, **asdict(self)}
