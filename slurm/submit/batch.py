"""Submitting a study's runs in two phases that survive a crash in between.

    lock the study -> reconcile what an earlier submitter left -> leave what is done, queued or running
    -> run folders, submission.json, each run's place in it     (the intent: all of it on the disk)
    -> one sbatch an array, its job id written down at once      (the answer)

A submitter that dies leaves the lock behind, which the next one takes over; what it had sent and not heard
of is found by its name (`slurm.submit.reconciling`). So a run is in a queue once, and every job is known.
"""

from __future__ import annotations

import dataclasses
import getpass
import logging
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import durable
import experiment_utils
from conf import Config
from conf.quantities import counted
from slurm.in_job.job import has_ended
from slurm.records import LOCAL, SLURM, SUBMISSIONS, Array, Place, Submission, add_place
from slurm.submit.arrays import Asked, ToSend, array_name, arrays_of, first_runs
from slurm.submit.ask import NoAnswer
from slurm.submit.asking import Limits
from slurm.submit.follow_up import send_follow_up
from slurm.submit.in_flight import in_flight
from slurm.submit.local_process import start_process
from slurm.submit.reconciling import reconcile
from slurm.submit.send import Refused, prepare, send, sending

if TYPE_CHECKING:
    from training.plan import Plan

log = logging.getLogger("slurm")

LOCK, LOCK_WAIT_S = "lock", 300.0
WRITERS = 16


@dataclass(frozen=True)
class Order:
    """How runs are to be submitted. launcher: SLURM or LOCAL. jobs: side by side, of LOCAL. command: as it
    was typed. asked: what each run asks of the cluster, by its name. limits: of the cluster. snapshot: of the
    code.
    """

    launcher: str
    command: str
    snapshot: Path | None
    asked: Mapping[str, Asked] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    jobs: int = 1
    then: str | None = None
    notify: str | None = None


@dataclass(frozen=True)
class Submitted:
    """What became of a study's runs that were asked for.

    submission: None where nothing had to be submitted. left: run to `done`, `queued` or `running`. not_sent:
    run to why it was not submitted.
    """

    study: Path
    runs: list[str]
    submission: Submission | None = None
    left: dict[str, str] = field(default_factory=dict)
    not_sent: dict[str, str] = field(default_factory=dict)

    @property
    def sent(self) -> list[str]:
        """Runs that this command submitted."""
        return [run for run in self.runs if run not in self.left and run not in self.not_sent]

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
        }


@contextmanager
def study_lock(study: Path) -> Iterator[None]:
    """Nobody else submits or cancels runs of the study for the length of the block.

    Raises:
        LockHeld: somebody else still does after minutes.
    """
    folder = study / SUBMISSIONS
    folder.mkdir(parents=True, exist_ok=True)
    with durable.lock(folder / LOCK, f"submitting runs of {study}", wait_s=LOCK_WAIT_S):
        yield


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
        left = _left_alone(study, runs)
        durable.point("submit:before_folders")
        made = _make_folders([by_run[run] for run in runs if run not in left], left)
        missing, not_sent = _those_that_fit([order.asked.get(run, Asked(run)) for run in made], order)
        if not missing:
            return Submitted(study, runs, None, left, not_sent)
        submission, to_send = _intend(study, missing, order, by_run[missing[0].run].config)
        submission, refused = _send_all(submission, to_send)
        return Submitted(study, runs, submission, left, not_sent | refused)


def _left_alone(study: Path, runs: Sequence[str]) -> dict[str, str]:
    """Runs that are done, or that somebody works on, to which of it they are."""
    states = {run: experiment_utils.state_of(study / run) for run in runs}
    found = {run: "done" for run in runs if states[run] == "done"}
    found |= in_flight(study, [run for run in runs if run not in found and (study / run).exists()])
    for run in runs:
        if run not in found and states[run] == "running":
            _remove_lock_of_a_lost_node(study / run)
            if experiment_utils.state_of(study / run) == "running":
                found[run] = "running"
    return found


def _remove_lock_of_a_lost_node(folder: Path) -> None:
    """A process on another machine counts as alive, unless Slurm says that its job has ended."""
    path, what = folder / "run.lock", f"the run folder {folder}"
    holder = durable.read_holder(path, what)
    if holder is None or holder.host == socket.gethostname() or holder.job_id is None:
        return
    if has_ended(holder.job_id):
        log.info("%s was held by %s, whose job has ended", folder.name, holder)
        durable.break_lock(path, holder, what)


