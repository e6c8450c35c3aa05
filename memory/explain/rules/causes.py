"""Causes: neighbours, workers, shared memory, files, a leak, the kernel, growth; and pressure."""

from __future__ import annotations

from experiment_utils.quantities import format_bytes
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.evidence_lines import of_limit, thrash_signs

_SPAWNED_BYTES = 24 << 20
"""A spawned interpreter with torch takes 148 MB of anon, a forked one 14."""
_LEAST_BYTES = 32 << 20


def _worth(s: Signals, amount: float, share: float = 0.1) -> bool:
    return amount >= max(_LEAST_BYTES, share * s.limit_bytes)


# Processes


def _neighbours(s: Signals) -> str:
    others = s.neighbours
    grew = others.share > 0.2 and 0 < 0.6 * others.rise_bytes < others.of_rise_bytes
    near = s.nearness == "near" and s.limit_at == "cgroup"
    return if_so((others.share >= 0.5 or grew) and near and not s.slurm.started_killed_step)


def _copied(s: Signals) -> str:
    own = s.workers
    if not own.are_forked or not _worth(s, own.copied_bytes) or own.copied_bytes < own.own_bytes:
        return NO
    return LIKELY if own.all_seen else UNKNOWN


def _workers(s: Signals) -> str:
    own = s.workers
    if own.count < 2 or own.own_bytes < 0.4 * s.parts.u or own.largest_bytes > 0.6 * own.own_bytes:
        return NO
    if _copied(s) or (own.count < 3 and own.smallest_bytes < _SPAWNED_BYTES):
        return NO
    return LIKELY if own.largest_bytes < 3 * max(1, own.smallest_bytes) else UNKNOWN


def _shared(s: Signals, *, of_workers: bool) -> str:
    if s.shared.share < 0.35 or not _worth(s, s.shared.share * s.parts.u) or not s.limit_bytes:
        return NO
    return if_so(s.shared.is_of_workers == of_workers)


def _stale(s: Signals) -> str:
    against = min(filter(None, (s.limit_bytes, s.shared.total_bytes)), default=0)
    if not against or s.shared.before_bytes < max(_LEAST_BYTES, 0.2 * against):
        return NO
    return LIKELY if s.shared.full >= 0.9 else UNKNOWN


# Files that became anon memory


def _rose(s: Signals) -> bool:
    """By a good part of the limit, or of a machine's memory."""
    return s.rise is not None and s.rise.bytes > (0.15 * s.limit_bytes if s.limit_bytes else 256 << 20)


def _by_cache(s: Signals) -> bool:
    """Page cache came with anon memory, within half a minute."""
    return 0.2 <= s.files.cache_per_anon <= 1.5 and s.files.is_quick and _rose(s)


def _whole_file(s: Signals) -> str:
    by_size = bool(s.files.width) and s.files.is_quick
    by_workers = s.workers.own_bytes > 0.5 * s.parts.u
    return if_so((_by_cache(s) or by_size) and not s.files.at_assignment and not by_workers)


def _or_else_than_file(s: Signals) -> tuple[str, ...]:
    """A program that grows for another reason while it reads looks the same without page cache."""
    if s.files.width and (s.files.is_named_by_stage or s.files.in_cache):
        return ()
    return ("private_writes",) if _by_cache(s) else ("growth",)


def _says_whole_file(s: Signals) -> str:
    if not s.files.width:
        return "A file was read whole into memory, or pages of a private map of one were written to"
    wider = " (as a wider type, or as Python objects)" * (s.files.width > 1)
    size = f"{format_bytes(s.files.size_bytes)}, x{s.files.width}{wider}"
    return f"A file was read whole into memory: {s.files.name or 'the file'}, {size}"


# The kernel, growth


def _page_tables(s: Signals) -> bool:
    return s.parts.page_tables > max(_LEAST_BYTES, 0.25 * s.parts.u)


def _kernel(s: Signals) -> str:
    is_large = s.parts.kernel > max(64 << 20, 0.4 * s.parts.u)
    return if_so(is_large and not _page_tables(s) and s.died, UNKNOWN)


