"""The room in a cluster's queue: how many tasks may still be submitted now, and where.

A limit counts the jobs of an account, a quality of service or a partition: where one partition is full, runs
for another wait for nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from conf.schema import Slurm
from slurm.cluster.facts import Cluster
from slurm.records.submissions import SLURM, submissions

MAX_ARRAY_SIZE = 1001
"""Slurm's default of MaxArraySize (slurm.conf(5))."""


class Queue(NamedTuple):
    """Where a job is to go, as sbatch is told; None: not told."""

    account: str | None = None
    qos: str | None = None
    partition: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Queue:
        """options: of sbatch, without dashes."""
        return cls(*(options.get(name) for name in cls._fields))

    @classmethod
    def wanted(cls, slurm: Slurm) -> Queue:
        return cls(slurm.account, slurm.qos, slurm.partition)

    def __str__(self) -> str:
        """`partition gpu, account lab`; what is not told is not said."""
        said = [
            f"{name} {value}" for name, value in zip(self._fields, self, strict=True) if value is not None
        ]
        return ", ".join(reversed(said)) or "the default partition"


@dataclass(frozen=True)
class Room:
    """left: tasks that may still be submitted now, of those for all these queues together. also: queues whose
    tasks take of it, and are held against another limit.
    """

    left: int
    queues: frozenset[Queue]
    also: frozenset[Queue] = frozenset()


@dataclass(frozen=True)
class Limits:
    """What the cluster takes. most_tasks: of one array. rooms: in its queue, as far as limits are known."""

    most_tasks: int = MAX_ARRAY_SIZE
    rooms: tuple[Room, ...] = ()

    def room(self, queue: Queue) -> int | None:
        """Tasks that may be submitted now for the queue; None: no limit is known."""
        return min((room.left for room in self.rooms if queue in room.queues), default=None)

    def takes(self, tasks: Mapping[Queue, int], last: Queue) -> bool:
        """Whether there is room for so many tasks of each queue, if there is for all but the last of them."""
        return all(_counted(room, tasks) <= room.left for room in self.rooms if last in room.queues)

    def takes_the_end(self, tasks: Mapping[Queue, int], ends: Collection[Queue]) -> bool:
        """Whether beside these a queue where the job at the end of a sweep may go has room for it."""
        return not ends or any(self.takes(Counter(tasks) + Counter([end]), end) for end in ends)

    def less(self, tasks: Mapping[Queue, int]) -> Limits:
        """After so many more tasks of each queue were submitted."""
        rooms = (replace(room, left=max(0, room.left - _counted(room, tasks))) for room in self.rooms)
        return replace(self, rooms=tuple(rooms))

    def less_one_of(self, queues: Iterable[Queue]) -> Limits:
        """With room kept for the job at the end of a sweep for these, which goes to where it finds some."""
        rooms = {queue: self.room(queue) for queue in queues}
        known = {queue: room for queue, room in rooms.items() if room is not None}
        if not rooms or len(known) < len(rooms):
            return self  # one of them takes any number
        return self.less({max(sorted(known, key=str), key=known.__getitem__): 1})


def limits_of(queues: Iterable[Queue], cluster: Cluster) -> Limits:
    """What the cluster takes at most of jobs for these."""
    return Limits(most_tasks(cluster), rooms_of(list(dict.fromkeys(queues)), cluster))


def queues_of_study(study: Path) -> set[Queue]:
    """Where runs of it were sent, or were to be: the job at its end may go there too."""
    return {
        Queue.of(array.options)
        for submission in submissions(study)
        if submission.launcher == SLURM
        for array in submission.arrays
    }


def most_tasks(cluster: Cluster) -> int:
    """In one array: indices are below MaxArraySize. Where arrays are off (0) each task is a plain job."""
    size = cluster.max_array_size
    return MAX_ARRAY_SIZE if size is None else max(1, size)


def rooms_of(queues: Sequence[Queue], cluster: Cluster) -> tuple[Room, ...]:
    """None: sbatch alone knows which limit holds."""
    return ()


def _counted(room: Room, tasks: Mapping[Queue, int]) -> int:
    return sum(many for queue, many in tasks.items() if queue in room.queues | room.also)
