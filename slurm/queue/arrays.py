"""Job arrays for runs: one for each class of resources, of as many tasks as the cluster takes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiment_utils.quantities import counted
from slurm.cluster.facts import Cluster
from slurm.records.submissions import Array

MAX_ARRAY_SIZE = 1001
"""Slurm's default of MaxArraySize (slurm.conf(5))."""
_NOT_IN_A_JOB_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class Asked:
    """The request of one run. Runs with the same request share an array."""

    run: str
    options: dict[str, Any] = field(default_factory=dict)
    """Options of sbatch, without dashes."""
    setup: tuple[str, ...] = ()
    """Lines of shell before the run."""
    parallel: int | None = None
    """Tasks of the array that run at a time (`slurm.parallel`)."""
    pack: int = 1
    """Runs in parallel in one task (`slurm.pack`)."""
    workers: int | None = None
    """Tasks that take one missing run after another (`slurm.workers`)."""
    ensemble: str | None = None
    """Name of the ensemble that the run is trained in; the runs of an ensemble are one task."""

    @property
    def resource_class(self) -> str:
        """A text that is equal for runs that can share an array."""
        same = [self.options, self.setup, self.parallel, self.pack, self.workers, self.ensemble is not None]
        return json.dumps(same, sort_keys=True, default=str)


@dataclass(frozen=True)
class ToSend:
    """An array with the lines of shell before its runs."""

    array: Array
    setup: tuple[str, ...]
    note: str | None = None
    """Why its tasks take several runs, if that was not asked for."""


def most_tasks(cluster: Cluster) -> int:
    """The number of tasks that an array can have; 1 if arrays are off (MaxArraySize=0)."""
    size = cluster.max_array_size
    return MAX_ARRAY_SIZE if size is None else max(1, size)


def array_name(study: Path, submission_id: str, number: int) -> str:
    """The job's name, unique among all jobs, by which Slurm is asked for a job whose id did not arrive."""
    return f"{_NOT_IN_A_JOB_NAME.sub('_', study.name)}-{submission_id}-{number}"


def arrays_of(
    asked: Sequence[Asked], study: Path, submission_id: str, most_tasks: int, *, shares: bool = True
) -> list[ToSend]:
    """The arrays for these runs, in the order of the requests.

    Args:
        most_tasks: number of tasks that an array can have.
        shares: whether tasks can take several runs if there are more runs than `most_tasks`; else there are
            several arrays.
    """
    classes: dict[str, list[Asked]] = {}
    for one in asked:
        classes.setdefault(one.resource_class, []).append(one)
    found: list[ToSend] = []
    for first, *others in classes.values():
        whole, note = _array_of([first, *others]), None
        if shares and 1 < most_tasks < len(whole.tasks) and can_share(whole):
            note = shared_words(len(whole.tasks), most_tasks, "more than MaxArraySize")
            whole = with_fewer_tasks(whole, most_tasks)
        for start in range(0, len(whole.tasks), most_tasks):
            tasks, number = whole.tasks[start : start + most_tasks], len(found)
            parallel = first.parallel if first.parallel is not None and first.parallel < len(tasks) else None
            name = array_name(study, submission_id, number)
            array = replace(whole, number=number, name=name, tasks=tasks, parallel=parallel)
            found.append(ToSend(array, first.setup, note))
    return found


def shared_words(wanted: int, tasks: int, why: str) -> str:
    """Words about an array with fewer tasks than were wanted."""
    jobs = f"{counted(tasks, 'job')} {'takes' if tasks == 1 else 'take'} their runs one after another"
    return f"{counted(wanted, 'job')}: {why}; {jobs}"


def can_share(array: Array) -> bool:
    """Whether its tasks can take several runs, one after another: runs of one rank, and no ensemble."""
    nodes, ranks = (str(array.options.get(name, 1)) for name in ("nodes", "ntasks-per-node"))
    return array.how != "ensemble" and (nodes, ranks) == ("1", "1") and "ntasks" not in array.options


def with_fewer_tasks(array: Array, count: int) -> Array:
    """The array with `count` tasks, each of which takes one missing run after another.

    The runs of task n are now those of task `n % count`: see `Array.task_of`.
    """
    tasks = [[run for task in array.tasks[first::count] for run in task] for first in range(count)]
    return replace(array, how="shared", tasks=tasks)


def in_earlier_words(array: Array) -> Array:
    """The array for earlier code, which knows `pack` and `workers` in place of `shared` and its slots."""
    is_packed = all(len(task) <= array.slots for task in array.tasks)
    how = ("pack" if is_packed else "workers") if array.how == "shared" else array.how
    return replace(array, how=how, slots=1)


def together_of(ensembles: Mapping[str, str | None]) -> list[list[str]]:
    """The runs of each ensemble, and each other run alone.

    Args:
        ensembles: name of a run to the name of its ensemble.
    """
    found: dict[str, list[str]] = {}
    for run, ensemble in ensembles.items():
        found.setdefault(ensemble or run, []).append(run)
    return list(found.values())


def _array_of(members: Sequence[Asked]) -> Array:
    """One array for runs of one class, without a name."""
    first, runs = members[0], [member.run for member in members]
    if first.ensemble is not None:
        tasks = together_of({one.run: one.ensemble for one in members})
        return Array(0, "", tasks, dict(first.options), how="ensemble")
    how, slots, tasks = _tasks(runs, first.pack, first.workers)
    return Array(0, "", tasks, dict(first.options), how=how, slots=slots)


def _tasks(runs: list[str], pack: int, workers: int | None) -> tuple[str, int, list[list[str]]]:
    """The `how` and `slots` of an array, and the runs of each of its tasks."""
    if pack == 1 and workers is None:
        return "each", 1, [[run] for run in runs]
    count = min(-(-len(runs) // pack), workers or len(runs))
    return "shared", pack, [runs[task::count] for task in range(count)]
