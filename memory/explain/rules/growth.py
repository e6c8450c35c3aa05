"""Memory that grew: a leak, files read whole, an order of samples, and growth of which no more is known."""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.json_values import seconds
from experiment_utils.quantities import format_bytes
from memory.explain.evidence.files_read import files_read
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.table_row import LIKELY, NO, UNKNOWN, TableRow, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.advice import (
    cheapest_first,
    is_other_program,
    more_memory,
    smaller_steps,
    uses_torch,
)
from memory.explain.verdict.evidence_lines import of_limit, rise_line, stack_line, stage_line
from memory.explain.verdict.explanation import Advice

_LEAST_BYTES = 32 << 20


def _worth(s: Signals, amount: int) -> bool:
    """A good part of the limit, or of a machine's memory."""
    return amount > (0.15 * s.limit_bytes if s.limit_bytes else 256 << 20)


# A leak


def _says_leak(s: Signals) -> str:
    found = s.leak
    if found is None:
        return ""
    eta = f". At that rate the limit is reached in {found.eta}" if found.eta and not s.was_killed else ""
    return f"Memory grew steadily, by {found.rate}{eta}"


def _find_holder(facts: RunFacts) -> Iterable[Advice]:
    if is_other_program(facts):
        yield Advice("find who holds it: run it under a heap profiler", "heaptrack COMMAND")
    elif facts.is_ours:
        yield Advice("find who holds it: run a few hundred steps with", "memory.attribute=true")
    else:
        yield Advice("find who holds it: take a snapshot early and late", "tracemalloc.take_snapshot()")
    if uses_torch(facts):
        yield Advice(
            "lists of losses that keep their graph are the usual cause: append loss.item(), not loss"
        )
    yield from more_memory(facts) if facts.signal else ()


# Files that became anon memory


def _by_cache(s: Signals) -> bool:
    """Page cache came with anon memory, within half a minute."""
    rose = s.rise.bytes if s.rise is not None else 0
    return 0.2 <= s.files.cache_per_anon <= 1.5 and s.files.is_quick and _worth(s, rose)


def _is_sure_of_file(s: Signals) -> bool:
    """The file is named by an open stage, was in the page cache, or the stack was at a load."""
    return bool(s.files.width) and (s.files.is_named_by_stage or s.files.in_cache or s.files.at_load)


def _whole_file(s: Signals) -> str:
    by_size = bool(s.files.width) and (s.files.is_quick or s.files.at_load)
    by_workers = s.workers.own_bytes > 0.5 * s.parts.u
    return if_so((_by_cache(s) or by_size) and not s.files.at_assignment and not by_workers)


def _or_else(s: Signals) -> tuple[str, ...]:
    """A program that grows for another reason while it reads looks the same without page cache."""
    if _is_sure_of_file(s):
        return ()
    return ("private_writes",) if _by_cache(s) else ("growth",)


def _says_whole_file(s: Signals) -> str:
    if not s.files.width:
        return "A file was read whole into memory, or pages of a private map of one were written to"
    wider = " (as a wider type, or as Python objects)" if s.files.width > 1 else ""
    return (
        f"A file was read whole into memory: {s.files.name or 'the file'}, "
        f"{format_bytes(s.files.size_bytes)}, "
        f"x{s.files.width}{wider}"
    )


def _file_lines(s: Signals) -> Iterable[str | None]:
    rose = format_bytes(s.rise.bytes) if s.rise else "memory"
    if s.files.cache_per_anon >= 0.2:
        yield (
            f"page cache rose with it, at least {s.files.cache_per_anon:.1f} bytes for each byte "
            "(memory.ring)"
        )
    if s.files.width:
        yield f"it rose by {rose}; {s.files.name or 'the file'} has {format_bytes(s.files.size_bytes)}"


def _stream(facts: RunFacts) -> Iterable[Advice]:
    if facts.is_ours:
        yield Advice("map the token file, so that nothing of it stays in anon memory", "dataset.reader=mmap")
        yield Advice("or bound what the loader keeps", "dataset.max_resident=256MB")
    else:
        yield Advice("map the file and copy one batch at a time", 'np.load(path, mmap_mode="r")')
    yield from more_memory(facts, files_read(facts).needed_bytes or None)


