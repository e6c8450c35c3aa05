"""Usage and RSS at the limit: alarming to look at, no danger, and sometimes slow; and notes on Slurm's
numbers.
"""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.quantities import format_bytes
from memory.constants import LIBRARIES_MAPPED
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.evidence.slurm_rows import own_step
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, TableRow, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.advice import cheapest_first, more_memory, read_by_pread
from memory.explain.verdict.evidence_lines import counters_line, peak_of_limit
from memory.explain.verdict.explanation import Advice
from memory.slurm_meaning import max_rss_meaning


def _cache(s: Signals) -> str:
    is_low = 0 < s.peak_share <= 0.8 and s.limit_at == "cgroup"
    killed = s.kills == "counted" or s.group_kills or s.kernel_named
    return if_so(is_low and s.pressure.usage_share >= 0.9 and not killed, CERTAIN)


def _rss_lines(s: Signals) -> Iterable[str | None]:
    files, twice = format_bytes(s.pressure.rss_files_bytes), format_bytes(s.pressure.rss_twice_bytes)
    yield (
        f"RSS of all processes was up to {format_bytes(s.pressure.rss_bytes)}, of which {files} were "
        "mapped files and "
        f"{twice} anon that is counted more than once (memory.ring)"
    )


def _rss(s: Signals) -> str:
    own = s.pressure
    if not s.limit_bytes or own.rss_bytes <= s.limit_bytes or not 0 < s.peak_share <= 0.9:
        return NO
    return CERTAIN if own.rss_bytes - own.rss_files_bytes - own.rss_twice_bytes <= s.limit_bytes else LIKELY


def _rss_is_files(s: Signals) -> bool:
    own = s.pressure
    return own.rss_bytes - own.rss_files_bytes <= s.limit_bytes or own.rss_files_bytes >= own.rss_twice_bytes


def _thrash_signs(s: Signals) -> list[str]:
    own = s.pressure
    signs = []
    if own.refaulted_bytes_per_s > 4 << 20:
        signs.append(
            f"{format_bytes(own.refaulted_bytes_per_s)}/s of pages were read again that had been dropped"
        )
    if own.stalled_share > 0.1:
        signs.append(
            f"all of its tasks waited for memory {100 * own.stalled_share:.0f}% of the time (PSI full)"
        )
    if own.faults_per_s > 200 and (signs or (not own.refaulted_bytes_per_s and s.limit_hits >= 10_000)):
        signs.append(f"{own.faults_per_s:,.0f} page faults a second had to wait for the disk")
    return signs


def _thrash(s: Signals) -> str:
    signs = _thrash_signs(s)
    return NO if not signs else CERTAIN if len(signs) > 1 else LIKELY


def _thrash_advice(facts: RunFacts) -> Iterable[Advice]:
    held = facts.peak_bytes or 0
    if facts.is_ours and facts.limit_bytes and facts.limit_bytes - held < LIBRARIES_MAPPED.value:
        return cheapest_first(facts, need_bytes=held + int(LIBRARIES_MAPPED.value))
    return read_by_pread(facts)


def _max_rss_lines(s: Signals) -> Iterable[str | None]:
    slurm = s.facts.slurm if s.facts else None
    job = slurm.job if slurm else None
    rows = [row for row in job.rows if row.max_rss_bytes] if job else []
    if not rows or slurm is None or s.facts is None:
        return
    own = own_step(s.facts)
    row = max(rows, key=lambda row: (row.step == own, row.max_rss_bytes or 0))
    asked = f" of {format_bytes(s.slurm.asked_bytes)} requested" if s.slurm.asked_bytes else ""
    yield f"{row.id}: MaxRSS {format_bytes(row.max_rss_bytes or 0)}{asked} ({slurm.source})"
    yield max_rss_meaning(slurm)


def _requeued_lines(s: Signals) -> Iterable[str | None]:
    earlier = s.facts.slurm.earlier if s.facts and s.facts.slurm else ()
    yield from (f"{row} (sacct --duplicates)" for job in earlier[-4:] for row in job.rows[:1])


