"""One verdict and one cause out of the rows that hold."""

from __future__ import annotations

import logging
from dataclasses import replace

from memory.accounting.sacct import SlurmFacts
from memory.explain.evidence.process_memory import Victim
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import WAITING
from memory.explain.read_signals import read_signals
from memory.explain.rules import TABLE
from memory.explain.signals import Signals
from memory.explain.verdict.advice import at_least
from memory.explain.verdict.explanation import Advice, Explanation, Finding, weaker
from memory.explain.verdict.missing import missing
from memory.explain.verdict.smaller_or_more import is_more_memory
from memory.record.evidence import Evidence

log = logging.getLogger("memory")

FAILED = "failed on this evidence"
"""After the name of a row that raised."""
_FOR_MEMORY = ("oom_cgroup", "oom_host", "memory_error")
_OF_MEMORY = (*_FOR_MEMORY, "oom_gpu", "shm_full")
_NO_CAUSE_OF_DEATH = ("cache", "thrash", "throttled")
_OF_LIVING = ("thrash", "leak", "cache", "throttled")

_MOST_ADVICE = 7


def explain(evidence: Evidence, *, slurm: SlurmFacts | None = None) -> Explanation:
    """Explain why a run died, or how close it was. Never raises, whatever the evidence holds.

    Args:
        evidence: Files of a run folder, or a log alone.
        slurm: Answer of accounting about its job, if it was asked (`memory.accounting.sacct.read_slurm`).
    """
    facts = RunFacts(evidence, slurm)
    signals = read_signals(facts)
    findings, broken = find(signals)
    end = _end(findings)
    if end is None:
        end = Finding("none", "The evidence does not say how it ended", "unknown", verdict="unknown")
    why = _why(end, findings)
    doubts = (*_doubts(signals, end), *_rivals(end, findings))
    confidence = end.confidence
    for _ in doubts:
        confidence = weaker(confidence)
    others = [f for f in findings if f.verdict is None and f.rule not in (end.rule, why.rule if why else "")]
    is_caused = end.verdict in (*_FOR_MEMORY, "oom_gpu")
    cause = "unknown" if end.verdict == "unknown" or (is_caused and why is None) else "none"
    if why is not None and why.cause:
        cause = why.cause
    met = signals.kills == "counted" and not signals.never_at_limit
    waits = end.rule == "not_over" and signals.slurm.state in WAITING
    notes = [line for f in others if f.cause is None for line in f.evidence]
    return Explanation(
        verdict=end.verdict or "unknown",
        cause=cause,
        sentence=_sentence(end, why),
        confidence=confidence,
        cause_confidence=why.confidence if why is not None and cause not in ("none", "unknown") else None,
        victim=_victim(end, findings),
        near_limit=True if end.verdict in ("oom_cgroup", "healthy") and met else facts.near_limit,
        is_running=signals.end == "running" or (end.rule == "not_over" and not waits),
        is_waiting=waits,
        peak_bytes=facts.peak_bytes,
        limit_bytes=None if facts.unseen_cgroup else facts.peak_limit_bytes,
        evidence=tuple(dict.fromkeys([*end.evidence, *(why.evidence if why else ()), *notes])),
        advice=_advice(end, why, others) or at_least(signals, end.verdict or "unknown"),
        doubts=doubts,
        missing=(*missing(facts), *broken),
        findings=tuple(findings),
        other_causes=why.other_causes if why is not None else (),
    )


def find(signals: Signals) -> tuple[list[Finding], list[str]]:
    """Apply all rows; a row that fails on this evidence costs itself alone, and is named."""
    findings, broken = [], []
    for row in TABLE:
        try:
            found = row.find(signals)
        except Exception as error:
            log.debug("row %s failed", row.name, exc_info=error)
            broken.append(f"row {row.name} {FAILED}: {type(error).__name__}: {error}"[:200])
        else:
            findings += [found] if found is not None else []
    return findings, broken