def _map_read_only(facts: RunFacts) -> Iterable[Advice]:
    yield Advice("map it read-only, and write into a copy of one batch", 'np.load(path, mmap_mode="r")')
    yield from more_memory(facts)


def _order(s: Signals) -> str:
    return if_so(s.files.at_order and s.rise is not None and _worth(s, s.rise.bytes))


def _order_advice(facts: RunFacts) -> Iterable[Advice]:
    if facts.is_ours:
        yield Advice("an order that is computed, not stored", "dataset.order=shuffled")
    else:
        yield Advice("keep the order in a NumPy array, or compute it", "torch.randperm(n).numpy()")


# Kernel memory


def _tables_advice(facts: RunFacts) -> Iterable[Advice]:
    if facts.is_ours:
        yield Advice("read without a map", "dataset.reader=pread")
        return
    yield Advice(
        "map or touch less, take huge pages, or read files with read(2); fewer processes that map the same "
        "file",
        "mmap.madvise(mmap.MADV_HUGEPAGE)",
    )


def _page_tables(s: Signals) -> bool:
    return s.parts.page_tables > max(_LEAST_BYTES, 0.25 * s.parts.u)


def _kernel(s: Signals) -> bool:
    return s.parts.kernel > max(64 << 20, 0.4 * s.parts.u) and not _page_tables(s)


# Growth, of which no more is known

_WORDS = {
    "shmem": "shared memory",
    "kernel": "the kernel's own memory (pipes, sockets, page tables)",
    "locked": "files that are locked in memory and could not be given back",
    "anon": "anon memory",
}
_UNLOCK = Advice(
    "lock less of files into memory (mlock, vmtouch -l, a model loaded with --mlock), and keep none on a "
    "ramfs: such "
    "cache is not given back",
    "grep VmLck /proc/[0-9]*/status",
)


def _grew(s: Signals) -> bool:
    return s.rise is not None and s.nearness == "near" and s.rise.bytes >= 0.2 * s.limit_bytes


def _says_growth(s: Signals) -> str:
    if s.rise is None or s.facts is None:
        return ""
    late = ", most of it within two seconds" if s.rise.is_jump and s.rise.seconds > 2 else ""
    most = f", mostly {_WORDS[s.rose_by]}" if s.rose_by else ""
    return f"Memory grew to {of_limit(s.facts, s.rise.to_bytes)}{late}{most}"


def _growth_advice(facts: RunFacts) -> Iterable[Advice]:
    locked = max((value for _, value in facts.series("locked_bytes")), default=0)
    if locked > 0.3 * (facts.peak_bytes or 0):
        yield _UNLOCK
    yield from cheapest_first(facts) if facts.signal or facts.kills else smaller_steps(facts)


def _says_unseen(s: Signals) -> str:
    if not s.has_samples or s.facts is None:
        return "What filled it is not known: there are no samples"
    killed_s = s.facts.kill_time_s or seconds(s.facts.outcome.get("ended_s"))
    looks = [time_s for time_s, _ in s.facts.u_series if killed_s is None or time_s < killed_s]
    unseen_s = killed_s - looks[-1] if killed_s is not None and looks else 0.0
    within = f", within {unseen_s:.1f} s" if unseen_s >= 0.1 else ""
    cache = ", or is page cache that could not be given back" if s.parts.cache_before_kill else ""
    return f"What filled it rose between two samples{within}{cache}"


def _unseen_lines(s: Signals) -> Iterable[str | None]:
    held = format_bytes(s.parts.cache_before_kill)
    yield (
        f"at the last look {held} in use was page cache (memory.ring)" if s.parts.cache_before_kill else None
    )