def _says_leak(s: Signals) -> str:
    if s.leak is None:
        return ""
    eta = f". At that rate the limit is reached in {s.leak.eta}" if s.leak.eta and not s.was_killed else ""
    return f"Memory grew steadily, by {s.leak.rate}{eta}"


def _grew(s: Signals) -> bool:
    return s.rise is not None and s.nearness == "near" and s.rise.bytes >= 0.2 * s.limit_bytes


_WORDS = {
    "shmem": "shared memory", "kernel": "the kernel's own memory (pipes, sockets, page tables)",
    "locked": "files that are locked in memory and could not be given back", "anon": "anon memory",
}  # fmt: skip


def _says_growth(s: Signals) -> str:
    if not s.has_samples and s.rise is None:
        return "What filled it is not known: there are no samples"
    if s.rise is None or not _grew(s):
        cache = ", or is page cache that could not be given back" * bool(s.parts.cache_before_kill)
        return f"What filled it rose between two samples{cache}"
    late = ", most of it within two seconds" * (s.rise.is_jump and s.rise.seconds > 2)
    most = f", mostly {_WORDS[s.rose_by]}" if s.rose_by else ""
    return f"Memory grew to {of_limit(s.facts, s.rise.to_bytes)}{late}{most}"


def _growth(s: Signals) -> str:
    if _grew(s):
        return UNKNOWN if s.rose_by in ("shmem", "kernel") else LIKELY
    is_plain = s.has_samples and not s.parts.cache_before_kill
    return if_so(s.kills == "counted", LIKELY if is_plain else UNKNOWN)


# Usage and RSS at the limit: alarming to look at, no danger


def _cache(s: Signals) -> str:
    is_low = 0 < s.peak_share <= 0.8 and s.limit_at == "cgroup"
    killed = s.kills == "counted" or s.group_kills or s.kernel_named
    return if_so(is_low and s.pressure.usage_share >= 0.9 and not killed, CERTAIN)


def _rss(s: Signals) -> str:
    own = s.pressure
    if not s.limit_bytes or own.rss_bytes <= s.limit_bytes or not 0 < s.peak_share <= 0.9:
        return NO
    return LIKELY


def _rss_cause(s: Signals) -> str | None:
    return "cache" if s.pressure.rss_bytes - s.pressure.rss_files_bytes <= s.limit_bytes else None


def _thrash(s: Signals) -> str:
    swapped = s.pressure.swap_rose_bytes >= max(256 << 20, 0.1 * s.parts.u)
    signs = len(thrash_signs(s)) + swapped
    return NO if not signs else CERTAIN if signs > 1 else LIKELY


