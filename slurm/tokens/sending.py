"""Submitting what is missing of a token set: tasks that nobody does, and the merge behind all of them.

    lock -> reconcile what an earlier submitter left -> what the queue holds -> what lies on the disk
    -> tasks that are neither done nor queued nor running -> intent -> sbatch -> job ids

The queue is asked before the disk: a task that ends in between is seen in the one or the other.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.block_range import BlockRange
from data_loading.pretokenizer.task_states import TaskStates
from data_loading.set_files import SetFiles
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from slurm.records import SLURM, Array, Submission, last_place, submissions
from slurm.submit.arrays import Asked, ToSend, arrays_of
from slurm.submit.ask import ask
from slurm.submit.cancelling import under_way
from slurm.submit.in_flight import word_of
from slurm.submit.phases import intend, send_all, sent, study_lock, submission_id
from slurm.submit.reconciling import reconcile
from slurm.submit.room import Limits, Queue
from slurm.submit.send import send
from slurm.submitters import NO_ROOM
from slurm.tokens.asking import Asking
from slurm.tokens.script import MERGE, script
from slurm.truth.answers import ask_slurm

SCRIPTS = "scripts"
UNKNOWN = "unknown"
"""In place of a word, where Slurm tells nothing of a job any more."""


@dataclass(frozen=True)
class Order:
    """files: of the set. makes: a name of all that decides its bytes. arguments: of each task's command;
    merge_arguments: of the merge's. command: as it was typed. snapshot: makes the copy of the code.
    """

    files: SetFiles
    tasks: int
    makes: str
    asking: Asking
    limits: Limits
    arguments: list[str]
    merge_arguments: list[str]
    command: str
    snapshot: Callable[[Path], Path]

    @property
    def names(self) -> list[str]:
        """Of the tasks, as their folders are called."""
        return [BlockRange(task, self.tasks).folder_name for task in range(self.tasks)]


@dataclass(frozen=True)
class Held:
    """What the queue holds. tasks: name of a task, or MERGE, to (job, `queued` or `running`)."""

    tasks: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def merge(self) -> str | None:
        """The job that merges."""
        return self.tasks[MERGE][0] if MERGE in self.tasks else None

    def word(self, name: str) -> str | None:
        return self.tasks[name][1] if name in self.tasks else None


@dataclass(frozen=True)
class Ended:
    """How the last job of a task ended. word: Slurm's, or UNKNOWN. mem: `--mem` of it."""

    word: str
    mem: str | None = None


@dataclass(frozen=True)
class Sent:
    """What became of the command. states, held: as they were found. sent: tasks that were submitted. ended:
    how what was submitted before had ended, by name. not_sent: name to why it was not submitted.
    """

    states: TaskStates
    held: Held = field(default_factory=Held)
    submission: Submission | None = None
    sent: tuple[str, ...] = ()
    ended: Mapping[str, Ended] = field(default_factory=dict)
    not_sent: Mapping[str, str] = field(default_factory=dict)

    @property
    def merge(self) -> str | None:
        """The job that merges, submitted now or before."""
        mine = [array for array in self.arrays if array.tasks == [[MERGE]]]
        return mine[0].job_id if mine else self.held.merge

    @property
    def arrays(self) -> list[Array]:
        return [array for array in self.submission.arrays if array.is_sent] if self.submission else []

    @property
    def jobs(self) -> list[str]:
        """All that are under way, those of this command first."""
        mine = [array.job_id for array in self.arrays if array.job_id is not None]
        before = [job.partition("_")[0] for job, _ in self.held.tasks.values()]
        return list(dict.fromkeys([*mine, *before]))


def send_missing(order: Order, look: Callable[[], TaskStates]) -> Sent:
    """Submit what is missing. look: at what lies on the disk.

    Raises:
        UserError: Slurm does not answer; or the queue holds jobs of another text, tokenizer, option or
            division for this set.
    """
    study = order.files.jobs
    with study_lock(study):
        reconcile(study)
        held = held_by_queue(study, order)
        states = look()
        if states.manifest is not None or held.word(MERGE) == "running":
            return Sent(states, held)
        missing = [
            name
            for task, name in enumerate(order.names)
            if task not in states.done and name not in held.tasks
        ]
        if not missing and held.merge is not None:
            return Sent(states, held)
        ended = _how_they_ended(study, [*missing, MERGE])
        if held.merge is not None:  # behind a task that has failed, so that it could never begin
            ask(["scancel", held.merge])
            held = Held({name: one for name, one in held.tasks.items() if name != MERGE})
        fit, not_sent = _those_that_fit(missing, order)
        if not fit and not_sent:
            if next(submissions(study), None) is None:  # status and resubmit go by the newest of them
                _note_no_room(study, order, missing)
            return Sent(states, held, None, (), ended, not_sent)
        submission, refused = _submit(study, order, fit, held, with_merge=not not_sent)
        sent_now = tuple(name for name in fit if name not in refused)
        return Sent(states, held, submission, sent_now, ended, {**not_sent, **refused})


