"""Runs that ended well, that run, and those whose end is not known."""

from __future__ import annotations

from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.table_row import BEFORE_END, CERTAIN, UNKNOWN, TableRow, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.advice import run_with_us
from memory.explain.verdict.evidence_lines import (
    counters_line,
    ended_line,
    limit_line,
    of_limit,
    peak_line,
    stage_line,
)
from memory.explain.verdict.explanation import Advice


def _kill_of_others(s: Signals) -> str:
    if s.kills != "counted":
        return ""
    times = "once" if s.kill_count == 1 else f"{s.kill_count:,} times"
    met = f" (the limit was met {s.limit_hits:,} times)" if s.limit_hits else ""
    return (
        f". In its cgroup the kernel killed for memory {times}{met}: another process than this run's, "
        "by all signs"
    )


def _says_running(s: Signals) -> str:
    last = s.facts.u_series[-1][1] if s.facts and s.facts.u_series else None
    now = f": U is {of_limit(s.facts, last)}" if last is not None and s.facts else ""
    return f"It is running{now}{_kill_of_others(s)}"


def _says_lost(s: Signals) -> str:
    if s.is_unwatched and s.facts:
        lived_s = s.facts.unwatched_s or 0.0
        return (
            f"How it ended is not known: its supervisor was killed, and it ran for {lived_s:.0f} s more "
            "at least"
        )
    if s.facts and s.facts.records and not (s.has_samples or s.facts.state or s.facts.open_stages):
        return "How it ended is not known: it had no supervisor. Every stage that it began also ended"
    if s.has_samples:
        return (
            "It left no word of its end, and neither did its supervisor: both were killed, or the "
            "machine went down"
        )
    return "It left no word of its end: it was killed, or the machine went down"


def _sample_it(facts: RunFacts) -> tuple[Advice, ...]:
    return () if facts.samples else (run_with_us(),)


ROWS = (
    TableRow(
        "running", "its process lives, or it was heard of within half a minute",
        lambda s: if_so(s.end == "running"), _says_running,
        "healthy", "none", (stage_line, peak_line, limit_line, counters_line),
    ),
    TableRow(
        "ended_well", "exit status 0, or the state `done`",
        lambda s: if_so(s.end == "ok", CERTAIN),
        lambda s: "It ended "
            f"well{f', after {s.asked_by} had asked it to stop' if s.asked_by else ''}{_kill_of_others(s)}",
        "healthy", "none", (ended_line, peak_line, limit_line, counters_line),
        advice=lambda facts: () if facts.samples or facts.records else (run_with_us(),),
    ),
    TableRow(
        "lost", "it left files, does not run, and nothing says how it ended",
        lambda s: if_so(s.end == "lost", UNKNOWN), _says_lost,
        "unknown", None, BEFORE_END, advice=_sample_it,
    ),
    TableRow(
        "no_evidence", "there is no file of a run, no log and no row",
        lambda s: if_so(s.end == "no evidence", CERTAIN), "There is no evidence here of any run",
        "unknown", None, advice=_sample_it,
    ),
)  # fmt: skip