def _make_folders(plans: Sequence[Plan], left: dict[str, str]) -> list[str]:
    """Make them, and return the runs' names; one that a process has taken meanwhile goes to `left`."""

    def make(plan: Plan) -> bool:
        assert plan.identity is not None
        try:
            experiment_utils.create_run(plan.config, plan.identity)
        except durable.LockHeld:
            return False
        return True

    names = [plan.folder.name for plan in plans if plan.folder is not None]
    made = dict(zip(names, _side_by_side(make, plans), strict=True))
    left.update((name, "running") for name, is_made in made.items() if not is_made)
    return [name for name, is_made in made.items() if is_made]


def _side_by_side(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What is waited for is the disk, on a network file system for milliseconds each time."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, items))


def _those_that_fit(asked: Sequence[Asked], order: Order) -> tuple[list[Asked], dict[str, str]]:
    if order.limits.room is None:
        return list(asked), {}
    room = order.limits.room - (1 if order.then or order.notify else 0)
    kept = first_runs(asked, room)
    why = (
        f"the cluster lets you have {counted(max(0, room), 'more task')} in its queue now (MaxSubmitJobs). "
        "Type the same command again when some have ended, or let few jobs take one run after the other: "
        "slurm.workers=8"
    )
    names = {one.run for one in kept}
    return kept, {one.run: why for one in asked if one.run not in names}


def _intend(
    study: Path, asked: Sequence[Asked], order: Order, config: Config
) -> tuple[Submission, list[ToSend]]:
    """The first phase: what is about to be submitted, on the disk."""
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    name = f"{stamp}-{int(now * 1000) % 1000:03d}-{secrets.token_hex(2)}"
    if order.launcher == SLURM:
        to_send = arrays_of(asked, study, name, order.limits.most_tasks)
    else:
        tasks = [[one.run] for one in asked]
        to_send = [ToSend(Array(0, array_name(study, name, 0), tasks, parallel=order.jobs), ())]
    submission = Submission(
        id=name,
        study=study,
        launcher=order.launcher,
        created_s=round(now, 3),
        user=getpass.getuser(),
        host=socket.gethostname(),
        cwd=str(Path.cwd()),
        command=order.command,
        arrays=[one.array for one in to_send],
        snapshot=str(order.snapshot.absolute()) if order.snapshot else None,
        then=order.then,
        notify=order.notify,
    )
    submission.write()
    durable.point("submit:after_submission")
    places = [
        (study / run, Place(name, one.array.number, task))
        for one in to_send
        for task, runs in enumerate(one.array.tasks)
        for run in runs
    ]
    _side_by_side(lambda place: add_place(*place), places)
    durable.point("submit:after_places")
    return submission, to_send


def _send_all(submission: Submission, to_send: Sequence[ToSend]) -> tuple[Submission, dict[str, str]]:
    """The second phase. Returns the submission as it stands then, and why which run was not submitted."""
    error: str | None = None
    with sending(submission) as lock:
        for one in to_send:
            if error is None:
                try:
                    array = _send(submission, one, lock)
                except (Refused, NoAnswer) as raised:
                    error = str(raised)
                    # After no answer it may be in the queue: `reconcile` finds out.
                    array = one.array if isinstance(raised, NoAnswer) else _with_error(one.array, error)
            else:
                array = _with_error(one.array, f"not submitted after another array was refused: {error}")
            arrays = [array if array.number == other.number else other for other in submission.arrays]
            submission = dataclasses.replace(submission, arrays=arrays)
            submission.write()
            durable.point("submit:after_job_id")
        submission = send_follow_up(submission, lock)
    refused = {
        run: array.error or error or ""
        for array in submission.arrays
        if not array.is_sent
        for task in array.tasks
        for run in task
    }
    return submission, refused


def _send(submission: Submission, one: ToSend, lock: int) -> Array:
    if submission.launcher == LOCAL:
        return start_process(submission, one.array, lock)
    path = prepare(submission, one.array, one.setup)
    job = send(submission, path, one.array.options, lock)
    return dataclasses.replace(one.array, job_id=job, submitted_s=round(time.time(), 3))


def _with_error(array: Array, error: str) -> Array:
    return dataclasses.replace(array, error=error)
