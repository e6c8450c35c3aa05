"""End what was submitted: jobs by scancel, a process in the background by SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
    note_cancelled,
    submissions,
    this_user,
)
from slurm.submit.in_flight import is_alive, listed_as, process_of, task_states
from slurm.submit.reconcile import reconcile
from training.attempt.run_files import read_status

_LISTED = 8
_AGAIN = (
    "it ends them then. Without it: scancel JOB, or kill PID of what runs here, as `status` and run.lock name"
)


@dataclass(frozen=True)
class Target:
    """An array that is queued or runs."""

    submission: Submission
    array: Array
    tasks: dict[int, str] = field(default_factory=dict)
    """Slurm's word for each task that is queued or runs; empty for the local launcher."""

    @property
    def is_one(self) -> bool:
        """Whether its runs can end only together: in one process, or in tasks that take any of them."""
        return self.submission.launcher == LOCAL or self.array.takes_any

    @property
    def runs(self) -> list[str]:
        """Runs of the tasks that have not ended."""
        numbers = range(len(self.array.tasks)) if self.is_one else sorted(self.tasks)
        return [run for task in numbers for run in self.array.tasks[task]]

    @property
    def out_of_reach(self) -> str | None:
        """Why it cannot be ended by this process, and who can end it."""
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


@dataclass(frozen=True)
class CancelResult:
    """A target that was to be ended."""

    target: Target
    tasks: list[int] | None = None
    """Tasks of the array; None: all of it."""
    error: str | None = None
    """Why it was not ended, or that it could not be noted."""


def found_under_way(study: Path, runs: Sequence[str] = ()) -> list[Target]:
    """`under_way`, after the records of killed submitters were completed.

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
    """Arrays of the study that are queued or run, or only those that hold one of `runs`; under its lock.

    Raises:
        UserError: Slurm does not answer.
    """
    known = [(one, array) for one in submissions(study) for array in one.arrays]
    states = task_states((one, array) for one, array in known if one.launcher == SLURM and array.is_sent)
    found = []
    for submission, array in known:
        slots = ((task, listed_as(array, task)) for task in range(len(array.tasks)))
        target = Target(submission, array, {task: states[slot] for task, slot in slots if slot in states})
        is_live = is_alive(submission, array) if submission.launcher == LOCAL else bool(target.tasks)
        if is_live and (not runs or set(_unfinished(target, target.runs)) & set(runs)):
            found.append(target)
    return found


def cancel(study: Path, runs: Sequence[str] = ()) -> list[CancelResult]:
    """End what is queued or runs, or only what holds these runs; returns each with why it was not ended.

    Runs that have begun get SIGTERM: they write a checkpoint and stop.

    Raises:
        UserError: a run shares its job or process with others; or Slurm does not answer.
    """
    with study_lock(study, _AGAIN):
        reconcile(study)
        found = [
            CancelResult(target, _tasks(target, runs) if runs else None, target.out_of_reach)
            for target in under_way(study, runs)
        ]
        in_reach = [one for one in found if one.error is None]
        asked_s = time.time()  # before: runs that ended earlier did so by themselves
        for one in in_reach:
            if one.target.submission.launcher == LOCAL:
                _end_process(one.target.array)
        denied = _scancel(in_reach, with_ends=not runs)
        return [_noted(one, asked_s, denied) if one.error is None else one for one in found]


def _scancel(results: Iterable[CancelResult], *, with_ends: bool) -> set[str]:
    """End the jobs of these; returns the other users whose jobs scancel was not allowed to end.

    Args:
        with_ends: also end the end jobs of their submissions.

    Raises:
        NoAnswer: scancel failed.
    """
    jobs: dict[str | None, None] = {}
    on_slurm = [one for one in results if one.target.submission.launcher == SLURM]
    for one in on_slurm:
        array = one.target.array
        jobs |= dict.fromkeys([array.job_id] if one.tasks is None else map(array.job_of, one.tasks))
    if with_ends:
        jobs |= dict.fromkeys(one.target.submission.follow_up for one in on_slurm)
    try:
        if any(jobs):
            ask(["scancel", *filter(None, jobs)])
    except NoAnswer as error:  # it has ended all others
        users = {one.target.submission.user for one in on_slurm} - {this_user()}
        if not users or "permission denied" not in str(error):
            raise
        return users
    return set()


def _noted(result: CancelResult, asked_s: float, denied: set[str]) -> CancelResult:
    """Write down that it was ended, unless its user is one of `denied`."""
    target = result.target
    user = target.submission.user
    if target.submission.launcher == SLURM and user in denied:
        return replace(result, error=f"Slurm does not let you end jobs of {user}: they can, or an operator")
    ended = sorted(target.tasks) if result.tasks is None else result.tasks  # others ended by themselves
    try:
        note_cancelled(target.submission, target.array, asked_s, None if target.is_one else ended)
    except OSError as error:
        why = f"it is ended, but the study cannot be written ({error.strerror}): status can call runs failed"
        return replace(result, error=why)
    return result


def _tasks(target: Target, runs: Sequence[str]) -> list[int]:
    """The tasks that hold these runs and no other, and have not ended.

    Raises:
        UserError: a task holds other runs that have not ended.
    """
    numbers = []
    for number in range(len(target.array.tasks)) if target.is_one else sorted(target.tasks):
        if target.submission.launcher == SLURM and number not in target.tasks:
            continue
        together = end_together(target.submission, target.array, number)
        open_runs = set(_unfinished(target, together) if len(together) > 1 else together)
        wanted, others = open_runs & set(runs), sorted(open_runs - set(runs))
        if wanted and others:
            what = "process" if target.submission.launcher == LOCAL else "job"
            listed = ", ".join(others[:_LISTED]) + (", ..." if len(others) > _LISTED else "")
            raise UserError(
                f"{', '.join(sorted(wanted))} shares a {what} with other runs ({listed}), which would "
                "end with it. Name them all, or cancel the study",
                code="shared-job",
            )
        if wanted:
            numbers.append(number)
    return numbers


def _unfinished(target: Target, runs: Iterable[str]) -> list[str]:
    """The runs that are not done, and have not ended by themselves in this job."""
    folder, job = target.submission.study, target.array.job_id
    return [
        run
        for run in runs
        if read_status(folder / run).get("state") != "done" and not is_over_in(read_starts(folder / run), job)
    ]


def end_together(submission: Submission, array: Array, task: int) -> list[str]:
    """The runs that end when the job of one of them is cancelled: they share its process, or its job."""
    if submission.launcher == LOCAL or array.takes_any:
        return [run for names in array.tasks for run in names]
    return list(array.tasks[array.task_of(task)])


def _end_process(array: Array) -> None:
    assert array.job_id is not None
    _, pid, _ = process_of(array.job_id)
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, signal.SIGTERM)
