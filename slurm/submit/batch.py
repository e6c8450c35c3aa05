"""Submitting a study's runs in two phases, so that a submitter can be killed at any moment.

    lock the study -> reconcile what an earlier submitter left -> leave what is done, queued or running
    -> run folders, submission.json, each run's place in it     (the intent, on the disk)
    -> one sbatch an array, its job id written down             (the answer)

The next submitter takes over the lock of a killed one, and finds jobs whose ids were not written down, by
their names (`slurm.submit.reconcile`). So a run is in the queue once, and every job is known.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import Problem, UserError
from experiment_utils.lease import remove_lapsed
from experiment_utils.modules import IMPORT_ROOT, rooms_in
from slurm.cluster.current_job import Job
from slurm.queue.arrays import (
    MAX_ARRAY_SIZE,
    Asked,
    ToSend,
    array_name,
    arrays_of,
    can_share,
    in_earlier_words,
    shared_words,
    together_of,
    with_fewer_tasks,
)
from slurm.queue.send import NoRoom, check_room, prepare, send
from slurm.queue.two_phase import intend, send_all, sent, side_by_side, study_lock, submission_id
from slurm.records.submissions import LOCAL, SLURM, Array, Submission
from slurm.submit.follow_up import send_follow_up
from slurm.submit.frozen_code import keep_known_keys
from slurm.submit.in_flight import in_flight
from slurm.submit.local_process import start_process
from slurm.submit.reconcile import reconcile
from training.attempt.begin import CodeChanged, check_code, create_run, named_plugins
from training.attempt.code_version import ROOT
from training.attempt.run_files import LOCK, read_config, state_of

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

log = logging.getLogger("slurm")


@dataclass(frozen=True)
class Order:
    """Options of a submission."""

    launcher: str
    """SLURM or LOCAL."""
    command: str
    """The command as typed."""
    snapshot: Path | None
    """Copy of the code that the runs are computed with."""
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """Request of each run to the cluster, by its name."""
    most_tasks: int = MAX_ARRAY_SIZE
    """Tasks that an array can have."""
    jobs: int = 1
    """Runs in parallel on this machine."""
    then: str | None = None
    notify: str | None = None
    ensembles: Mapping[str, str] = field(default_factory=dict)
    """Name of a run to the name of its ensemble."""
    is_frozen: bool = False
    """Whether the snapshot is that of an earlier submission."""


@dataclass(frozen=True)
class Submitted:
    """The result of submitting runs of one study."""

    study: Path
    runs: list[str]
    """Names of all runs that were asked for."""
    submission: Submission | None = None
    """None if no run had to be submitted."""
    left: dict[str, str] = field(default_factory=dict)
    """Runs that were left as they are: `done`, `queued`, `running` or `blocked`, by name."""
    not_sent: dict[str, str] = field(default_factory=dict)
    """Reason why a run was not submitted, by name."""

    @property
    def sent(self) -> list[str]:
        """Runs that this command submitted."""
        return [run for run in self.runs if run not in self.left and run not in self.not_sent]

    @property
    def unheard(self) -> list[str]:
        """Runs that can be in the queue or not: sbatch had no answer."""
        arrays = self.submission.arrays if self.submission else []
        return [run for array in arrays if array.is_sent is None for task in array.tasks for run in task]

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
    """Submit the runs of a study that are neither done nor queued nor running.

    Raises:
        UserError: Slurm does not answer, so the queue is not known; or the folder cannot be written.
    """
    by_run = {plan.folder.name: plan for plan in reversed(plans) if plan.folder is not None}
    runs = list(dict.fromkeys(plan.folder.name for plan in plans if plan.folder is not None))
    assert plans[0].folder is not None
    study = plans[0].folder.parent
    with study_lock(study):
        reconcile(study)
        left = _left_alone(study, runs, {run for run in runs if by_run[run].config.again})
        atomic_files.point("submit:before_folders")
        made = _make_folders([by_run[run] for run in runs if run not in left], left, order)
        if not made:
            return Submitted(study, runs, None, left)
        submission, to_send = _intend(study, made, order)
        submission, not_sent = send_all(submission, to_send, _send, afterwards=send_follow_up)
        return Submitted(study, runs, submission, left, not_sent)


def _left_alone(study: Path, runs: Sequence[str], again: set[str]) -> dict[str, str]:
    """Runs that are not submitted, with their states: done, in the queue, or running.

    Args:
        again: runs that begin again from step 0, also if they are done.
    """
    found = {run: "done" for run in runs if run not in again and state_of(study / run) == "done"}
    found |= in_flight(study, [run for run in runs if run not in found and (study / run).exists()])
    # whatever its status says: an attempt can be killed between its lock and its first word
    remove_lapsed(study / run / LOCK for run in runs if run not in found)
    for run in runs:
        if run not in found and state_of(study / run) == "running":
            found[run] = "running"
    return found


def _make_folders(plans: Sequence[Plan], left: dict[str, str], order: Order) -> list[str]:
    """Make the folders of the runs; returns the runs' names. A run that is locked by now goes to `left`."""
    code = ROOT if order.snapshot is None else order.snapshot
    changed: list[Problem] = []
    for plan in plans:
        try:
            if plan.folder is not None and not plan.config.again:
                # runs that keep the code that they were submitted with keep the plugins too
                plugins = None if order.is_frozen else named_plugins(plan.config)
                check_code(plan.folder, plan.config.code, code, quiet=True, plugins=plugins)
        except CodeChanged as refused:
            changed += refused.problems
    if changed:  # no folder was made: a run that is not submitted is not in the study
        raise UserError(*changed)

    def make(plan: Plan) -> bool:
        assert plan.identity is not None
        assert plan.folder is not None
        before = read_config(plan.folder) if order.is_frozen else None
        try:
            create_run(plan.config, plan.identity, code=code, keeps_plugins=order.is_frozen)
        except lock_file.LockHeld:
            return False
        if before is not None:
            keep_known_keys(plan.folder, before)
        return True

    names = [plan.folder.name for plan in plans if plan.folder is not None]
    made = dict(zip(names, side_by_side(make, plans), strict=True))
    left.update((name, "running") for name, is_made in made.items() if not is_made)
    return [name for name, is_made in made.items() if is_made]