def held_by_queue(study: Path, order: Order) -> Held:
    """What squeue lists of the set's jobs.

    Raises:
        UserError: Slurm does not answer; or they make something else.
    """
    found: dict[str, tuple[str, str]] = {}
    for target in under_way(study):
        names = {name for number in target.tasks for name in target.array.tasks[number]}
        if target.submission.makes != order.makes or names - {*order.names, MERGE}:
            raise UserError(
                f"{order.files.tokens}: jobs are under way for it that make something else: another text, "
                f"tokenizer, option or number of tasks. They were submitted by: {target.submission.command}\n"
                f"Wait for them, or end them (scancel {target.array.job_id}) and type this again"
            )
        for number, word in target.tasks.items():
            for name in target.array.tasks[number]:
                found[name] = (target.array.job_of(number) or "", word_of(word))
    return Held(found)


def _those_that_fit(missing: list[str], order: Order) -> tuple[list[str], dict[str, str]]:
    room = order.limits.room(Queue.of(order.asking.task.options))
    if room is None or len(missing) + 1 <= room:
        return missing, {}
    why = (
        f"the queue had room for {counted(room, 'more job')} (MaxSubmitJobs, MaxJobCount). "
        "Type the same command again when some have ended; the merge is submitted with the last task"
    )
    return missing[:room], dict.fromkeys([*missing[room:], MERGE], why)


def _submit(
    study: Path, order: Order, names: list[str], held: Held, *, with_merge: bool
) -> tuple[Submission, dict[str, str]]:
    snapshot = order.snapshot(study)
    now_s = time.time()
    identity = submission_id(now_s)
    to_send = to_send_of(study, identity, order, names)
    if not with_merge:
        to_send = to_send[:-1]
    submission = _intend(study, order, identity, to_send, names, now_s, snapshot)
    (submission.folder / SCRIPTS).mkdir()
    waits_for = [job for name, (job, _) in held.tasks.items() if name != MERGE]

    def send_one(submission: Submission, one: ToSend, lock: int) -> Array:
        array = one.array if one.array.tasks != [[MERGE]] else behind(one.array, submission, waits_for)
        path = submission.folder / SCRIPTS / f"{array.number}.sh"
        atomic_files.write_text(path, text_of(submission, array, one.setup, order))
        return sent(array, send(submission, path, array.options, lock))

    return send_all(submission, to_send, send_one)


def _note_no_room(study: Path, order: Order, names: list[str]) -> None:
    now_s = time.time()
    identity = submission_id(now_s)
    to_send = [
        dataclasses.replace(one, array=dataclasses.replace(one.array, error=NO_ROOM))
        for one in to_send_of(study, identity, order, names)
    ]
    _intend(study, order, identity, to_send, names, now_s, None)


def _intend(
    study: Path,
    order: Order,
    identity: str,
    to_send: list[ToSend],
    names: list[str],
    now_s: float,
    snapshot: Path | None,
) -> Submission:
    for name in (*names, MERGE):
        (study / name).mkdir(exist_ok=True)
    return intend(
        identity,
        study,
        to_send,
        now_s,
        launcher=SLURM,
        command=order.command,
        snapshot=snapshot,
        makes=order.makes,
    )


def to_send_of(study: Path, identity: str, order: Order, names: list[str]) -> list[ToSend]:
    """The arrays of the tasks, and the merge, which is the last."""
    task, merge = order.asking.task, order.asking.merge
    parallel = order.asking.wanted.parallel
    asked = [Asked(name, task.options, task.setup, parallel) for name in names]
    last = Asked(MERGE, {**merge.options, "kill-on-invalid-dep": "yes"}, merge.setup)
    return arrays_of([*asked, last], study, identity, order.limits.most_tasks)


def behind(merge: Array, submission: Submission, waits_for: list[str]) -> Array:
    """The merge, to begin when all tasks have ended well: those of this submission, and of earlier ones."""
    jobs = [array.job_id for array in submission.arrays if array.job_id is not None]
    after = ":".join([*jobs, *waits_for])
    options: dict[str, Any] = dict(merge.options)
    if after:
        options["dependency"] = f"afterok:{after}"
    return dataclasses.replace(merge, options=options)


def text_of(submission: Submission, array: Array, setup: tuple[str, ...], order: Order) -> str:
    """The script."""
    arguments = order.merge_arguments if array.tasks == [[MERGE]] else order.arguments
    return script(submission, array, setup, arguments, order.files.tokens)


def _how_they_ended(study: Path, names: list[str]) -> dict[str, Ended]:
    """Slurm's word for the last job of each of these; without those that were never submitted, and without a
    merge that never began, since a task before it had failed."""
    jobs, mems = {}, {}
    for name in names:
        place = last_place(study / name)
        if place is not None and (job := place[1].job_of(place[2])) is not None:
            jobs[name], mems[name] = job, place[1].options.get("mem")
    if not jobs:
        return {}
    answers = ask_slurm(jobs.values())
    found = {}
    for name, job in jobs.items():
        starts, row = answers.starts(job), answers.row(job)
        word = starts[-1].row.state if starts else row.state if row is not None else UNKNOWN
        if starts and any(one.was_out_of_memory for one in starts[-1].rows):
            word = "OUT_OF_MEMORY"
        if name != MERGE or word == "FAILED":
            found[name] = Ended(word, mems[name])
    return found
