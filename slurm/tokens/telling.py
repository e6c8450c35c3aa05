"""What is said of the jobs of a token set: what was submitted, how far they are, what to type."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from conf.quantities import counted
from memory import format_bytes
from slurm.tokens.script import LOG, MERGE
from slurm.tokens.sending import Order, Sent

_SHOWN = 5
_MEND = {
    "OUT_OF_MEMORY": "more memory: slurm.mem={more}",
    "TIMEOUT": "it goes on from there; more time at once: slurm.time=",
}
"""Slurm's word for how a task ended, to what to add to the command."""


def render(sent: Sent, order: Order) -> Iterator[str]:
    """Lines for a terminal."""
    output, total = order.files.tokens, order.tasks
    logs = shlex.quote(str(order.files.jobs / "*" / LOG)).strip("'")
    if sent.ended:
        yield from _ended(sent, order)
    if sent.sent:
        jobs = ", ".join(array.job_id or "" for array in sent.arrays if array.tasks != [[MERGE]])
        yield f"{output}: submitted {len(sent.sent):,} of {counted(total, 'task')} as job {jobs}"
        yield f"  each asks for {_asked(order)}"
    yield f"{output}: {_states(sent, order)}"
    if sent.merge is not None:
        yield f"{output}: merged when all are done, by job {sent.merge}"
    for why in dict.fromkeys(sent.not_sent.values()):
        names = [name for name, reason in sent.not_sent.items() if reason == why]
        yield f"{output}: not submitted: {_some(names)}: {why}"
    if not sent.arrays and not sent.not_sent:
        yield "nothing was submitted: jobs are under way for all that is missing"
    if sent.jobs:
        jobs = sent.jobs
        yield f"How they go: squeue --jobs={','.join(jobs)}; what they write: {logs}"
        yield f"To stop them: {shlex.join(['scancel', *jobs])}"
    yield (
        "When one has failed: type the same command again. It submits what is missing, and each task goes on "
        "from where it was"
    )


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
        "ended": dict(sent.ended),
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
    mem = "no memory" if task.mem_bytes is None else format_bytes(task.mem_bytes)
    return f"{counted(task.cpus, 'CPU')}, {mem} ({task.how_mem}); time: {task.how_time}"


def _ended(sent: Sent, order: Order) -> Iterator[str]:
    """How tasks ended that are submitted again, and what may help."""
    words = Counter(sent.ended.values())
    for word, count in words.items():
        names = [name for name, state in sent.ended.items() if state == word]
        yield f"{order.files.tokens}: {counted(count, 'task')} ended as {word}: {_some(names)}"
        yield f"  the last words: {shlex.join(['tail', str(order.files.jobs / names[0] / LOG)])}"
        mend = _MEND.get(word)
        if mend is not None:
            more = format_bytes(2 * (order.asking.task.mem_bytes or 0)).replace(" ", "")
            yield f"  {mend.format(more=more)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
