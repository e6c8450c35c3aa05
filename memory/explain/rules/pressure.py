"""Page cache at the limit: alarming to look at, no danger, and sometimes slow."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median_high

from experiment_utils.quantities import format_bytes
from memory.constants import LIBRARIES_MAPPED
from memory.explain.advice import cheapest_first, read_by_pread
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.telling import all_of, counters_line, of_limit, peak_of_limit
from memory.samples import Sample

_PAGE_BYTES = 4096
_LONG_S = 5.0
_REFAULTS_BYTES_PER_S = 4 << 20
_FAULTS_PER_S = 200.0
_STALLED = 0.1


def cache_at_the_limit(facts: Facts) -> Iterator[Finding]:
    """Usage stands at the limit, U does not: what fills it is page cache, which the kernel gives back."""
    known = [(sample.usage_bytes, sample.limit_bytes or facts.limit_bytes) for sample in facts.samples]
    shares = [(usage / limit, usage, limit) for usage, limit in known if usage is not None and limit]
    share, usage, limit = max(shares, default=(0.0, 0, 0))
    if facts.peak_share is None or facts.limit_at == "host" or share < 0.9 or facts.peak_share > 0.8:
        return
    if facts.kills or facts.group_kills or facts.kernel_named_victim:
        return  # U went to the limit all the same, between two samples
    cache = max((value for _, value in facts.series("cache_bytes")), default=None)
    yield Finding(
        rule="cache_at_the_limit",
        says="Usage at the limit is page cache here, which the kernel gives back: it kills nothing, and more "
        "--mem would not help",
        confidence="certain",
        cause="cache",
        evidence=all_of(
            f"usage was {of_limit(facts, usage, limit)}, U never more than "
            f"{peak_of_limit(facts)} "
            "(memory.ring)",
            f"page cache was up to {format_bytes(cache)} (memory.ring)" if cache else None,
            counters_line(facts),
        ),
        advice=(Advice("leave --mem as it is"),),
    )


def rss_above_the_limit(facts: Facts) -> Iterator[Finding]:
    """What top and Slurm's poll show: mapped files, and a page in five processes counted five times."""
    known = [sample for sample in facts.samples if sample.tree_rss_bytes]
    top = max(known, key=lambda sample: sample.tree_rss_bytes or 0, default=None)
    rss = top.tree_rss_bytes or 0 if top is not None else 0
    if top is None or not facts.limit_bytes or rss <= facts.limit_bytes or (facts.peak_share or 1.0) > 0.9:
        return
    files = top.tree_file_bytes or 0
    shared = max(0, (top.tree_anon_bytes or 0) - (top.anon_bytes or 0)) if top.anon_bytes is not None else 0
    by_files = rss - files <= facts.limit_bytes or files >= shared
    what = (
        "mapped files here, which the kernel takes back"
        if by_files
        else "pages that processes share since a fork: each counts them, the cgroup once"
    )
    yield Finding(
        rule="rss_above_the_limit",
        says=f"RSS above the limit is {what}: no danger, unless Slurm polls RSS",
        confidence="certain" if rss - files - shared <= facts.limit_bytes else "likely",
        cause="cache" if by_files else None,
        evidence=(
            f"RSS of all processes was up to {of_limit(facts, rss)}, of which {format_bytes(files)} mapped "
            f"files{f', {format_bytes(shared)} anon that is counted more than once' * (shared > 0)}; U "
            f"never more than {peak_of_limit(facts)} (memory.ring)",
        ),
    )


def thrash(facts: Facts) -> Iterator[Finding]:
    """Pages are dropped and read again, over and over: the run is slow, and nothing kills it."""
    found = [(sample, sample.limit_bytes or facts.limit_bytes) for sample in facts.samples]
    at_limit = [sample for sample, limit in found if limit and (sample.usage_bytes or 0) >= 0.9 * limit]
    if len(at_limit) < 3 or facts.limit_at == "host":
        return
    first, last = at_limit[0], at_limit[-1]
    seconds = last.time_s - first.time_s
    if seconds < _LONG_S:
        return
    refaulted = _per_s(first.refaults, last.refaults, seconds)
    faults = _per_s(first.major_faults, last.major_faults, seconds)
    stalled = _per_s(first.stalled_us, last.stalled_us, seconds)
    signs = []
    if refaulted is not None and refaulted * _PAGE_BYTES > _REFAULTS_BYTES_PER_S:
        signs.append(
            f"{format_bytes(refaulted * _PAGE_BYTES)}/s of pages were read again that had been dropped"
        )
    if stalled is not None and stalled / 1e6 > _STALLED:
        signs.append(f"all of its tasks waited for memory {100 * stalled / 1e6:.0f}% of the time (PSI full)")
    if faults is not None and faults > _FAULTS_PER_S:
        signs.append(f"{faults:,.0f} page faults a second had to wait for the disk")
    # reading a large file once also faults from disk; on v1 that and the hits of the limit are all there is
    only_faults = len(signs) == 1 and "page faults" in signs[0]
    if not signs or (only_faults and (refaulted is not None or (facts.limit_hits or 0) < 10_000)):
        return
    held = _held_beside_code(facts, at_limit)
    of_what = "the pages it reads" if held is None else "the code of Python and torch beside what it holds"
    yield Finding(
        rule="thrash",
        says=f"It thrashed: the cgroup has no room for {of_what}, and drops and reads them again",
        confidence="certain" if len(signs) > 1 else "likely",
        cause="thrash",
        evidence=tuple(f"over {seconds:.0f} s at the limit {sign} (memory.ring)" for sign in signs),
        advice=read_by_pread(facts)
        if held is None
        else cheapest_first(facts, need_bytes=held + int(LIBRARIES_MAPPED.value)),
    )


def _held_beside_code(facts: Facts, at_limit: list[Sample]) -> int | None:
    """U of a run of ours that leaves less than its libraries map: they thrash, however data are read.

    U is the median there: the last samples before a kill are higher, and say nothing of the time before.
    """
    held = median_high([sample.unreclaimable_bytes or 0 for sample in at_limit])
    limit = facts.limit_bytes
    is_full = facts.is_ours and held and limit and limit - held < LIBRARIES_MAPPED.value
    return held if is_full else None


def throttled(facts: Facts) -> Iterator[Finding]:
    """memory.high: below the limit the kernel already slows every allocation."""
    rose = facts.counted("high", "high_events")
    if not rose or rose < 100:
        return
    yield Finding(
        rule="throttled",
        says="The kernel held its allocations up: usage was above memory.high",
        confidence="likely",
        cause="throttled",
        evidence=(f"memory.events high rose by {rose:,} (outcome.json, memory.ring)",),
        advice=(Advice("raise or clear memory.high of the cgroup; or hold less", "echo max > memory.high"),),
    )


def swapped(facts: Facts) -> Iterator[Finding]:
    """Part of it was written to swap: slow, and --mem is not what it needs in all."""
    points = facts.series("swap_bytes")
    rose = (max(value for _, value in points) - points[0][1]) if points else 0
    if rose < 256 << 20 or (facts.peak_bytes and rose < 0.1 * facts.peak_bytes):
        return
    yield Finding(
        rule="swapped",
        says=f"{format_bytes(rose)} of it went to swap: it needs more memory than it may have",
        confidence="likely",
        cause="thrash",
        evidence=(f"swap rose by {format_bytes(rose)} while it ran (memory.ring)",),
        advice=(),
    )


def _per_s(first: int | None, last: int | None, seconds: float) -> float | None:
    return None if first is None or last is None or last < first else (last - first) / seconds
