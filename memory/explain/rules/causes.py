"""Causes: neighbours, workers, shared memory, files, a leak, the kernel, growth; and pressure."""

from __future__ import annotations

from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.evidence_lines import of_limit
from memory.explain.verdict.templates import first

_SPAWNED_BYTES = 24 << 20
"""A spawned interpreter with torch takes 148 MB of anon, a forked one 14."""
_LEAST_BYTES = 32 << 20
_PARTS = {
    "shmem": "shared memory", "kernel": "the kernel's own memory (pipes, sockets, page tables)",
    "locked": "files that are locked in memory and could not be given back", "anon": "anon memory",
}  # fmt: skip


def _worth(s: Signals, amount: float) -> bool:
    return amount >= max(_LEAST_BYTES, 0.1 * s.limit_bytes)


def _neighbours(s: Signals) -> str:
    others = s.neighbours
    grew = others.share > 0.2 and 0 < 0.6 * others.rise_bytes < others.of_rise_bytes
    near = s.nearness == "near" and s.limit_at == "cgroup"
    return if_so(
        s.limit_above or ((others.share >= 0.5 or grew) and near and not s.slurm.started_killed_step)
    )


def _copied(s: Signals) -> str:
    own = s.workers
    is_most = _worth(s, own.copied_bytes) and own.copied_bytes >= own.own_bytes
    return if_so(is_most, LIKELY if own.all_seen else UNKNOWN)


def _workers(s: Signals) -> str:
    own = s.workers
    are_several = own.count >= 3 or (own.count == 2 and own.smallest_bytes >= _SPAWNED_BYTES)
    is_most = own.own_bytes >= max(1, 0.4 * s.parts.u) and own.largest_bytes <= 0.6 * own.own_bytes
    are_alike = own.largest_bytes < 3 * max(1, own.smallest_bytes)
    return if_so(are_several and is_most and not _copied(s), LIKELY if are_alike else UNKNOWN)


def _shared(s: Signals, *, of_workers: bool) -> str:
    is_large = s.shared.share >= 0.35 and _worth(s, s.shared.share * s.parts.u) and s.limit_bytes
    return if_so(is_large and s.shared.is_of_workers == of_workers)


def _by_cache(s: Signals) -> bool:
    """Page cache came with anon memory, within half a minute, and anon rose by a good part of the limit."""
    rose = s.rise is not None and s.rise.bytes > (0.15 * s.limit_bytes if s.limit_bytes else 256 << 20)
    by_workers = s.workers.own_bytes > 0.5 * s.parts.u
    return 0.2 <= s.cache_per_anon <= 1.5 and rose and not by_workers


def _kernel(s: Signals) -> str:
    is_large = s.parts.kernel > max(64 << 20, 0.4 * s.parts.u)
    return if_so(s.died and is_large and not _page_tables(s), UNKNOWN)


def _page_tables(s: Signals) -> bool:
    return s.parts.page_tables > max(_LEAST_BYTES, 0.25 * s.parts.u)


def _grew(s: Signals) -> bool:
    return s.rise is not None and s.nearness == "near" and s.rise.bytes >= 0.2 * s.limit_bytes


def _says_growth(s: Signals) -> str:
    if not s.has_samples and s.rise is None:
        return "What filled it is not known: there are no samples"
    if s.rise is None or not _grew(s):
        cache = ", or is page cache that could not be given back" * bool(s.parts.cache_before_kill)
        return f"What filled it rose between two samples{cache}"
    late = ", most of it within two seconds" * (s.rise.is_jump and s.rise.seconds > 2)
    most = f", mostly {_PARTS[s.rose_by]}" if s.rose_by else ""
    return f"Memory grew to {of_limit(s, s.rise.to_bytes)}{late}{most}"


def _growth(s: Signals) -> str:
    if _grew(s):
        return UNKNOWN if s.rose_by in ("shmem", "kernel") else LIKELY
    is_plain = s.has_samples and not s.parts.cache_before_kill
    return if_so(s.kills == "counted", LIKELY if is_plain else UNKNOWN)


def _cache(s: Signals) -> str:
    killed = s.kills == "counted" or s.says("kernel_cgroup")
    is_low = 0 < s.peak_share <= 0.8 and s.limit_at == "cgroup"
    return if_so(is_low and s.usage_share >= 0.9 and not killed, CERTAIN)


