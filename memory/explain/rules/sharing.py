"""Memory of several processes: of neighbours, of workers, shared since a fork, in shared memory."""

from __future__ import annotations

from collections.abc import Iterable

from experiment_utils.quantities import format_bytes
from memory.explain.evidence.run_facts import RunFacts
from memory.explain.rules.kernel import _above, _above_line
from memory.explain.rules.table_row import CERTAIN, LIKELY, NO, UNKNOWN, TableRow, if_so
from memory.explain.signals import Signals
from memory.explain.verdict.advice import more_memory, no_workers
from memory.explain.verdict.evidence_lines import peak_of_limit, place, rise_line
from memory.explain.verdict.explanation import Advice

_SPAWNED_BYTES = 24 << 20
"""A spawned interpreter with torch takes 148 MB of anon, a forked one 14."""
_LEAST_BYTES = 32 << 20


def _worth(s: Signals, amount: int, share: float = 0.1) -> bool:
    return amount >= max(_LEAST_BYTES, share * s.limit_bytes)


# Neighbours


def _neighbours(s: Signals) -> str:
    others = s.neighbours
    grew = others.share > 0.2 and 0 < 0.6 * others.rise_bytes < others.of_rise_bytes
    near = s.nearness == "near" and s.limit_at == "cgroup"
    return if_so((others.share >= 0.5 or grew) and near and not s.slurm.started_killed_step)


def _says_neighbours(s: Signals) -> str:
    share = (
        f"{100 * s.neighbours.share:.0f}% of what counted against the limit belonged to no process of "
        "this run"
    )
    grew = 0 < 0.6 * s.neighbours.rise_bytes < s.neighbours.of_rise_bytes
    return share + (", and that is what grew at last" if grew else "")


def _neighbours_lines(s: Signals) -> Iterable[str | None]:
    if s.facts:
        own = 100 * (1 - s.neighbours.share)
        yield (
            f"at its peak U was {peak_of_limit(s.facts)}, of which this run's processes held {own:.0f}% "
            "(memory.ring)"
        )
    rose, theirs = format_bytes(s.neighbours.rise_bytes), format_bytes(s.neighbours.of_rise_bytes)
    yield (
        f"of the last {rose} that U rose, {theirs} were not this run's (memory.ring)"
        if s.neighbours.rise_bytes
        else None
    )


# Forked and spawned workers


def _copied(s: Signals) -> str:
    own = s.workers
    if not own.are_forked or not _worth(s, own.copied_bytes) or own.copied_bytes < own.own_bytes:
        return NO
    if not own.all_seen:
        return UNKNOWN
    return CERTAIN if own.copies_grew and _worth(s, own.copied_bytes, 0.3) else LIKELY


def _copied_lines(s: Signals) -> Iterable[str | None]:
    own = s.workers
    yield (
        f"{own.count} children began with the anon of the main process, {format_bytes(s.parts.main)}, and "
        "grew by "
        f"{format_bytes(own.own_bytes)} together (memory.ring)"
    )
    yield (
        f"the cgroup holds {format_bytes(own.copied_bytes)} of anon more than that: copies of pages that "
        "were shared at "
        f"the fork; up to {format_bytes(own.shared_bytes)} were shared (memory.ring)"
    )


def _arrays(facts: RunFacts) -> Iterable[Advice]:
    yield Advice(
        "hold data in NumPy arrays or tensors, not in lists or dicts of Python objects: reading an object "
        "writes its "
        "reference count, and the write copies its page"
    )
    yield from no_workers(facts)
    yield from more_memory(facts)


def _workers(s: Signals) -> str:
    own = s.workers
    if (
        own.count < 2
        or own.own_bytes < 0.4 * s.parts.u
        or own.largest_bytes > 0.6 * own.own_bytes
        or _copied(s)
    ):
        return NO
    if own.count < 3 and own.smallest_bytes < _SPAWNED_BYTES:
        return NO
    return LIKELY if own.largest_bytes < 3 * max(1, own.smallest_bytes) else UNKNOWN


def _says_workers(s: Signals) -> str:
    spawned = not s.workers.are_forked and s.workers.largest_bytes >= _SPAWNED_BYTES
    shares = ". They share nothing with the main process" if spawned else ""
    return (
        f"{s.workers.count} worker processes together hold {format_bytes(s.workers.own_bytes)} of their "
        f"own{shares}"
    )


def _workers_lines(s: Signals) -> Iterable[str | None]:
    low, high = format_bytes(s.workers.smallest_bytes), format_bytes(s.workers.largest_bytes)
    yield (
        f"at the peak {s.workers.count} children had {low} to {high} of anon each, U was "
        f"{format_bytes(s.parts.u)} (memory.ring)"
    )


def _fewer_workers(facts: RunFacts) -> Iterable[Advice]:
    yield from no_workers(facts) or (Advice("fewer processes at a time"),)
    yield from more_memory(facts)


# Shared memory


def _prefetch_or_shmem(s: Signals, *, of_workers: bool) -> str:
    shmem = int(s.shared.share * s.parts.u)
    if s.shared.share < 0.35 or not _worth(s, shmem) or not s.limit_bytes:
        return NO
    return if_so(s.shared.is_of_workers == of_workers)