def _other_tasks(s: Signals) -> Iterable[str | None]:
    slurm = s.facts.slurm if s.facts else None
    job = slurm.job if slurm else None
    if slurm is None or job is None:
        return
    rows = [one.row for one in slurm.last_starts]
    shown = ", ".join(f"{row.job} {row.state}" for row in rows[:6]) + f" and {len(rows) - 6} more" * (
        len(rows) > 6
    )
    other = next((row.job for row in rows if row.job != job.row.job), "")
    yield f"this is {job.row.job}, of {len(rows)} tasks: {shown} ({slurm.source}); another: --job {other}"


ROWS = (
    TableRow(
        "thrash", "for 5 s or more at the limit pages were read again (4 MB/s), tasks stalled (10%), or "
            "faults waited (200/s)",
        _thrash, "It thrashed: the cgroup has too little room for the pages that it reads, drops them and "
            "reads them again",
        None, "thrash", (),
        lambda s: (
            f"over {s.pressure.seconds:.0f} s at the limit {sign} (memory.ring)" for sign in _thrash_signs(s)
        ),
        _thrash_advice,
    ),
    TableRow(
        "swapped", "swap rose by 256 MB or more, and by a tenth of U",
        lambda s: if_so(s.pressure.swap_rose_bytes >= max(256 << 20, 0.1 * s.parts.u)),
        lambda s: f"{format_bytes(s.pressure.swap_rose_bytes)} of it went to swap: it needs more memory "
            "than it may have",
        None, "thrash", (),
        lambda s: (f"swap rose by {format_bytes(s.pressure.swap_rose_bytes)} while it ran "
            "(memory.ring)",), more_memory,
    ),
    TableRow(
        "throttled", "memory.events high rose by 100 or more",
        lambda s: if_so(s.pressure.high_events >= 100),
        "The kernel delayed its allocations: usage was above memory.high",
        None, "throttled", (),
        lambda s: (f"memory.events high rose by {s.pressure.high_events:,} (outcome.json, memory.ring)",),
        lambda facts: (Advice("raise or clear memory.high of the cgroup; or hold less",
        "echo max > memory.high"),),
    ),
    TableRow(
        "cache_at_limit", "usage came to 90% of the limit, U never above 80%, and the kernel killed nothing",
        _cache,
        "Usage at the limit is page cache here, which the kernel gives back: it kills nothing, and more "
        "--mem would not help",
        None, "cache", (counters_line,),
        lambda s: (f"U was never more than {peak_of_limit(s.facts)} (memory.ring)" if s.facts else None,),
        lambda facts: (Advice("leave --mem as it is"),),
    ),
    TableRow(
        "rss_files", "RSS came above the limit by mapped files, U did not",
        lambda s: _rss(s) if _rss_is_files(s) else NO,
        "RSS above the limit is mapped files here, which the kernel takes back: no danger, unless Slurm "
        "polls RSS",
        None, "cache", (), _rss_lines,
    ),
    TableRow(
        "rss_shared", "RSS came above the limit by pages that processes share, U did not",
        lambda s: NO if _rss_is_files(s) else _rss(s),
        "RSS above the limit counts pages once for each process that shares them, the cgroup once: no "
        "danger, unless "
        "Slurm polls RSS",
        None, None, (), _rss_lines,
    ),
    TableRow(
        "one_of_several", "an array or a job of several components was asked for",
        lambda s: if_so(s.slurm.other_tasks, CERTAIN), "It is one of several tasks",
        None, None, (), _other_tasks,
    ),
    TableRow(
        "max_rss", "accounting has a MaxRSS",
        lambda s: if_so(s.slurm.has_max_rss, CERTAIN), "sacct's MaxRSS is not what the kernel counts",
        None, None, (), _max_rss_lines,
    ),
    TableRow(
        "requeued", "accounting has earlier starts of the job",
        lambda s: if_so(s.slurm.starts_before, CERTAIN), "The job was started before",
        None, None, (), _requeued_lines,
        lambda facts: more_memory(facts) if facts.slurm and any(
            row.was_out_of_memory for job in facts.slurm.earlier for row in job.rows
        ) else (),
    ),
)  # fmt: skip