ROWS = (
    TableRow(
        "neighbours",
        "U was near the limit, and half of it, or most of its last rise, belonged to others in the cgroup; "
        "or the limit of a cgroup above was met, and the run's own was not",
        _neighbours,
        first(lambda s: "Others filled a cgroup above, whose limit is for all in it" * bool(s.limit_above),
              "{neighbours.share:.0%} of what counted against the limit belonged to no process of this run"),
        None, "neighbours", "above neighbours parts", "own_job more_memory",
    ),
    TableRow(
        "copy_on_write",
        "children began with the anon of the main process, and the cgroup's anon outgrew that of all "
        "processes",
        _copied,
        "Forked workers copied what they shared with the main process: no process grew, together they did",
        None, "copy_on_write", "copies parts u", "arrays no_workers more_memory",
        or_else=lambda s: () if s.workers.all_seen else ("neighbours",),
    ),
    TableRow(
        "prefetch", "a third of U was shared memory in /dev/shm that children have mapped, the main process "
                    "in part",
        lambda s: _shared(s, of_workers=True),
        "Batches that workers hold ready fill shared memory: workers x batches ahead x the size of a batch",
        None, "prefetch", "parts u", "no_workers fewer_batches more_memory",
    ),
    TableRow(
        "shared_memory", "a third of U was shared memory of the main process, of several at a time, or of "
                         "none",
        lambda s: _shared(s, of_workers=False),
        "Shared memory filled it: files in /dev/shm or another tmpfs, a memfd or a shared map",
        None, "shmem", "parts shm u", "fewer_files more_memory",
    ),
    TableRow(
        "workers", "three children or more hold 40% of U themselves, none of them most of it",
        _workers, "{workers.count} worker processes together hold {workers.own_bytes:B} of their own",
        None, "workers", "parts u", "no_workers more_memory",
    ),
    TableRow(
        "whole_file", "within 30 s page cache came with anon memory: 0.2 bytes for each byte of it, or more",
        lambda s: if_so(_by_cache(s)),
        "A file was read whole into memory, or pages of a private map of one were written to",
        None, "whole_file_load", "file u stage stack", "map_file more_memory",
        or_else=lambda s: ("private_writes",),
    ),
    TableRow(
        "page_tables", "page tables took a quarter of U: 2 MB for each GiB that a process maps, in every "
                       "process",
        lambda s: if_so(_page_tables(s)), "Page tables filled it: every process has its own for what it maps",
        None, "page_tables", "parts", "map_less more_memory",
    ),
    TableRow(
        "too_small_from_the_start",
        "the run's own estimate is above the limit, and it died before its first step ended",
        lambda s: if_so(s.kill_count and not s.has_made_a_step and s.needed_bytes > s.limit_bytes > 0),
        "By its own estimate the run needs {needed_bytes:B}, more than its limit",
        None, "too_small", "stage u", "cheapest_first",
    ),
    TableRow(
        "leak", "the run's own watch found it, anon grew by step in stage records, or "
        "alike in each fifth of its last rise",
        lambda s: NO if s.leak is None else s.leak.confidence, "Memory grew steadily, by {leak.rate}",
        None, "leak", "leak stage stack", "find_holder more_memory_if_dead",
        or_else=lambda s: ("growth",) * (s.was_killed and s.leak is not None and s.leak.is_by_time),
    ),
    TableRow(
        "kernel_memory", "the kernel's own memory took 40% of U, and page tables did not",
        _kernel,
        "The kernel's own memory filled it: what is in pipes and sockets, or caches of file names",
        None, "kernel", "parts", "read_pipes more_memory",
    ),
    TableRow(
        "growth",
        "U was near the limit, and its last rise was a fifth of it; or the kernel killed, and no rise was "
        "seen",
        _growth, _says_growth,
        None, "growth", "cache_before_kill u stage stack", "unlock_files after_growth",
        or_else=lambda s: ("neighbours",) * (0.3 < s.neighbours.share < 0.5 and s.kills == "counted"),
    ),
    TableRow(
        "swapped", "swap rose by a tenth of U, and by 256 MB or more",
        lambda s: if_so(s.swap_rose_bytes >= max(256 << 20, 0.1 * s.parts.u)),
        "It was swapped out: it had less memory than it used, which makes it slow",
        None, "thrash", "swap", "cheapest_first",
    ),
    TableRow(
        "throttled", "memory.events high rose by 100 or more",
        lambda s: if_so(s.high_events >= 100), "Allocations met memory.high {high_events:,} times: the "
        "kernel delays them",
        None, "throttled",
    ),
    TableRow(
        "cache_at_limit", "usage came to 90% of the limit, U never above 80%, and the kernel killed nothing",
        _cache, "Usage at the limit is page cache here, which the kernel gives back: it kills nothing",
        None, "cache", "peak counters", "leave_mem",
    ),
)  # fmt: skip
