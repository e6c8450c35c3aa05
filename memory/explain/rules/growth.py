"""Memory that grew: a leak, page tables, and growth of which no more is known."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.json_values import seconds
from experiment_utils.quantities import format_bytes
from memory.explain.advice import cheapest_first, is_other_program, may_use_torch, more_memory, smaller_steps
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.leaking import leak_as_told, leak_by_step, leak_by_time
from memory.explain.telling import (
    all_of,
    cache_at_the_kill,
    of_limit,
    rise,
    rise_line,
    stack_line,
    stage_line,
)
from memory.explain.trend import last_rise

_LIBRARIES_BYTES = 32 << 20
"""What an interpreter maps of its own: where no more of files was seen mapped, it may be no file."""
_SHORT_S = 0.5
"""Of a shorter time no speed is told."""


def leak(facts: Facts) -> Iterator[Finding]:
    """Anon memory rises by a like amount each step, or each second, and never comes back."""
    found = leak_as_told(facts) or leak_by_step(facts) or leak_by_time(facts)
    if found is None:
        return
    is_dead = bool(facts.signal or facts.vanished)
    eta = f"; at that rate the limit is reached in {found.eta}" if found.eta and not is_dead else ""
    yield Finding(
        rule="leak",
        says=f"Memory grew steadily, by {found.rate}{eta}",
        confidence=found.confidence,
        cause="leak",
        evidence=all_of(found.line, stage_line(facts)),
        advice=(*_who_holds_it(facts), *(more_memory(facts) if facts.signal else ())),
    )


def _who_holds_it(facts: Facts) -> tuple[Advice, ...]:
    if is_other_program(facts):
        return (Advice("find who holds it: run it under a heap profiler", "heaptrack COMMAND"),)
    tool = (
        Advice("find who holds it: run a few hundred steps with", "memory.attribute=true")
        if facts.is_ours
        else Advice("find who holds it: take a snapshot early and late", "tracemalloc.take_snapshot()")
    )
    losses = "lists of losses that keep their graph are the usual cause: append loss.item(), not loss"
    return (tool, Advice(losses)) if facts.is_ours or may_use_torch(facts) else (tool,)


def page_tables(facts: Facts) -> Iterator[Finding]:
    """2 MB for each GiB that a process has mapped and touched, in every process."""
    points = facts.series("page_tables_bytes")
    tables = max((value for _, value in points), default=0)
    kernel = max((value for _, value in facts.series("kernel_bytes")), default=0)
    peak = facts.peak_bytes or 0
    surely = tables > max(32 << 20, 0.25 * peak)
    mapped = max((value for _, value in facts.series("tree_file_bytes")), default=0)
    perhaps = not points and kernel > max(64 << 20, 0.4 * peak)
    if not (surely or perhaps) or not peak:
        return
    amount = tables if surely else kernel
    yield Finding(
        rule="page_tables",
        says=f"Page tables took {format_bytes(amount)}: every process has its own for what it maps"
        if surely
        else f"The kernel's own memory for this job took {format_bytes(amount)}: page tables, or what lies "
        "in pipes and sockets",
        confidence="likely" if surely else "possible",
        cause="page_tables",
        evidence=all_of(
            f"{'page tables' if surely else 'kernel memory'} {format_bytes(amount)} of U "
            f"{format_bytes(peak)} (memory.ring)",
            f"mapped files, summed over the processes, {format_bytes(mapped)} (memory.ring)"
            if mapped
            else None,
        ),
        advice=(Advice("read without a map", "dataset.reader=pread"),)
        if facts.is_ours
        else (_fewer_maps(facts, mapped),),
    )


def _fewer_maps(facts: Facts, mapped_bytes: int) -> Advice:
    """Of files or not, of one process or of several: as far as was seen."""
    if mapped_bytes < _LIBRARIES_BYTES:
        return Advice(
            "touch less of what it maps, or take huge pages; of a file read(2) in place of maps",
            "mmap.madvise(mmap.MADV_HUGEPAGE)",
        )
    if max((sample.processes or len(sample.tree) for sample in facts.samples), default=1) < 2:
        return Advice("read(2) in place of maps", "os.pread")
    return Advice("fewer processes that map the file, or read(2) in place of maps", "os.pread")


def growth(facts: Facts) -> Iterator[Finding]:
    """It grew to the limit, and more is not known."""
    found = rise(facts)
    limit = facts.limit_bytes or 0
    if found is None or not facts.near_limit or found.bytes < 0.2 * limit:
        if facts.kills:
            yield _unseen(facts)
        return
    parts = {
        name: (rose.bytes if (rose := last_rise(facts.series(f"{name}_bytes"))) else 0)
        for name in ("anon", "shmem", "kernel", "locked")
    }
    most = max(parts, key=lambda name: parts[name]) if any(parts.values()) else None
    words = {
        "shmem": "shared memory",
        "kernel": "the kernel's own memory (pipes, sockets, page tables)",
        "locked": "files that are locked in memory and could not be given back",
    }
    of = f", mostly {words.get(most, 'anon memory')}" if most else ""
    jump = ", most of it within two seconds" if found.seconds > 2 else " at once"
    at_once = jump if found.is_jump else ""
    yield Finding(
        rule="growth",
        says=f"Memory grew to {of_limit(facts, found.to_bytes)}{at_once}{of}",
        confidence="possible" if most in ("shmem", "kernel") else "likely",
        cause="growth",
        evidence=all_of(rise_line(facts), stage_line(facts), stack_line(facts)),
        advice=(
            *((_LOCKED,) if most == "locked" else ()),
            *(cheapest_first(facts) if facts.signal or facts.kills else smaller_steps(facts)),
        ),
    )


def _unseen(facts: Facts) -> Finding:
    """A kill at a top that was not sampled."""
    cache = cache_at_the_kill(facts)
    says = (
        _since_the_last_look(facts) if facts.samples else "What filled it is not known: there are no samples"
    )
    return Finding(
        rule="growth",
        says=f"{says}, or is page cache that could not be given back" if cache else says,
        confidence="likely" if facts.samples and not cache else "possible",
        cause="growth",
        evidence=all_of(rise_line(facts), cache, stage_line(facts), stack_line(facts)),
        advice=(*((_LOCKED,) if cache else ()), *cheapest_first(facts)),
    )


_LOCKED = Advice(
    "lock less of files into memory (mlock, vmtouch -l, a model loaded with --mlock), and keep none on a "
    "ramfs: such cache is not given back",
    "grep VmLck /proc/[0-9]*/status",
)


def _latest_rate(looks: list[tuple[float, int]], over_s: float) -> float:
    """Bytes a second over the newest looks: it may have stood still after it grew."""
    last_s, amount = looks[-1]
    earlier = [look for look in looks if look[0] <= last_s - max(over_s, _SHORT_S)] or looks[:1]
    begin_s, low = earlier[-1]
    return (amount - low) / (last_s - begin_s) if last_s > begin_s else 0.0


def _since_the_last_look(facts: Facts) -> str:
    """It grew on as it had grown before, or what filled it came in between."""
    looks = facts.u_series
    killed_s = facts.kill_time_s or seconds(facts.outcome.get("ended_s"))
    before = [look for look in looks if killed_s is None or look[0] < killed_s]
    last_s = before[-1][0] if before else 0.0
    unseen_s = killed_s - last_s if killed_s is not None and before else 0.0
    found = rise(facts)
    rate = 0.0
    if found is not None and before and found.end_s >= last_s:
        rate = min(found.bytes_per_s or 0.0, _latest_rate(before, unseen_s))
    room = (facts.limit_bytes or 0) - (facts.peak_bytes or 0)
    if found is not None and 0 < room <= 2 * rate * unseen_s:
        more = f"within {unseen_s:.1f} s of that look it was at the limit"
        return f"Memory grew by {format_bytes(rate)}/s to {of_limit(facts, found.to_bytes)}, and {more}"
    within = f", within {unseen_s:.1f} s" if unseen_s >= 0.1 else ""
    return f"What filled it rose between two samples{within}"