def _intend(study: Path, runs: Sequence[str], order: Order) -> tuple[Submission, list[ToSend]]:
    """The first phase: the record of the submission, and its arrays."""
    now_s = time()
    name = submission_id(now_s)
    job = Job.of() if order.launcher == LOCAL else None
    if order.launcher == SLURM:
        asked = [
            dataclasses.replace(order.asked.get(run, Asked(run)), ensemble=order.ensembles.get(run))
            for run in runs
        ]
        shares = _knows_shared(order.snapshot)
        to_send = arrays_of(asked, study, name, order.most_tasks, shares=shares)
        if not shares:
            to_send = [dataclasses.replace(one, array=in_earlier_words(one.array)) for one in to_send]
    else:
        tasks = together_of({run: order.ensembles.get(run) for run in runs})
        how = (
            "ensemble" if any(run in order.ensembles for run in runs) else "each" if job is None else "shared"
        )
        to_send = [ToSend(Array(0, array_name(study, name, 0), tasks, how=how, parallel=order.jobs), ())]
    submission = intend(
        name,
        study,
        to_send,
        now_s,
        launcher=order.launcher,
        command=order.command,
        snapshot=order.snapshot,
        job=None if job is None else job.id,
        then=order.then,
        notify=order.notify,
    )
    return submission, to_send


def _send(submission: Submission, one: ToSend, lock: int) -> Array:
    """Submit one array; as long as the queue has no room for it, with half of its tasks.

    Raises:
        Refused, NoAnswer: as `send`.
    """
    if submission.launcher == LOCAL:
        return start_process(submission, one.array, lock)
    array = one.array
    while True:
        path = prepare(submission, array, one.setup)
        try:
            if array != one.array:
                check_room(submission, path, array.options)
            job = send(submission, path, array.options, lock)
            break
        except NoRoom:
            if len(array.tasks) == 1 or not can_share(array) or not _knows_shared(submission.snapshot):
                raise
        array = with_fewer_tasks(one.array, len(array.tasks) // 2)
        submission.with_array(array).write()  # before sbatch: the job reads its runs there
    note = one.note
    if array != one.array:
        note = shared_words(len(one.array.tasks), len(array.tasks), "more than the queue has room for now")
    if note is not None:
        log.info("%s: %s", submission.study.name, note)
    return sent(array, job)


def _knows_shared(snapshot: str | Path | None) -> bool:
    """Whether a copy of the code has arrays of `shared` tasks: earlier code, as resubmitted, does not."""
    path = rooms_in(Path(snapshot or IMPORT_ROOT)) / "slurm" / "records" / "submissions.py"
    return path.exists() and '"shared"' in path.read_text(encoding="utf-8")
