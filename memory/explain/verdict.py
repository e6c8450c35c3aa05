"""One verdict and one cause out of what all rules found."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from memory.evidence import Evidence
from memory.explain.advice import at_least, is_more_memory
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Explanation, Finding, weaker
from memory.explain.missing import missing
from memory.explain.rules import RULES
from memory.explain.rules.jobs import NOT_OVER, waits
from memory.explain.victims import doubts as doubts_of
from memory.sacct import SlurmFacts

log = logging.getLogger("memory")

FAILED = "failed on this evidence"
"""After the name of a rule that raised."""

_FOR_MEMORY = ("oom_cgroup", "oom_host", "memory_error")
_OF_MEMORY = (*_FOR_MEMORY, "oom_gpu", "shm_full")
_CAUSED = (*_FOR_MEMORY, "oom_gpu")
"""Verdicts that something has caused, known or not."""
_NO_CAUSE_OF_DEATH = ("cache", "thrash", "throttled")
_OF_LIVING = ("thrash", "leak", "cache", "throttled")
_MOST_ADVICE = 7
_MORE = "--mem"


def explain(evidence: Evidence, *, slurm: SlurmFacts | None = None) -> Explanation:
    """Why a run died, or how close it was. Never raises, whatever the evidence holds.

    Args:
        evidence: of a run folder, or of a log alone.
        slurm: what accounting says of its job, where it was asked (`memory.sacct.read_slurm`).
    """
    facts = Facts(evidence, slurm)
    findings, broken = _found(facts)
    end = _end(findings)
    if end is None:
        end = Finding("none", "The evidence does not say how it ended", "possible", verdict="unknown")
    why = _why(end, findings)
    doubts = (*doubts_of(facts, end.verdict or "unknown"), *_rivals(end, findings))
    confidence = end.confidence
    for _ in doubts:
        confidence = weaker(confidence)
    others = [f for f in findings if f is not end and f is not why and f.verdict is None]
    plain = [finding for finding in others if finding.cause is None]
    cause = "unknown" if end.verdict == "unknown" or (end.verdict in _CAUSED and why is None) else "none"
    if why is not None and why.cause:
        cause = why.cause
    met = bool(facts.kills) and not facts.met_another_limit
    return Explanation(
        verdict=end.verdict or "unknown",
        cause=cause,
        sentence=_sentence(end, why),
        confidence=confidence,
        cause_confidence=why.confidence if why is not None and cause not in ("none", "unknown") else None,
        victim=_victim(end, findings),
        near_limit=True if end.verdict in ("oom_cgroup", "healthy") and met else facts.near_limit,
        is_running=facts.is_running or (end.rule == NOT_OVER and not waits(facts)),
        is_waiting=end.rule == NOT_OVER and waits(facts),
        peak_bytes=facts.peak_bytes,
        limit_bytes=None if facts.unseen_cgroup else facts.peak_limit_bytes,
        evidence=_unique(
            [*end.evidence, *(why.evidence if why else ()), *(line for f in plain for line in f.evidence)]
        ),
        advice=_advice(end, why, others) or at_least(facts, end.verdict or "unknown"),
        doubts=doubts,
        missing=(*missing(facts), *broken),
        findings=tuple(findings),
    )


def _found(facts: Facts) -> tuple[list[Finding], list[str]]:
    """What the rules say, and which of them could not: one that fails costs itself alone."""
    findings: list[Finding] = []
    broken = []
    for rule in RULES:
        try:
            findings += list(rule(facts))
        except Exception as error:
            log.debug("rule %s failed", rule.__name__, exc_info=error)
            broken.append(f"rule {rule.__name__} {FAILED}: {type(error).__name__}: {error}"[:200])
    return findings, broken


def _end(findings: list[Finding]) -> Finding | None:
    """The surest that tells how it ended; that it ended well only where nothing likely speaks against it."""
    telling = [finding for finding in findings if finding.verdict is not None]
    bad = [finding for finding in telling if finding.verdict != "healthy" and finding.rank >= 2]
    well = [finding for finding in telling if finding.verdict == "healthy"]
    return max(bad or well or telling, key=lambda finding: finding.rank, default=None)


def _why(end: Finding, findings: list[Finding]) -> Finding | None:
    """The surest cause that such an end can have."""
    if end.cause in (None, "none") and end.verdict != "healthy":
        same = [
            f for f in findings if f.verdict == end.verdict and f.cause not in (None, "none") and f.rank >= 2
        ]
        if same:
            return max(same, key=lambda finding: finding.rank)
    causes = [
        finding for finding in findings if finding.verdict is None and finding.cause not in (None, "none")
    ]
    if end.verdict in _FOR_MEMORY:
        if end.cause not in (None, "none"):
            return end
        causes = [finding for finding in causes if finding.cause not in _NO_CAUSE_OF_DEATH]
    elif end.verdict == "shm_full":
        causes = [
            finding for finding in causes if finding.rule == "stale_files" or finding.cause == "prefetch"
        ]
    elif end.verdict == "healthy":
        causes = [finding for finding in causes if finding.cause in _OF_LIVING and finding.rank >= 2]
    elif end.verdict in ("timeout", "terminated", "killed_from_outside") and end.cause in (None, "none"):
        causes = [finding for finding in causes if finding.cause == "thrash"]
    else:
        causes = []
    best = max(causes, key=lambda finding: finding.rank, default=None)
    return best if best is not None else end if end.cause else None


def _rivals(end: Finding, findings: list[Finding]) -> tuple[str, ...]:
    """As sure as the verdict, and of another kind of death for memory."""
    if end.verdict not in _OF_MEMORY:
        return ()
    others = {
        finding.verdict: f"just as sure: {finding.says}"
        for finding in findings
        if finding.verdict in _OF_MEMORY and finding.verdict != end.verdict and finding.rank >= end.rank
    }
    return tuple(others.values())


def _victim(end: Finding, findings: list[Finding]):  # type: ignore[no-untyped-def]
    """Of the verdict's rule; a name that another rule of the same verdict knows is added."""
    if end.victim is None or end.verdict in ("healthy",):
        return end.victim
    same = [
        f.victim
        for f in findings
        if f.verdict == end.verdict and f.victim and f.victim.is_main == end.victim.is_main
    ]
    pid = next((victim.pid for victim in (end.victim, *same) if victim.pid), None)
    name = next((victim.name for victim in (end.victim, *same) if victim.name), "")
    return replace(end.victim, pid=pid, name=name)


def _sentence(end: Finding, why: Finding | None) -> str:
    first = end.says.rstrip(".") + "."
    if why is None or why is end:
        return first
    hedge = {"certain": "", "likely": "Most likely: ", "possible": "Perhaps: "}[why.confidence]
    second = why.says[0].lower() + why.says[1:] if hedge else why.says
    return f"{first} {hedge}{second.rstrip('.')}."


def _advice(end: Finding, why: Finding | None, others: list[Finding]) -> tuple[Advice, ...]:
    """Of the cause first, then of the end; more memory last, whoever says it."""
    # of causes that are as likely as the one that is told, only where none is
    unsure = why is None or why.rank < 2
    sure = [a for f in others if f.cause is None or (unsure and f.rank >= 2) for a in f.advice]
    found: dict[str, Advice] = {}
    for advice in (*(why.advice if why else ()), *end.advice, *sure):
        key = _MORE if is_more_memory(advice) else advice.override or advice.text
        found.setdefault(key, advice)
    memory = found.pop(_MORE, None)
    kept = list(found.values())[: _MOST_ADVICE - 1]
    return (*kept, memory) if memory else tuple(kept)


def _unique(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(lines))