def _says_shmem(s: Signals) -> str:
    where = (
        "/dev/shm" if s.shared.dev_shm_rose else "/dev/shm, another tmpfs (/tmp?), a memfd or a shared map"
    )
    return f"Shared memory filled it: files in {where} count against the limit until they are deleted"


def _shmem_lines(s: Signals) -> Iterable[str | None]:
    shmem = format_bytes(int(s.shared.share * s.parts.u))
    yield f"at the peak of U {shmem} of {format_bytes(s.parts.u)} was shared memory (memory.ring)"
    mapped = s.shared.mapped_by
    yield (
        f"{mapped} process{'es' * (mapped != 1)} had a good part of it mapped (memory.ring)"
        if mapped
        else None
    )


def _fewer_batches(facts: RunFacts) -> Iterable[Advice]:
    yield from no_workers(facts)
    if not facts.is_ours:
        yield Advice("fewer batches ahead", "DataLoader(prefetch_factor=1)")
    yield from more_memory(facts)


def _fewer_files(facts: RunFacts) -> Iterable[Advice]:
    yield Advice("write such files to a disk, or delete them sooner", "ls -la /dev/shm; df -h -t tmpfs")
    yield from more_memory(facts)


def _stale(s: Signals) -> str:
    against = min(filter(None, (s.limit_bytes, s.shared.total_bytes)), default=0)
    if not against or s.shared.before_bytes < max(_LEAST_BYTES, 0.2 * against):
        return NO
    return LIKELY if s.shared.was_charged else UNKNOWN


ROWS = (
    TableRow(
        "limit_above", "U was near the limit, or the kernel killed, and the limit is that of a cgroup "
            "above the run's own",
        lambda s: if_so(s.limit_is_above and (s.nearness == "near" or s.kills == "counted"), CERTAIN),
        lambda s: f"The limit is that of {place(s.facts.limit_at) if s.facts else ''}, a parent of the "
            "run's own cgroup: "
        "all that runs there counts",
        None, None, (), lambda s: (_parent_line(s),),
    ),
    TableRow(
        "killed_next_to_it", "a cgroup above counted kills, the run's own none, and the run did not end by "
            "SIGKILL",
        lambda s: if_so(s.parent_killed and s.signal != "SIGKILL", UNKNOWN),
        lambda s: f"The kernel killed processes for memory in {_above(s)}, above the run's own cgroup",
        None, "neighbours", (), lambda s: (_above_line(s),), more_memory,
    ),
    TableRow(
        "neighbours",
        "U was near the limit, and half of it, or most of its last rise, belonged to processes of others "
        "in the cgroup",
        _neighbours, _says_neighbours,
        None, "neighbours", (), _neighbours_lines,
        lambda facts: (Advice("start it in a job, or a container, of its own"), *more_memory(facts)),
    ),
    TableRow(
        "copy_on_write",
        "children began with the anon of the main process (a fork), and the cgroup's anon outgrew that of "
        "all processes",
        _copied,
        "Forked workers copied what they shared with the main process: no process grew, together they did",
        None, "copy_on_write", (rise_line,), _copied_lines, _arrays,
        or_else=lambda s: () if s.workers.all_seen else ("neighbours",),
    ),
    TableRow(
        "stale_files", "a fifth of the limit or of /dev/shm was in /dev/shm before the run began",
        _stale,
        lambda s: f"{format_bytes(s.shared.before_bytes)} were in /dev/shm before it began: most likely of "
            "runs that were "
        "killed",
        None, "shmem", (),
        lambda s: (f"/dev/shm had {format_bytes(s.shared.before_bytes)} in use at the start (outcome.json)",),
        lambda facts: (Advice("see whose they are, and delete those of dead runs", "ls -la /dev/shm"),),
    ),
    TableRow(
        "prefetch", "a third of U was shared memory, and each child had a part of its own mapped, the main "
            "process little",
        lambda s: _prefetch_or_shmem(s, of_workers=True),
        "Batches that workers hold ready fill shared memory: workers x batches ahead x the size of a batch",
        None, "prefetch", (rise_line,), _shmem_lines, _fewer_batches,
    ),
    TableRow(
        "shared_memory", "a third of U was shared memory, mapped by the main process, by several at a "
            "time, or by none",
        lambda s: _prefetch_or_shmem(s, of_workers=False), _says_shmem,
        None, "shmem", (rise_line,), _shmem_lines, _fewer_files,
    ),
    TableRow(
        "workers", "three children or more hold 40% of U themselves, none of them most of it",
        _workers, _says_workers,
        None, "workers", (rise_line,), _workers_lines, _fewer_workers,
    ),
)  # fmt: skip


def _parent_line(s: Signals) -> str | None:
    if s.facts is None:
        return None
    own = str(s.facts.outcome.get("cgroup_path") or "")
    return (
        f"the limit is that of the parent {place(s.facts.limit_at)}, the run is in {place(own)} "
        "(outcome.json)"
    )
