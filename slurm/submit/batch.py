"""Submitting a study's runs in two phases that survive a crash in between.

    lock the study -> reconcile what an earlier submitter left -> leave what is done, queued or running
    -> run folders, submission.json, each run's place in it     (the intent: all of it on the disk)
    -> one sbatch an array, its job id written down at once      (the answer)

A submitter that dies leaves the lock behind, which the next one takes over; what it had sent and not heard
of is found by its name (`slurm.submit.reconcile`). So a run is in a queue once, and every job is known.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import Problem, UserError
from experiment_utils.lease import remove_lapsed
from experiment_utils.quantities import counted
from slurm.cluster.current_job import Job
from slurm.queue.arrays import Asked, ToSend, array_name, arrays_of, first_runs, together_of
from slurm.queue.queue_limits import Limits, Queue, queues_of_study
from slurm.queue.send import prepare, send, sending
from slurm.queue.two_phase import intend, send_all, sent, side_by_side, study_lock, submission_id
from slurm.records.submissions import LOCAL, SLURM, Array, Submission, last_place, read_submission
from slurm.records.submitter_liveness import NO_ROOM
from slurm.submit.follow_up import follow_up, send_follow_up
from slurm.submit.frozen_code import keep_known_keys
from slurm.submit.in_flight import in_flight
from slurm.submit.local_process import start_process
from slurm.submit.reconcile import reconcile
from training.attempt.begin import CodeChanged, check_code, create_run
from training.attempt.run_files import LOCK, read_config, state_of

if TYPE_CHECKING:
    from training.plan import Plan

log = logging.getLogger("slurm")


@dataclass(frozen=True)
class Order:
    """How runs are to be submitted. launcher: SLURM or LOCAL. jobs: side by side, of LOCAL. command: as it
    was typed. asked: what each run asks of the cluster, by its name. limits: of the cluster. snapshot: of the
    code. ensembles: of each run in one, its name. waiter: the process that will submit what the queue has no
    room for now, as others end; earlier: ids of what it has submitted of the study so far. is_frozen: whether
    the snapshot is that of an earlier submission.
    """

    launcher: str
    command: str
    snapshot: Path | None
    asked: Mapping[str, Asked] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    jobs: int = 1
    then: str | None = None
    notify: str | None = None
    ensembles: Mapping[str, str] = field(default_factory=dict)
    waiter: str | None = None
    earlier: tuple[str, ...] = ()
    is_frozen: bool = False

    def at_its_end(self, late: Sequence[Asked]) -> dict[str, str | None]:
        """What is to come after the submission; of one that others follow, after the last of these."""
        follows = bool(late) and self.waiter is not None
        return {"then": None if follows else self.then, "notify": None if follows else self.notify}


@dataclass(frozen=True)
class Submitted:
    """What became of a study's runs that were asked for.

    submission: None where nothing had to be submitted. left: run to `done`, `queued`, `running`, or
    `cancelled` while it waited for room. not_sent: run to why it was not submitted. no_room: those of them
    that the queue had no room for.
    """

    study: Path
    runs: list[str]
    submission: Submission | None = None
    left: dict[str, str] = field(default_factory=dict)
    not_sent: dict[str, str] = field(default_factory=dict)
    no_room: tuple[str, ...] = ()

    @property
    def sent(self) -> list[str]:
        """Runs that this command submitted."""
        return [run for run in self.runs if run not in self.left and run not in self.not_sent]

    @property
    def unheard(self) -> list[str]:
        """Runs of which nobody knows yet whether sbatch has made their job."""
        arrays = self.submission.arrays if self.submission else []
        return [run for array in arrays if array.is_sent is None for task in array.tasks for run in task]

    @property
    def tasks(self) -> Counter[Queue]:
        """In the cluster's queue since, as far as is known; the job at the end may be in each of them."""
        tasks: Counter[Queue] = Counter()
        if self.submission is None:
            return tasks
        for array in self.submission.arrays:
            if array.is_sent is not False:
                tasks[Queue.of(array.options)] += len(array.tasks)
        if self.submission.follow_up is not None:
            tasks.update(dict.fromkeys(tasks, 1))
        return tasks

    def without(self, runs: Sequence[str]) -> Submitted:
        """Less these, which were submitted by another."""
        left = {run: word for run, word in self.left.items() if run not in runs}
        not_sent = {run: why for run, why in self.not_sent.items() if run not in runs}
        kept = [run for run in self.runs if run not in runs]
        return dataclasses.replace(self, runs=kept, left=left, not_sent=not_sent, no_room=())

    def to_json(self) -> dict[str, Any]:
        arrays = self.submission.arrays if self.submission else []
        return {
            "study": str(self.study),
            "submission": self.submission.id if self.submission else None,
            "launcher": self.submission.launcher if self.submission else None,
            "jobs": [
                {"job": array.job_id, "name": array.name, "tasks": array.tasks, "options": array.options}
                for array in arrays
                if array.job_id is not None
            ],
            "follow_up": self.submission.follow_up if self.submission else None,
            "submitted": self.sent,
            "left": self.left,
            "not_submitted": self.not_sent,
            "not_known": self.unheard,
        }


