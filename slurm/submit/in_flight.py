"""Which runs of a study a queue already holds, whoever submitted them: they must not be submitted again."""

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
    last_place,
    places,
    read_submission,
)
from slurm.records.submitter_liveness import NO_ROOM, launcher_lives, this_process, waiter_lives
from training.attempt.run_files import read_status, state_of

BLOCKED = "blocked"
"""In place of Slurm's word: it waits for a job that did not end as it should have, and never starts."""
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
    """Run to `queued`, `blocked` or `running`, for those that a job or a process in the background holds.

    One call of squeue for all of them, a second where it does not list one.

    Raises:
        UserError: squeue does not answer, or what was submitted cannot be read: then nobody can tell.
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
    found = {}
    for run, held in of_run.items():
        if _waits_elsewhere(held[-1][1], held[-1][2]):
            found[run] = "queued"
        words = {
            word
            for submission, array, task in held
            for word in _words(study / run, submission, array, task, states)
        }
        if words:
            found[run] = next(word for word in ("running", "queued", BLOCKED) if word in words)
    return found


def without_a_waiter(study: Path, runs: Iterable[str]) -> list[str]:
    """Those that wait for room in the queue, while the command that was to submit them is gone."""
    open_runs = (run for run in runs if state_of(study / run) != "done")
    found = ((run, last_place(study / run)) for run in open_runs)
    return [
        run
        for run, place in found
        if place and _has_no_room(place[1], place[2]) and waiter_lives(place[1]) is False
    ]


def _waits_elsewhere(array: Array, task: int) -> bool:
    """Whether another command waits to submit it when the queue has room."""
    if not _has_no_room(array, task) or array.waiter == this_process():
        return False
    return waiter_lives(array) is not False


def _has_no_room(array: Array, task: int) -> bool:
    return array.error == NO_ROOM and array.cancelled_at(task) is None


def listed_as(array: Array, task: int) -> str:
    """What tells a task from all others: its job; of an array whose number nobody has heard its name."""
    return array.job_of(task) or f"{array.name}_{task}"


def task_states(arrays: Iterable[tuple[Submission, Array]]) -> dict[str, str]:
    """`listed_as` of a task to Slurm's word, for all that squeue lists, whoever's they are.

    By its name and its number: a number is given again where a cluster is set up anew, and jobs of plain
    scripts share a name. A job that squeue does not list by its name is looked up by its number: a site, an
    administrator or its user may have renamed it; and no name with a comma can be asked for. Its script tells
    that it is ours, and not of a cluster that counts anew; of a plain job where it was submitted.
    """
    told = sorted(arrays, key=lambda one: one[1].name)
    if not told:
        return {}
    names = ",".join(array.name for _, array in told)
    answer = ask(["squeue", "--noheader", "--array", f"--name={names}", "--format=%j|%F|%K|%T|%r"])
    slots = {(array.name, listed_as(array, task)) for _, array in told for task in range(len(array.tasks))}
    found = {}
    for line in answer.splitlines():
        name, job, task, state, reason = line.strip().rsplit("|", 4)
        state = BLOCKED if reason == NEVER else state
        for slot in (_written(job, task), f"{name}_{_task(task)}"):
            if (name, slot) in slots:
                found[slot] = state
    unseen = {
        array.job_id: one
        for one, array in told
        if array.job_id and not any(listed_as(array, task) in found for task in range(len(array.tasks)))
    }
    for line in _by_number(unseen) if unseen else ():
        job, task, state, cwd, script = line.strip().split("|", 4)
        slot = _written(job, task)
        submission = unseen.get(job) or unseen.get(slot)
        if submission is not None and (submission.id in script or _is_plain(submission, slot, cwd, script)):
            found[slot] = state
    return found


def _is_plain(submission: Submission, job: str, cwd: str, script: str) -> bool:
    """Whether it is the job of a plain script, which names no submission as those of all others do."""
    return submission.id == f"job-{job}" and submission.cwd == cwd and SUBMISSIONS not in script


def _by_number(jobs: Iterable[str]) -> list[str]:
    try:
        command = [
            "squeue",
            "--noheader",
            "--array",
            f"--jobs={','.join(jobs)}",
            "--format=%F|%K|%T|%r|%Z|%o",
        ]
        return ask(command).splitlines()
    except NoAnswer as error:
        if "Invalid job id" in str(error):  # it is asked for one that Slurm has forgotten
            return []
        raise


def _written(job: str, task: str) -> str:
    return f"{job}_{task}" if task.isdigit() else job


def _task(told: str) -> int:
    return int(told) if told.isdigit() else 0


def _words(
    run: Path, submission: Submission, array: Array, task: int, states: dict[str, str]
) -> Iterable[str]:
    if submission.launcher == LOCAL:
        return ("queued",) if is_alive(submission, array) and not _had_its_turn(run, submission) else ()
    if array.is_shared and is_over_in(read_starts(run), array.job_id):
        return ()  # the others of its job go on
    tasks = range(len(array.tasks)) if array.takes_any else (task,)
    slots = [listed_as(array, one) for one in tasks]
    return [word_of(states[slot]) for slot in slots if slot in states]


def word_of(state: str) -> str:
    """`queued`, `blocked` or `running`, of Slurm's word for a job that squeue lists."""
    if state == BLOCKED:
        return BLOCKED
    return "queued" if state in _QUEUED else "running"


def is_alive(submission: Submission, array: Array) -> bool:
    """Whether the local launcher's process is there. Of another host: until it is missed."""
    if array.job_id is None:
        return False
    lives = launcher_lives(submission, array, time.time())
    if lives is None and submission.job is not None:
        return has_ended(submission.job) is not True
    return lives is not False


def _had_its_turn(run: Path, submission: Submission) -> bool:
    """A process of this machine starts each of its runs once: one that has ended since is nobody's."""
    try:
        status = read_status(run)
    except UserError:
        return False
    beat = seconds(status.get("heartbeat_s"))
    has_ended = state_of(run) not in (None, "running")
    return has_ended and beat is not None and beat >= submission.created_s


def process_of(job_id: str) -> tuple[str, int, int]:
    """(host, pid, start in clock ticks after boot) of `HOST:PID:STARTED_AT`."""
    host, pid, started_at = job_id.rsplit(":", 2)
    return host, int(pid), int(started_at)
