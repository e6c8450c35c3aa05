"""Runs to job arrays: one for each class of resources, split at what the cluster takes. A pure function."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.queue.queue_limits import Limits, Queue
from slurm.records.submissions import Array

_NOT_IN_A_JOB_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Asked:
    """What one run asks for. options: of sbatch, without dashes. setup: lines of shell before it.

    parallel, pack, workers: as in `slurm=`. ensemble: a name of the one that it is trained in; its runs are a
    task. Runs that ask for the same share an array.
    """

    run: str
    options: dict[str, Any] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    parallel: int | None = None
    pack: int = 1
    workers: int | None = None
    ensemble: str | None = None

    @property
    def queue(self) -> Queue:
        return Queue.of(self.options)

    @property
    def resource_class(self) -> str:
        """Equal for runs that may share an array."""
        same = [self.options, self.setup, self.parallel, self.pack, self.workers, self.ensemble is not None]
        return json.dumps(same, sort_keys=True, default=str)


@dataclass(frozen=True)
class ToSend:
    """An array with the lines of shell before its runs."""

    array: Array
    setup: tuple[str, ...]


def array_name(study: Path, submission_id: str, number: int) -> str:
    """The job's name, which no other job has: Slurm is asked for it where its id was not heard."""
    return f"{_NOT_IN_A_JOB_NAME.sub('_', study.name)}-{submission_id}-{number}"


def arrays_of(asked: Sequence[Asked], study: Path, submission_id: str, most_tasks: int) -> list[ToSend]:
    """The arrays of these runs, in the order in which they were asked for.

    most_tasks: in one array (MaxArraySize: its indices are below it).
    """
    classes: dict[str, list[Asked]] = {}
    for one in asked:
        classes.setdefault(one.resource_class, []).append(one)
    found: list[ToSend] = []
    for members in classes.values():
        first = members[0]
        if first.ensemble is not None:
            how, slots, tasks = "ensemble", 1, together_of({one.run: one.ensemble for one in members})
        else:
            how, slots, tasks = _tasks([member.run for member in members], first.pack, first.workers)
        for start in range(0, len(tasks), most_tasks):
            number = len(found)
            part = tasks[start : start + most_tasks]
            parallel = first.parallel if first.parallel is not None and first.parallel < len(part) else None
            name = array_name(study, submission_id, number)
            array = Array(number, name, part, dict(first.options), how, slots, parallel)
            found.append(ToSend(array, first.setup))
    return found


def together_of(ensembles: Mapping[str, str | None]) -> list[list[str]]:
    """The runs of each ensemble; one that is in none is by itself. ensembles: by run."""
    found: dict[str, list[str]] = {}
    for run, ensemble in ensembles.items():
        found.setdefault(ensemble or run, []).append(run)
    return list(found.values())


def first_runs(asked: Sequence[Asked], limits: Limits, ends: Collection[Queue] = ()) -> list[Asked]:
    """As many of the runs as the queue has room for, in their order; of an ensemble, a task, all or none.

    ends: where the job at their end may go, which needs room beside them.
    """
    kept: list[Asked] = []
    tasks: Counter[Queue] = Counter()
    of_class: dict[str, int] = {}
    counts: dict[str, int] = {}
    ensembles: set[tuple[str, str]] = set()
    for one in asked:
        key = one.resource_class
        if one.ensemble is not None and (key, one.ensemble) in ensembles:
            kept.append(one)
            continue
        many = counts.get(key, 0) + 1
        needed = min(-(-many // one.pack), one.workers or many)
        more = Counter({one.queue: needed - of_class.get(key, 0)})
        if limits.takes(tasks + more, one.queue) and limits.takes_the_end(tasks + more, ends):
            tasks += more
            of_class[key], counts[key] = needed, many
            kept.append(one)
            if one.ensemble is not None:
                ensembles.add((key, one.ensemble))
    return kept


def _tasks(runs: list[str], pack: int, workers: int | None) -> tuple[str, int, list[list[str]]]:
    """`how` and `slots` of an array, and the runs of each of its tasks."""
    if pack == 1 and workers is None:
        return "each", 1, [[run] for run in runs]
    count = min(-(-len(runs) // pack), workers or len(runs))
    return "shared", pack, [runs[task::count] for task in range(count)]
