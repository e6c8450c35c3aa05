"""What is said of the jobs of a token set: what was submitted, how far they are, what to type."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from experiment_utils.quantities import counted, format_duration, parse_size
from memory import format_bytes
from slurm.tokens.script import LOG, MERGE
from slurm.tokens.sending import UNKNOWN, Ended, Order, Sent

_SHOWN = 5


def render(sent: Sent, order: Order) -> Iterator[str]:
    """Lines for a terminal."""
    output = order.files.tokens
    if sent.ended:
        yield from _ended(sent, order)
    if sent.arrays:
        yield f"{output}: submitted {_submitted(sent, order)}"
        yield f"  a task asks for {_asked(order)}"
    behind = f"; job {sent.merge} merges them when all are done" if sent.merge is not None else ""
    yield f"{output}: {_states(sent, order)}{behind}"
    for why in dict.fromkeys(sent.not_sent.values()):
        names = [name for name, reason in sent.not_sent.items() if reason == why]
        yield f"{output}: not submitted: {_some(names)}: {why}"
    if not sent.arrays and not sent.not_sent:
        yield "nothing was submitted: jobs are under way for all that is missing"
    if sent.jobs:
        tokens = shlex.quote(str(output))
        yield f"How they go: python -m slurm status {tokens}"
        yield f"To stop them: python -m slurm cancel {tokens}"
    yield (
        "When one has failed: the same command again, or python -m slurm resubmit, submits what is missing; "
        "each task goes on from where it was"
    )


def _submitted(sent: Sent, order: Order) -> str:
    """`3 of 16 tasks as job 7`, and the merge."""
    jobs = [array.job_id or "" for array in sent.arrays if array.tasks != [[MERGE]]]
    merge = f"the merge as job {sent.merge}"
    if not jobs:
        return merge
    told = f"{len(sent.sent):,} of {counted(order.tasks, 'task')} as job {', '.join(jobs)}"
    return told if MERGE in sent.not_sent else f"{told}, {merge}"


def to_json(sent: Sent, order: Order) -> dict[str, Any]:
    """Plain values, for programs."""
    manifest = sent.states.manifest
    task = order.asking.task
    return {
        "path": str(order.files.tokens),
        "up_to_date": manifest is not None,
        "tasks": order.tasks,
        "done": sorted(sent.states.done) if manifest is None else list(range(order.tasks)),
        "queued": [name for name, (_, word) in sent.held.tasks.items() if word == "queued"],
        "running": [name for name, (_, word) in sent.held.tasks.items() if word == "running"],
        "submitted": list(sent.sent),
        "not_submitted": dict(sent.not_sent),
        "ended": {name: ended.word for name, ended in sent.ended.items()},
        "jobs": [
            {"job": array.job_id, "name": array.name, "tasks": array.tasks, "options": array.options}
            for array in sent.arrays
        ],
        "merge": sent.merge,
        "submission": sent.submission.id if sent.submission else None,
        "logs": str(order.files.jobs),
        "asked": {
            "options": task.options,
            "mem_bytes": task.mem_bytes,
            "mem_from": task.how_mem,
            "time_limit_s": task.limit_s,
            "time_from": task.how_time,
            "workers": order.asking.workers,
        },
    }


def planned(sent: Sent, order: Order, texts: list[str]) -> Iterator[str]:
    """What would be submitted. texts: of the scripts."""
    missing = [name for name in sent.not_sent if name != MERGE]
    yield f"  {'jobs':<11}{_states(sent, order)}; {counted(len(missing), 'task')} to submit, and the merge"
    yield f"  {'each asks':<11}{_asked(order)}"
    for text in texts:
        yield ""
        yield from text.rstrip("\n").splitlines()


def _states(sent: Sent, order: Order) -> str:
    """`3 of 16 tasks done, 2 running, 11 queued`."""
    states = sent.states
    names = set(order.names)
    words = Counter(
        word
        for name, (_, word) in sent.held.tasks.items()
        if name in names and int(name.partition("-")[0]) not in states.done
    )
    words["queued"] += len(sent.sent)
    rest = [f"{count:,} {word}" for word, count in words.items() if count]
    return ", ".join([f"{len(states.done):,} of {counted(order.tasks, 'task')} done", *rest])


def _asked(order: Order) -> str:
    task = order.asking.task
    mem = "memory" if task.mem_bytes is None else format_bytes(task.mem_bytes)
    time = f"{format_duration(task.limit_s)} " if task.limit_s and "time" in task.options else ""
    of_time = f"{time}({task.how_time})" if time else task.how_time
    return f"{counted(task.cpus, 'CPU')}, {mem} ({task.how_mem}), {of_time}"


def _ended(sent: Sent, order: Order) -> Iterator[str]:
    """How tasks ended that are submitted again, and what may help."""
    words = Counter(ended.word for ended in sent.ended.values())
    for word, count in words.items():
        names = [name for name, ended in sent.ended.items() if ended.word == word]
        how = "ended, Slurm does not tell how" if word == UNKNOWN else f"ended as {word}"
        yield f"{order.files.tokens}: {counted(count, 'job')} {how}: {_some(names)}"
        yield f"  the last words: {shlex.join(['tail', str(order.files.jobs / names[0] / LOG)])}"
        if word == "OUT_OF_MEMORY":
            yield from _more_memory(sent.ended[names[0]], order)


def _more_memory(ended: Ended, order: Order) -> Iterator[str]:
    """Where they are submitted with no more than they had."""
    had, has = parse_size(ended.mem) if ended.mem else None, order.asking.task.mem_bytes
    if had is not None and has is not None and has <= had:
        yield f"  they had {format_bytes(had)}. If that happens again: slurm.mem={2 * had >> 20}MB"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
