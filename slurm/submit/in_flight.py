"""Runs of a study that are in a queue or running, by any submission: they must not be submitted again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.json_values import seconds
from slurm.cluster.current_job import has_ended
from slurm.queue.slurm_client import NoAnswer, ask
from slurm.records.start_records import is_over_in, read_starts
from slurm.records.submissions import (
    LOCAL,
    SLURM,
    SUBMISSIONS,
    Array,
    Submission,
    array_of,
    places,
    read_submission,
)
from slurm.records.submitter_liveness import launcher_lives
from training.attempt.run_files import read_status, state_of

BLOCKED = "blocked"
"""State of a job that never starts: the job that it depends on did not end as required."""
NEVER = "DependencyNeverSatisfied"
_QUEUED = (
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "CONFIGURING",
)


def in_flight(study: Path, runs: Sequence[str]) -> dict[str, str]:
    """State of each run that a job or a process in the background holds: `queued`, `blocked` or `running`.

    One squeue for all of them, a second if it does not list one.

    Raises:
        UserError: squeue does not answer, or a record of a submission cannot be read.
    """
    known: dict[str, Submission] = {}
    of_run: dict[str, list[tuple[Submission, Array, int]]] = {}
    for run in runs:
        for place in places(study / run):
            if place.submission not in known:
                known[place.submission] = read_submission(study, place.submission)
            submission = known[place.submission]
            array = array_of(study / run, submission, place)
            if array is not None:
                of_run.setdefault(run, []).append((submission, array, place.task))
    asked = {
        (submission.id, array.number): (submission, array)
        for held in of_run.values()
        for submission, array, _ in held
        if submission.launcher == SLURM and array.is_sent is not False
    }
    states = task_states(asked.values())
    any_task = {key: _words_of(array, range(len(array.tasks)), states) for key, (_, array) in asked.items()}
    found = {}
    for run, held in of_run.items():
        words: set[str] = set()
        for submission, array, task in held:
            if submission.launcher == LOCAL:
                words |= {"queued"} if _waits_here(study / run, submission, array) else set()
            elif array.is_shared and is_over_in(read_starts(study / run), array.job_id):
                continue  # its job continues with other runs
            elif array.takes_any:
                words |= any_task.get((submission.id, array.number), set())
            else:
                words |= _words_of(array, (task,), states)
        if words:
            found[run] = next(word for word in ("running", "queued", BLOCKED) if word in words)
    return found


def listed_as(array: Array, task: int) -> str:
    """Key of a task in `task_states`: its job, or the array's name if its number is not known."""
    return array.job_of(task) or f"{array.name}_{array.task_of(task)}"


def task_states(arrays: Iterable[tuple[Submission, Array]]) -> dict[str, str]:
    """Slurm's word for each task that squeue lists, by `listed_as`; jobs of other users too.

    Jobs are looked up by name and number: a cluster that is set up again counts from 1 again, and jobs of
    plain scripts share a name. A job that is not listed by its name is looked up by its number, since anyone
    who is allowed to can have renamed it; squeue takes no name with a comma. Its script shows that it is the
    same job; the job of a plain script is known by the folder that it was submitted from.
    """
    wanted = sorted(arrays, key=lambda one: one[1].name)
    if not wanted:
        return {}
    names = ",".join(array.name for _, array in wanted)
    answer = ask(["squeue", "--noheader", "--array", f"--name={names}", "--format=%j|%F|%K|%T|%r"])
    slots = {(array.name, listed_as(array, task)) for _, array in wanted for task in range(len(array.tasks))}
    found = {}
    for line in answer.splitlines():
        name, job, task, state, reason = line.strip().rsplit("|", 4)
        state = BLOCKED if reason == NEVER else state
        number = task if task.isdigit() else "0"
        for slot in (_job_of(job, task), f"{name}_{number}"):
            if (name, slot) in slots:
                found[slot] = state
    missing = {
        array.job_id: one
        for one, array in wanted
        if array.job_id and not any(listed_as(array, task) in found for task in range(len(array.tasks)))
    }
    for line in _by_number(missing) if missing else ():
        job, task, state, cwd, script = line.strip().split("|", 4)
        slot = _job_of(job, task)
        submission = missing.get(job) or missing.get(slot)
        if submission is not None and (submission.id in script or _is_plain(submission, slot, cwd, script)):
            found[slot] = state
    return found


def _is_plain(submission: Submission, job: str, cwd: str, script: str) -> bool:
    """Whether the job is that of a plain script, which names no submission."""
    return submission.id == f"job-{job}" and submission.cwd == cwd and SUBMISSIONS not in script


def _by_number(jobs: Iterable[str]) -> list[str]:
    listed = f"--jobs={','.join(jobs)}"
    try:
        return ask(["squeue", "--noheader", "--array", listed, "--format=%F|%K|%T|%Z|%o"]).splitlines()
    except NoAnswer as error:
        if "Invalid job id" in str(error):  # one of them is forgotten by Slurm
            return []
        raise


def _job_of(job: str, task: str) -> str:
    return f"{job}_{task}" if task.isdigit() else job


def _words_of(array: Array, tasks: Iterable[int], states: dict[str, str]) -> set[str]:
    slots = (listed_as(array, task) for task in tasks)
    return {word_of(states[slot]) for slot in slots if slot in states}


def word_of(state: str) -> str:
    """`queued`, `blocked` or `running`, for Slurm's word for a job that squeue lists."""
    if state == BLOCKED:
        return BLOCKED
    return "queued" if state in _QUEUED else "running"


def is_alive(submission: Submission, array: Array) -> bool:
    """Whether the process of the local launcher exists; on another host, until its heartbeat is missed."""
    if array.job_id is None:
        return False
    lives = launcher_lives(submission, array, time.time())
    if lives is None and submission.job is not None:
        return has_ended(submission.job) is not True
    return lives is not False


def _waits_here(run: Path, submission: Submission, array: Array) -> bool:
    """Whether a process of the local launcher is to start a run: it has not ended since."""
    if not is_alive(submission, array):
        return False
    try:
        beat_s = seconds(read_status(run).get("heartbeat_s"))
    except UserError:
        return True
    has_ended = state_of(run) not in (None, "running")
    return not (has_ended and beat_s is not None and beat_s >= submission.created_s)


def process_of(job_id: str) -> tuple[str, int, int]:
    """(host, pid, start in clock ticks after boot) of `HOST:PID:STARTED_AT`."""
    host, pid, started_at = job_id.rsplit(":", 2)
    return host, int(pid), int(started_at)