def submit(plans: Sequence[Plan], order: Order) -> Submitted:
    """Submit those runs of a study that are neither done nor queued nor running.

    Raises:
        UserError: Slurm does not answer, so what is queued is not known; or the folder cannot be written.
    """
    by_run = {plan.folder.name: plan for plan in reversed(plans) if plan.folder is not None}
    runs = list(dict.fromkeys(plan.folder.name for plan in plans if plan.folder is not None))
    assert plans[0].folder is not None
    study = plans[0].folder.parent
    with study_lock(study):
        reconcile(study)
        again = {run for run in runs if by_run[run].config.again}
        left = _left_alone(study, runs, order.waiter, again)
        atomic_files.point("submit:before_folders")
        made = _make_folders([by_run[run] for run in runs if run not in left], left, order)
        asked = [_asked(run, order) for run in made]
        missing, no_room = _those_that_fit(study, asked, order)
        late = [one for one in asked if one.run in no_room]
        if not missing and all(_is_noted(study / one.run, order.waiter) for one in late):
            return Submitted(study, runs, None, left, no_room, tuple(no_room))
        submission, to_send = _intend(study, missing, late, order)
        submission, refused = send_all(submission, to_send, _send, _send_its_end)
        without = [array for array in submission.arrays if array.error == NO_ROOM]
        late_runs = tuple(run for array in without for task in array.tasks for run in task)
        return Submitted(study, runs, submission, left, refused | no_room, late_runs)


def send_the_end(study: Path, ids: Sequence[str], then: str | None, notify: str | None) -> None:
    """What is to come at the end of a command that has submitted these, one after the other, and waited; not
    where it has come before.

    Raises:
        UserError: a file of the study cannot be written.
    """
    *earlier, last = ids
    with study_lock(study):
        submission = read_submission(study, last)
        if submission.then is not None or submission.notify is not None:
            return
        submission = dataclasses.replace(submission, then=then, notify=notify, earlier=earlier)
        if submission.launcher == LOCAL:
            follow_up(submission)
            submission.write()
            return
        submission.write()
        with sending(submission) as lock:
            submission = send_follow_up(submission, lock, is_late=True)
    if submission.follow_up is not None:
        log.info("%s: at its end: job %s", study.name, submission.follow_up)


def was_cancelled(run: Path, waiter: str | None) -> bool:
    """Whether `slurm cancel` has ended a waiting of this process's for room for the run."""
    place = last_place(run) if waiter is not None else None
    if place is None:
        return False
    _, array, task = place
    return (array.error, array.waiter) == (NO_ROOM, waiter) and array.cancelled_at(task) is not None


def _left_alone(study: Path, runs: Sequence[str], waiter: str | None, again: set[str]) -> dict[str, str]:
    """Runs that are done, that a process works on, or that were cancelled while they waited: to which.

    again: runs that begin again from step 0, also if they are done.
    """
    states = {run: state_of(study / run) for run in runs}
    found = {run: "cancelled" for run in runs if was_cancelled(study / run, waiter)}
    found |= {run: "done" for run in runs if states[run] == "done" and run not in again}
    found |= in_flight(study, [run for run in runs if run not in found and (study / run).exists()])
    # whatever its status says: an attempt can be killed between its lock and its first word
    remove_lapsed(study / run / LOCK for run in runs if run not in found)
    for run in runs:
        if run not in found and state_of(study / run) == "running":
            found[run] = "running"
    return found


