"""Ending what was submitted: jobs with scancel, a process in the background with SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.queue.slurm_client import NoAnswer, ask
from slurm.queue.two_phase import study_lock
from slurm.records.start_records import is_over_in, read_starts
from slurm.records.submissions import (
    LOCAL,
    SLURM,
    Array,
    Submission,
    last_place,
    note_cancelled,
    submissions,
    this_user,
)
from slurm.records.submitter_liveness import NO_ROOM, waiter_lives
from slurm.submit.in_flight import is_alive, listed_as, process_of, task_states
from slurm.submit.reconcile import reconcile
from training.attempt.run_files import read_status

_TOLD = 8
_AGAIN = (
    "it ends them then. Without it: scancel JOB, or kill PID of what runs here, as `status` and run.lock name"
)


@dataclass(frozen=True)
class Target:
    """An array that is under way. tasks: those of it that are queued or run, to Slurm's word; of the local
    launcher empty."""

    submission: Submission
    array: Array
    tasks: dict[int, str] = field(default_factory=dict)

    @property
    def runs(self) -> list[str]:
        """Runs of the tasks that have not ended."""
        if self.submission.launcher == LOCAL or self.array.takes_any:
            return [run for task in self.array.tasks for run in task]
        return [run for task in sorted(self.tasks) for run in self.array.tasks[task]]

    @property
    def out_of_reach(self) -> str | None:
        """Why it cannot be ended from here, and who can."""
        if self.submission.launcher != LOCAL or self.array.job_id is None:
            return None
        host, pid, _ = process_of(self.array.job_id)
        if host != socket.gethostname():
            job = self.submission.job
            by_job = f", or scancel {job}, the job that it is in" if job is not None else ""
            return f"is on {host}: the same command there ends it{by_job}"
        with suppress(ProcessLookupError):
            try:
                os.kill(pid, 0)
            except PermissionError:
                return f"is of {self.submission.user}, who can end it"
        return None


def found_under_way(study: Path, runs: Sequence[str] = ()) -> list[Target]:
    """`under_way`, when it is known what became of submissions whose submitter died.

    Raises:
        UserError: Slurm does not answer; or a run shares its job or process with others.
    """
    with study_lock(study, _AGAIN):
        reconcile(study)
        found = under_way(study, runs)
        for target in found if runs else ():
            _tasks(target, runs)
        return found


def under_way(study: Path, runs: Sequence[str] = ()) -> list[Target]:
    """What holds runs of the study now; of these those that hold one of `runs`. Under the study's lock.

    Raises:
        UserError: Slurm does not answer.
    """
    known = list(submissions(study))
    states = task_states(
        (one, array) for one in known if one.launcher == SLURM for array in one.arrays if array.is_sent
    )
    found = []
    for submission in known:
        for array in submission.arrays:
            if array.error == NO_ROOM:
                is_waited_for = waiter_lives(array) is not False
                waiting = dict.fromkeys(_without_room(submission, array), "PENDING") if is_waited_for else {}
                target = Target(submission, array, waiting) if waiting else None
            elif submission.launcher == LOCAL:
                target = Target(submission, array) if is_alive(submission, array) else None
            else:
                numbers = range(len(array.tasks))
                slots = {n: listed_as(array, n) for n in numbers}
                tasks = {n: states[slot] for n, slot in slots.items() if slot in states}
                target = Target(submission, array, tasks) if tasks else None
            if target is None:
                continue
            meant = [run for run in target.runs if run in runs and not _is_over(study / run, array)]
            if meant or not runs:
                found.append(target)
    return found


def cancel(study: Path, runs: Sequence[str] = ()) -> list[Target]:
    """End what is under way, or what holds these runs alone; returns what was ended: all within reach.

    Runs that have begun get SIGTERM, at which they write a checkpoint and stop.

    Raises:
        UserError: a run shares its job or process with others; or Slurm does not answer, or does not let
            this user end the jobs of another; or all is ended, which cannot be written down.
    """
    unnoted: OSError | None = None
    with study_lock(study, _AGAIN):
        reconcile(study)
        found = [target for target in under_way(study, runs) if target.out_of_reach is None]
        tasks_of = [_tasks(target, runs) for target in found] if runs else [None] * len(found)
        jobs, asked_s = [], time.time()  # before: what ended earlier did so by itself
        for target, tasks in zip(found, tasks_of, strict=True):
            if target.array.error == NO_ROOM:
                continue  # who waits to submit it looks for this note before it does
            if target.submission.launcher == LOCAL:
                _end_process(target.array)
            elif tasks is None:
                jobs.append(target.array.job_id or "")
            else:
                jobs += [target.array.job_of(task) or "" for task in tasks]
        if not runs:
            whole = {target.submission.id: target.submission for target in found}
            jobs += [one.follow_up for one in whole.values() if one.follow_up is not None]
        theirs = _scancel(jobs, found)
        for target, tasks in zip(found, tasks_of, strict=True):
            if target.submission.user in theirs:
                continue
            is_whole = target.submission.launcher == LOCAL or target.array.takes_any
            ended = sorted(target.tasks) if tasks is None else tasks  # others of it had ended by themselves
            try:
                note_cancelled(target.submission, target.array, asked_s, None if is_whole else ended)
            except OSError as error:
                unnoted = error
        if not theirs:
            _give_up_waiting(study, runs, asked_s)
    if theirs:
        raise UserError(
            f"Slurm does not let you end jobs of {', '.join(theirs)}: they can, or an operator. "
            "All else is ended",
            code="jobs-of-others",
        )
    if unnoted is not None:
        raise UserError(
            f"all is ended, but {study} cannot be written ({unnoted.strerror}): status may call the "
            "runs failed",
            code="cancelled-not-written",
        )
    return found


def _without_room(submission: Submission, array: Array) -> list[int]:
    """Tasks that the queue had no room for, and that no later submission has taken and nobody cancelled."""
    numbers = []
    for number, names in enumerate(array.tasks):
        last = last_place(submission.study / names[0])
        is_newest = last is not None and last[0].id == submission.id
        if is_newest and array.cancelled_at(number) is None:
            numbers.append(number)
    return numbers


def _give_up_waiting(study: Path, runs: Sequence[str], asked_s: float) -> None:
    """What the command that waited with it has left is cancelled too: another that waits for the same sweep
    would submit it as soon as all else is ended.
    """
    for submission in list(submissions(study)):
        for array in submission.arrays:
            if array.error != NO_ROOM or waiter_lives(array) is not False:
                continue
            left = _without_room(submission, array)
            tasks = [task for task in left if not runs or set(array.tasks[task]) <= set(runs)]
            if tasks:
                with suppress(OSError):  # what was under way is ended, and that is told
                    note_cancelled(submission, array, asked_s, tasks)


def _scancel(jobs: Sequence[str], found: Sequence[Target]) -> list[str]:
    """End them; returns the other users whose jobs among them are not this user's to end. Those that are have
    been ended all the same: scancel tries each.
    """
    try:
        if jobs:
            ask(["scancel", *jobs])
    except NoAnswer as error:
        theirs = {one.submission.user for one in found if one.submission.launcher == SLURM} - {this_user()}
        if "permission denied" not in str(error) or not theirs:
            raise
        return sorted(theirs)
    return []


def _tasks(target: Target, runs: Sequence[str]) -> list[int]:
    """The tasks that hold these runs and no other; none that has ended by itself."""
    numbers = []
    for number in range(len(target.array.tasks)):
        if target.submission.launcher == SLURM and number not in target.tasks:
            continue
        together = set(end_together(target.submission, target.array, number))  # of workers any may have it
        if len(together) > 1:
            together = {run for run in together if not _is_over(target.submission.study / run, target.array)}
        wanted, others = together & set(runs), sorted(together - set(runs))
        if wanted and others:
            what = "process" if target.submission.launcher == LOCAL else "job"
            listed = ", ".join(others[:_TOLD]) + (", ..." if len(others) > _TOLD else "")
            raise UserError(
                f"{', '.join(sorted(wanted))} shares a {what} with other runs ({listed}), which would "
                "end with it. Name them all, or cancel the study",
                code="shared-job",
            )
        if wanted:
            numbers.append(number)
    return numbers


def _is_over(folder: Path, array: Array) -> bool:
    """Done, or ended by itself in this job, which others share."""
    state = read_status(folder).get("state")
    return state == "done" or is_over_in(read_starts(folder), array.job_id)


def end_together(submission: Submission, array: Array, task: int) -> list[str]:
    """The runs that end when that of one of them is cancelled: they share its process, or its job."""
    if submission.launcher == LOCAL or array.takes_any:
        return [run for names in array.tasks for run in names]
    return list(array.tasks[task])


def _end_process(array: Array) -> None:
    assert array.job_id is not None
    _, pid, _ = process_of(array.job_id)
    with suppress(ProcessLookupError):  # it has just come to its end
        os.kill(pid, signal.SIGTERM)
