"""Memory of worker processes: shared since a fork and then copied, or never shared at all."""

from __future__ import annotations

from collections.abc import Iterator

from experiment_utils.quantities import format_bytes
from memory.explain.advice import may_use_torch, more_memory, no_workers
from memory.explain.facts import Facts
from memory.explain.finding import Advice, Finding
from memory.explain.telling import all_of, rise_line
from memory.samples import Sample

_SPAWNED_BYTES = 24 << 20
"""A spawned interpreter with torch takes 148 MB of anon, a forked one 14."""

_AS_SPAWNED = ": they share nothing with the main process, as spawned ones do"


def copy_on_write(facts: Facts) -> Iterator[Finding]:
    """Forked workers touch what they share, if only by counting references: each then has a copy of its own.

    Per process nothing shows: a shared page counts in each that shares it. The cgroup counts it once. Another
    process in it that grows looks the same, so it takes a look at all who are in it to tell.
    """
    known = [s for s in facts.samples if s.anon_bytes is not None and s.tree_anon_bytes is not None]
    several = [sample for sample in known if (sample.processes or len(sample.tree)) > 1]
    if len(several) < 2:
        return
    first = max(several, key=_shared)
    # where one of them is gone, the sum over the others says nothing of what they shared
    there = {process.pid for process in first.tree}
    after = [s for s in several if s.time_s > first.time_s and there <= {process.pid for process in s.tree}]
    if not after:
        return
    last = max(after, key=_of_run)
    grown = _of_run(last) - _of_run(first)
    of_tree = (last.tree_anon_bytes or 0) - (first.tree_anon_bytes or 0)
    unshared = _shared(first) - _shared(last)
    least = max(32 << 20, 0.1 * (facts.limit_bytes or 0))
    if grown < least or unshared < 0.5 * grown or of_tree > 0.5 * grown or _shared(first) < 0.8 * unshared:
        return
    alone = first.beside_anon_bytes is not None and last.beside_anon_bytes is not None
    # what the kernel has not counted as anon yet may be cache that it has not counted as cache either
    counted = (last.anon_bytes or 0) - (first.anon_bytes or 0)
    surely = "certain" if unshared > 0.8 * grown and min(grown, counted) > 2 * least else "likely"
    yield Finding(
        rule="copy_on_write",
        says="Forked workers copied what they shared with the main process: per process nothing "
        "grew, together they did",
        confidence=surely if alone else "possible",
        cause="copy_on_write",
        evidence=all_of(
            f"the cgroup's anon{' less that of others' * bool(last.beside_anon_bytes)} rose from "
            f"{format_bytes(_of_run(first))} to {format_bytes(_of_run(last))}, the sum "
            f"over its {last.processes or len(last.tree)} processes by "
            f"{format_bytes(max(0, of_tree))} (memory.ring)",
            f"shared between them: {format_bytes(_shared(first))} at first, "
            f"{format_bytes(max(0, _shared(last)))} at last",
            rise_line(facts),
        ),
        advice=(
            *no_workers(facts),
            Advice(
                "hold data in NumPy arrays or tensors, not in lists of Python objects: no counters "
                "to write to"
            ),
            *more_memory(facts),
        ),
    )


def many_workers(facts: Facts) -> Iterator[Finding]:
    """Workers that hold memory of their own, none of them most of it: spawned ones share nothing at all."""
    known = [s for s in facts.samples if s.unreclaimable_bytes is not None and len(s.tree) > 2]
    if not known:
        return
    top = max(known, key=lambda sample: sample.unreclaimable_bytes or 0)
    sizes = sorted(process.anon_bytes or 0 for process in top.tree[1:])
    main, count = top.tree[0].anon_bytes or 0, max(len(sizes), (top.processes or 0) - 1)
    of_tree = top.tree_anon_bytes or 0
    # pages that they share with the main process since a fork are not their own, nor is what others hold
    own = min(of_tree, of_tree if top.anon_bytes is None else _of_run(top)) - main
    if own < 0.4 * (top.unreclaimable_bytes or 0) or sizes[-1] > 0.6 * sum(sizes):
        return
    if count < 3 and sizes[0] < _SPAWNED_BYTES:
        return
    shares = _shared(top) > 0.3 * sum(sizes)
    yield Finding(
        rule="many_workers",
        says=f"{count} worker processes together hold {format_bytes(own)} of their own"
        + ("" if shares or sizes[-1] < _SPAWNED_BYTES else _AS_SPAWNED),
        confidence="likely" if sizes[-1] < 3 * max(1, sizes[0]) else "possible",
        cause="workers",
        evidence=all_of(
            f"at the peak of U {count} children had {format_bytes(sizes[0])} to "
            f"{format_bytes(sizes[-1])} of anon "
            f"each, of {format_bytes(top.unreclaimable_bytes or 0)} in all (memory.ring)",
        ),
        advice=(
            *_fewer(facts),
            *(
                ()
                if facts.is_ours or shares or not may_use_torch(facts) or sizes[-1] < _SPAWNED_BYTES
                else (Advice("or fork them", 'DataLoader(multiprocessing_context="fork")'),)
            ),
            *more_memory(facts),
        ),
    )


def _fewer(facts: Facts) -> tuple[Advice, ...]:
    return no_workers(facts) or (Advice("fewer processes at once"),)


def _shared(sample: Sample) -> int:
    """What the processes' anon adds up to beyond the cgroup's, which counts a shared page once."""
    return (sample.tree_anon_bytes or 0) - _of_run(sample)


def _of_run(sample: Sample) -> int:
    """The cgroup's anon less that of processes beside the run.

    memory.stat of v1 lags by seconds, usage does not: what of it is no cache is anon, or kernel memory.
    """
    in_use = (sample.usage_bytes or 0) - (sample.cache_bytes or 0) - (sample.shmem_bytes or 0)
    of_job = max(sample.anon_bytes or 0, in_use - (sample.kernel_bytes or 0) - (sample.locked_bytes or 0))
    return max(0, of_job - (sample.beside_anon_bytes or 0))