def _make_folders(plans: Sequence[Plan], left: dict[str, str], order: Order) -> list[str]:
    """Make them, and return the runs' names; one that a process has taken meanwhile goes to `left`."""
    code = {} if order.snapshot is None else {"code": order.snapshot}
    changed: list[Problem] = []
    for plan in plans:
        try:
            if plan.folder is not None and not plan.config.again:
                check_code(plan.folder, plan.config.code, **code, quiet=True)
        except CodeChanged as refused:
            changed += refused.problems
    if changed:  # no folder was made: a run that is not submitted is not in the study
        raise UserError(*changed)

    def make(plan: Plan) -> bool:
        assert plan.identity is not None
        assert plan.folder is not None
        before = read_config(plan.folder) if order.is_frozen else None
        try:
            create_run(plan.config, plan.identity, **code)
        except lock_file.LockHeld:
            return False
        if before is not None:
            keep_known_keys(plan.folder, before)
        return True

    names = [plan.folder.name for plan in plans if plan.folder is not None]
    made = dict(zip(names, side_by_side(make, plans), strict=True))
    left.update((name, "running") for name, is_made in made.items() if not is_made)
    return [name for name, is_made in made.items() if is_made]


def _asked(run: str, order: Order) -> Asked:
    return dataclasses.replace(order.asked.get(run, Asked(run)), ensemble=order.ensembles.get(run))


def _those_that_fit(study: Path, asked: Sequence[Asked], order: Order) -> tuple[list[Asked], dict[str, str]]:
    queues, limits = {one.queue for one in asked}, order.limits
    kept = first_runs(asked, limits)
    if (order.then or order.notify) and (order.waiter is None or len(kept) == len(asked)):
        # of a command that waits the job at the end goes with the last runs: others need no room for it
        ends = queues | queues_of_study(study)
        kept, limits = first_runs(asked, limits, ends), limits.less_one_of(ends)
    names = {one.run for one in kept}
    where = {queue: f" of {queue}" if len(queues) > 1 else "" for queue in queues}

    def why(one: Asked) -> str:
        room = limits.room(one.queue) or 0
        told = f"the queue{where[one.queue]} had room for {counted(room, 'more task')} (MaxSubmitJobs, "
        told += "MaxJobCount). Type the same command again when some have ended"
        if room == 0 or one.ensemble is not None:
            return told
        workers = min(8, room)  # more than there is room for would be as many jobs as before
        return f"{told}, or let few jobs take one run after the other: slurm.workers={workers}"

    return kept, {one.run: why(one) for one in asked if one.run not in names}


def _is_noted(run: Path, waiter: str | None) -> bool:
    """Whether it is known already that the queue has no room for the run, and who waits."""
    place = last_place(run)
    return place is not None and (place[1].error, place[1].waiter) == (NO_ROOM, waiter)


def _intend(
    study: Path, asked: Sequence[Asked], late: Sequence[Asked], order: Order
) -> tuple[Submission, list[ToSend]]:
    """The first phase; returns what is to be sent now. late: for these there is no room yet."""
    now_s = time.time()
    name = submission_id(now_s)
    job = Job.of() if order.launcher == LOCAL else None
    waiting: list[ToSend] = []
    if order.launcher == SLURM:
        to_send = [
            dataclasses.replace(one, array=dataclasses.replace(one.array, waiter=order.waiter))
            for one in arrays_of(asked, study, name, order.limits.most_tasks)
        ]
        for one in arrays_of(late, study, name, order.limits.most_tasks):
            number = len(to_send) + len(waiting)
            array = dataclasses.replace(
                one.array,
                number=number,
                name=array_name(study, name, number),
                error=NO_ROOM,
                waiter=order.waiter,
            )
            waiting.append(ToSend(array, one.setup))
    else:
        tasks = together_of({one.run: one.ensemble for one in asked})
        how = "ensemble" if any(one.ensemble for one in asked) else "each" if job is None else "shared"
        array = Array(0, array_name(study, name, 0), tasks, how=how, parallel=order.jobs)
        to_send = [ToSend(array, ())]
    submission = intend(
        name,
        study,
        [*to_send, *waiting],
        now_s,
        launcher=order.launcher,
        command=order.command,
        snapshot=order.snapshot,
        earlier=list(order.earlier),
        job=None if job is None else job.id,
        **order.at_its_end(late),
    )
    return submission, to_send


def _send_its_end(submission: Submission, lock: int) -> Submission:
    """What is to come after it; where others of the same command follow, after the last of these."""
    if any(array.error == NO_ROOM and array.waiter is not None for array in submission.arrays):
        submission = dataclasses.replace(submission, then=None, notify=None)
        submission.write()
    return send_follow_up(submission, lock)


def _send(submission: Submission, one: ToSend, lock: int) -> Array:
    if submission.launcher == LOCAL:
        return start_process(submission, one.array, lock)
    path = prepare(submission, one.array, one.setup)
    return sent(one.array, send(submission, path, one.array.options, lock))