def _end(findings: list[Finding]) -> Finding | None:
    """The surest end; a good one only if nothing likely speaks against it."""
    ends = [finding for finding in findings if finding.verdict is not None]
    bad = [finding for finding in ends if finding.verdict != "healthy" and finding.rank >= 2]
    well = [finding for finding in ends if finding.verdict == "healthy"]
    return max(bad or well or ends, key=lambda finding: finding.rank, default=None)


def _why(end: Finding, findings: list[Finding]) -> Finding | None:
    """The surest cause that such an end can have; of causes that are all unsure each is named."""
    if end.cause in (None, "none") and end.verdict != "healthy":
        same = [
            f for f in findings if f.verdict == end.verdict and f.cause not in (None, "none") and f.rank >= 2
        ]
        if same:
            return max(same, key=lambda finding: finding.rank)
    causes = [f for f in findings if f.verdict is None and f.cause not in (None, "none")]
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
    if best is None:
        return end if end.cause else None
    rivals = {f.cause or "": None for f in causes if best.rank == f.rank == 1 and f.cause != best.cause}
    return replace(best, other_causes=(*best.other_causes, *rivals))


def _rivals(end: Finding, findings: list[Finding]) -> tuple[str, ...]:
    """Verdicts of another kind of death for memory that are as sure."""
    if end.verdict not in _OF_MEMORY:
        return ()
    others = {
        finding.verdict: f"just as sure: {finding.says}"
        for finding in findings
        if finding.verdict in _OF_MEMORY and finding.verdict != end.verdict and finding.rank >= end.rank
    }
    return tuple(others.values())


def _doubts(s: Signals, end: Finding) -> tuple[str, ...]:
    """Contradictions in the evidence, or with the verdict."""
    found, outcome = [], s.facts.outcome
    how = s.facts.how_it_ended or "how it ended is not known"
    if s.victim is not None and s.victim.is_main and outcome.get("victim") and s.signal != "SIGKILL":
        found.append(f"outcome.json names the main process as the victim, yet {how}")
    if s.facts.exit_code == 0 and outcome.get("signal"):
        found.append(f"outcome.json says both exit code 0 and {s.signal}")
    if s.facts.state == "done" and (s.signal or s.exit_code > 0):
        found.append(f"status.json says done, yet {how}")
    far = 0 < s.peak_share < 0.5 and not s.parts.cache_before_kill
    if end.verdict == "oom_cgroup" and s.kills == "counted" and far:
        found.append(
            f"the highest U seen was {100 * s.peak_share:.0f}% of the limit: it rose faster than it was "
            "sampled, or "
            "another cgroup's limit was met"
        )
    return tuple(found)


def _victim(end: Finding, findings: list[Finding]) -> Victim | None:
    """The victim of the verdict's row, with a name that another row of the same verdict knows."""
    if end.victim is None or end.verdict == "healthy":
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
    hedge = {"certain": "", "likely": "Most likely: ", "unknown": "Perhaps: "}[why.confidence]
    second = why.says[0].lower() + why.says[1:] if hedge else why.says
    return f"{first} {hedge}{second.rstrip('.')}."


def _advice(end: Finding, why: Finding | None, others: list[Finding]) -> tuple[Advice, ...]:
    """Advice of the cause first, then of the end; more memory once, and last."""
    unsure = why is None or why.rank < 2
    more = [advice for f in others if f.cause is None or (unsure and f.rank >= 2) for advice in f.advice]
    found: dict[str, Advice] = {}
    for advice in (*(why.advice if why else ()), *end.advice, *more):
        key = "--mem" if is_more_memory(advice) else advice.override or advice.text
        found.setdefault(key, advice)
    memory = found.pop("--mem", None)
    kept = list(found.values())[: _MOST_ADVICE - 1]
    return (*kept, memory) if memory else tuple(kept)