def _unseen_advice(facts: RunFacts) -> Iterable[Advice]:
    usage = facts.samples[-1].usage_bytes or 0 if facts.samples else 0
    cache = facts.samples[-1].cache_bytes or 0 if facts.samples else 0
    if usage >= 0.9 * (facts.limit_bytes or usage + 1) and cache > 0.4 * usage:
        yield _UNLOCK
    yield from cheapest_first(facts)


ROWS = (
    TableRow(
        "order_as_list", "the stack near the limit was in a sampler or a shuffle",
        _order, "The shuffled order is a Python list: 39 bytes an index, in each worker that gets a copy",
        None, "sampler", (stack_line, rise_line), advice=_order_advice,
    ),
    TableRow(
        "private_writes", "page cache came with anon memory, and the stack near the limit was at an "
            "assignment to elements",
        lambda s: if_so(_by_cache(s) and s.files.at_assignment),
        "Pages of a file that is mapped privately were written to: each becomes anon memory",
        None, "private_writes", (stack_line, rise_line), _file_lines, _map_read_only,
    ),
    TableRow(
        "whole_file",
        "within 30 s page cache came with anon memory (0.2 bytes for each or more), or anon rose towards "
        "1, 2, 4 or 8 times the size of a file that the command or an open stage names",
        _whole_file, _says_whole_file,
        None, "whole_file_load", (rise_line, stage_line, stack_line), _file_lines, _stream,
        or_else=_or_else,
    ),
    TableRow(
        "page_tables", "page tables took a quarter of U: 2 MB for each GiB that a process maps, in every "
            "process",
        lambda s: if_so(_page_tables(s)),
        lambda s: f"Page tables took {format_bytes(s.parts.page_tables)}: every process has its own for "
            "what it maps",
        None, "page_tables", (),
        lambda s: (f"page tables {format_bytes(s.parts.page_tables)} of U {format_bytes(s.parts.u)} "
            "(memory.ring)",),
        _tables_advice,
    ),
    TableRow(
        "too_small_from_the_start", "the run's own estimate is above the limit, and it died before its "
            "first step ended",
        lambda s: if_so(
            s.kills == "counted" and not s.has_made_a_step and s.needed_bytes > s.limit_bytes > 0
        ),
        lambda s: "The limit is below what the run needs by its own estimate, "
            f"{format_bytes(s.needed_bytes)}",
        None, "too_small", (stage_line, rise_line), advice=cheapest_first,
    ),
    TableRow(
        "leak",
        "the run's own watch found it; or anon after each of 12 steps or more, or in each fifth of its "
        "last rise, grew alike",
        lambda s: NO if s.leak is None else s.leak.confidence, _says_leak,
        None, "leak", (stage_line,), lambda s: (s.leak.line if s.leak else None,), _find_holder,
    ),
    TableRow(
        "kernel_memory", "the kernel's own memory took 40% of U, and page tables did not",
        lambda s: if_so(_kernel(s) and s.died, UNKNOWN),
        lambda s: f"The kernel's own memory for this job took {format_bytes(s.parts.kernel)}: what is in "
            "pipes and "
        "sockets, caches of file names, or page tables",
        None, "kernel", (),
        lambda s: (f"kernel memory {format_bytes(s.parts.kernel)} of U {format_bytes(s.parts.u)} "
            "(memory.ring)",),
        lambda facts: (Advice("read what is sent through pipes and sockets sooner, and keep fewer files "
            "open", "slabtop -o; ss -tm"),),
    ),
    TableRow(
        "growth", "U was near the limit, and its last rise was a fifth of it or more",
        lambda s: if_so(_grew(s), UNKNOWN if s.rose_by in ("shmem", "kernel") else LIKELY), _says_growth,
        None, "growth", (rise_line, stage_line, stack_line), advice=_growth_advice,
    ),
    TableRow(
        "growth_unseen", "the kernel killed, and U was not seen to rise to the limit",
        lambda s: if_so(s.kills == "counted" and not _grew(s),
        LIKELY if s.has_samples and not s.parts.cache_before_kill else UNKNOWN),
        _says_unseen,
        None, "growth", (rise_line, stage_line, stack_line), _unseen_lines, _unseen_advice,
    ),
)  # fmt: skip
