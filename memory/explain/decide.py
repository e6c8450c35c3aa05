"""One verdict and one cause out of the rows that hold."""

from __future__ import annotations

import logging
from dataclasses import replace

from memory.accounting.sacct import SlurmFacts
from memory.explain.evidence.process_memory import Victim
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.read_signals import read_signals
from memory.explain.rules import TABLE
from memory.explain.signals import Signals
from memory.explain.verdict.advice import is_more_memory
from memory.explain.verdict.explanation import CONFIDENCES, Advice, Explanation, Finding
from memory.explain.verdict.missing import missing
from memory.record.evidence import Evidence

log = logging.getLogger("memory")

FAILED = "failed on this evidence"
"""After the name of a row that raised."""
_FOR_MEMORY = ("oom_cgroup", "oom_host", "memory_error")
_OF_LIVING, _NO_DEATH = ("thrash", "leak", "cache"), ("thrash", "throttled", "cache")
_CAUSES = {
    **dict.fromkeys(("timeout", "terminated", "killed_from_outside"), ("thrash",)),
    "healthy": _OF_LIVING,
    "shm_full": ("prefetch",),
}
"""Causes of memory that explain a verdict; the verdicts for memory have all but `thrash` and `cache`."""
_MOST_ADVICE = 7
_NEAR = {"near": True, "far": False, "unknown": None}


def explain(evidence: Evidence, *, slurm: SlurmFacts | None = None) -> Explanation:
    """Explain why a run died, or how close it was. Never raises, whatever the evidence holds.

    Args:
        evidence: Files of a run folder, or a log alone.
        slurm: Answer of accounting about its job, if it was asked (`memory.accounting.sacct.read_slurm`).
    """
    facts = RunFacts(evidence, slurm)
    signals = read_signals(facts)
    findings, broken = find(signals)
    end = choose_end(findings) or Finding(
        "none", "The evidence does not say how it ended", "unknown", verdict="unknown"
    )
    why = _why(end, findings)
    doubts = _doubts(signals, end, findings)
    others = [f for f in findings if f.verdict is None and f.rule not in (end.rule, why.rule if why else "")]
    is_unsure = end.verdict == "unknown" or (end.verdict in (*_FOR_MEMORY, "oom_gpu") and why is None)
    cause = (why.cause if why is not None else None) or ("unknown" if is_unsure else "none")
    notes = [line for f in others if f.cause is None for line in f.evidence]
    return Explanation(
        verdict=end.verdict or "unknown",
        cause=cause,
        sentence=_sentence(end, why),
        confidence=CONFIDENCES[max(0, CONFIDENCES.index(end.confidence) - len(doubts))],
        cause_confidence=why.confidence if why is not None and cause not in ("none", "unknown") else None,
        victim=_victim(end, findings),
        near_limit=True
        if end.verdict in ("oom_cgroup", "healthy") and signals.kill_count
        else _NEAR[signals.nearness],
        is_running=signals.end == "running",
        is_waiting=signals.end == "waiting",
        peak_bytes=facts.peak_bytes,
        limit_bytes=None if signals.unseen_cgroup else facts.limit_bytes,
        evidence=tuple(dict.fromkeys([*end.evidence, *(why.evidence if why else ()), *notes])),
        advice=_advice(end, why, others),
        doubts=doubts,
        missing=(*missing(signals), *broken),
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


def choose_end(findings: list[Finding]) -> Finding | None:
    """The surest end; a good one only if nothing likely speaks against it."""
    ends = [finding for finding in findings if finding.verdict is not None]
    bad = [finding for finding in ends if finding.verdict != "healthy" and finding.rank >= 2]
    well = [finding for finding in ends if finding.verdict == "healthy"]
    return max(bad or well or ends, key=lambda finding: finding.rank, default=None)


def _why(end: Finding, findings: list[Finding]) -> Finding | None:
    """The surest cause that such an end can have; of causes that are all unsure each is named."""
    if end.cause not in (None, "none") and end.verdict in _FOR_MEMORY:
        return end
    if end.verdict in _FOR_MEMORY:
        allowed = [f for f in findings if f.verdict is None and f.cause and f.cause not in _NO_DEATH]
    else:
        same = [
            f for f in findings if f.verdict == end.verdict and f.cause != "none" and f.verdict != "healthy"
        ]
        names = _CAUSES.get(end.verdict or "", ())
        allowed = [f for f in findings if f.verdict is None and f.cause in names]
        allowed = [f for f in allowed or same if f.cause and f.rank >= 2]
    best = max(allowed, key=lambda finding: finding.rank, default=end if end.cause else None)
    if best is None or best.rank > 1:
        return best
    rivals = {f.cause or "": None for f in allowed if f.rank == 1 and f.cause != best.cause}
    return replace(best, other_causes=(*best.other_causes, *rivals))


def _doubts(s: Signals, end: Finding, findings: list[Finding]) -> tuple[str, ...]:
    """Contradictions in the evidence, and other deaths for memory that are as sure."""
    how = s.how_it_ended or "how it ended is not known"
    is_low = 0 < s.peak_share < 0.5 and not s.parts.cache_before_kill
    known = {
        f"outcome.json names the main process as the victim, yet {how}": bool(s.facts.outcome.get("victim"))
        and s.victim is not None and s.victim.is_main and s.signal != "SIGKILL",
        f"status.json says done, yet {how}": s.state == "done" and (s.signal or s.exit_code > 0),
        f"U was seen at {100 * s.peak_share:.0f}% of the limit at most: it rose faster than it was sampled, "
        "or another cgroup's limit was met": end.verdict == "oom_cgroup" and s.kills == "counted" and is_low,
    }  # fmt: skip
    of_memory = (*_FOR_MEMORY, "oom_gpu", "shm_full")
    rivals = {
        finding.verdict: f"just as sure: {finding.says}"
        for finding in findings
        if {finding.verdict, end.verdict} <= set(of_memory) and finding.rank >= end.rank
        if finding.verdict != end.verdict
    }
    return (*(line for line, holds in known.items() if holds), *rivals.values())


def _victim(end: Finding, findings: list[Finding]) -> Victim | None:
    """The victim of the verdict's row, with a pid and a name that another row of the same verdict knows."""
    if end.victim is None or end.verdict == "healthy":
        return end.victim
    same = [f.victim for f in findings if f.verdict == end.verdict and f.victim]
    same = [end.victim, *(victim for victim in same if victim.is_main == end.victim.is_main)]
    pid, name = next((v.pid for v in same if v.pid), None), next((v.name for v in same if v.name), "")
    return replace(end.victim, pid=pid, name=name)


def _sentence(end: Finding, why: Finding | None) -> str:
    first = end.says.rstrip(".") + "."
    if why is None or why.rule == end.rule:
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