ROWS = (
    TableRow(
        "neighbours",
        "U was near the limit, and half of it, or most of its last rise, belonged to others in the cgroup",
        _neighbours,
        lambda s: f"{100 * s.neighbours.share:.0f}% of what counted against the limit belonged to no process "
        "of this run",
        None, "neighbours", "peak_of_others parts", "own_job more_memory",
    ),
    TableRow(
        "copy_on_write",
        "children began with the anon of the main process, and the cgroup's anon outgrew that of all "
        "processes",
        _copied,
        "Forked workers copied what they shared with the main process: no process grew, together they did",
        None, "copy_on_write", "copies parts rise", "arrays no_workers more_memory",
        or_else=lambda s: () if s.workers.all_seen else ("neighbours",),
    ),
    TableRow(
        "stale_files", "a fifth of the limit or of /dev/shm was in /dev/shm before the run began",
        _stale,
        lambda s: f"{format_bytes(s.shared.before_bytes)} were in /dev/shm before it began: most likely of "
        "runs that were killed",
        None, "shmem", "shm", "stale_files",
    ),
    TableRow(
        "prefetch", "a third of U was shared memory, mapped by each child in part, and little by the main "
        "process",
        lambda s: _shared(s, of_workers=True),
        "Batches that workers hold ready fill shared memory: workers x batches ahead x the size of a batch",
        None, "prefetch", "parts rise", "no_workers fewer_batches more_memory",
    ),
    TableRow(
        "shared_memory", "a third of U was shared memory of the main process, of several at a time, or of "
        "none",
        lambda s: _shared(s, of_workers=False),
        "Shared memory filled it: files in /dev/shm or another tmpfs, a memfd or a shared map",
        None, "shmem", "parts shm rise", "fewer_files more_memory",
    ),
    TableRow(
        "workers", "three children or more hold 40% of U themselves, none of them most of it",
        _workers,
        lambda s: f"{s.workers.count} worker processes together hold {format_bytes(s.workers.own_bytes)} of "
        "their own",
        None, "workers", "parts rise", "fewer_processes more_memory",
    ),
    TableRow(
        "private_writes", "page cache came with anon memory, and the stack was at an assignment to elements",
        lambda s: if_so(_by_cache(s) and s.files.at_assignment),
        "Pages of a file that is mapped privately were written to: each becomes anon memory",
        None, "private_writes", "file stack rise", "map_read_only more_memory",
    ),
    TableRow(
        "whole_file",
        "within 30 s page cache came with anon memory (0.2 bytes for each or more), or anon rose towards "
        "1, 2, 4 or 8 times the size of a file that the command or an open stage names",
        _whole_file, _says_whole_file,
        None, "whole_file_load", "file rise stage stack", "map_file more_memory_for_file",
        or_else=_or_else_than_file,
    ),
    TableRow(
        "page_tables", "page tables took a quarter of U: 2 MB for each GiB that a process maps, in every "
        "process",
        lambda s: if_so(_page_tables(s)), "Page tables filled it: every process has its own for what it maps",
        None, "page_tables", "parts", "map_less",
    ),
    TableRow(
        "too_small_from_the_start",
        "the run's own estimate is above the limit, and it died before its first step ended",
        lambda s: if_so(
            s.kills == "counted" and not s.has_made_a_step and s.needed_bytes > s.limit_bytes > 0
        ),
        lambda s: f"By its own estimate the run needs {format_bytes(s.needed_bytes)}, more than its limit",
        None, "too_small", "stage rise", "cheapest_first",
    ),
    TableRow(
        "leak",
        "the run's own watch found it; or anon after each of 12 steps or more, or in each fifth of its last "
        "rise, grew alike",
        lambda s: NO if s.leak is None else s.leak.confidence, _says_leak,
        None, "leak", "leak stage", "find_holder more_memory_if_dead",
        or_else=lambda s: ("growth",) * (s.was_killed and s.leak is not None and s.leak.is_by_time),
    ),
    TableRow(
        "kernel_memory", "the kernel's own memory took 40% of U, and page tables did not",
        _kernel, "The kernel's own memory filled it: what is in pipes and sockets, or caches of file names",
        None, "kernel", "parts", "read_pipes",
    ),
    TableRow(
        "growth",
        "U was near the limit, and its last rise was a fifth of it; or the kernel killed, and no rise was "
        "seen",
        _growth, _says_growth,
        None, "growth", "cache_before_kill rise stage stack", "unlock_files after_growth",
        or_else=lambda s: ("neighbours",) * (0.3 < s.neighbours.share < 0.5 and s.kills == "counted"),
    ),
    TableRow(
        "thrash",
        "for 5 s at the limit pages were read again (4 MB/s), tasks stalled (10%) or faults waited "
        "(200/s); or "
        "swap rose by a tenth of U",
        _thrash,
        "It thrashed: the cgroup has too little room for the pages that it reads, drops them and reads "
        "them again",
        None, "thrash", "thrash", "read_less",
    ),
    TableRow(
        "throttled", "memory.events high rose by 100 or more",
        lambda s: if_so(s.pressure.high_events >= 100),
        "The kernel delayed its allocations: usage was above memory.high",
        None, "throttled", "high_events", "raise_high",
    ),
    TableRow(
        "cache_at_limit", "usage came to 90% of the limit, U never above 80%, and the kernel killed nothing",
        _cache, "Usage at the limit is page cache here, which the kernel gives back: it kills nothing",
        None, "cache", "peak counters", "leave_mem",
    ),
    TableRow(
        "rss_above_limit", "RSS came above the limit by mapped files or by pages that processes share, U "
        "did not",
        _rss,
        "RSS above the limit counts mapped files, and pages once for each process: no danger, unless "
        "Slurm polls RSS",
        None, _rss_cause, "rss",
    ),
)  # fmt: skip
