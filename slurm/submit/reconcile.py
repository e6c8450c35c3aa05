"""What became of submissions whose submitter died: jobs that it did not hear of get their numbers, and what
is to come after them is submitted.

Everything here is done under the study's lock (`slurm.queue.two_phase.study_lock`).
"""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.queue.find_jobs import find_jobs, resolved
from slurm.queue.send import sending
from slurm.records.submissions import LOCAL, Submission, read_submission, submissions
from slurm.records.submitter_liveness import has_ended
from slurm.submit.follow_up import follow_up_name, send_follow_up

log = logging.getLogger("slurm")

WAIT_S = 330.0
"""For an sbatch that its submitter left behind: longer than one is given."""
_POLL_S = 0.5


def reconcile(study: Path) -> list[Submission]:
    """Find out what was submitted of what nobody knows it of; returns what was changed.

    Raises:
        UserError: Slurm does not answer, so nobody can tell; nothing was changed.
    """
    changed = []
    for submission in submissions(study):
        before = submission
        if any(array.is_sent is None for array in submission.arrays):
            submission = _reconciled(submission)
        if submission.wants_follow_up:
            submission = _with_follow_up(submission)
        if submission != before:
            changed.append(submission)
    return changed


def _reconciled(submission: Submission) -> Submission:
    deadline = time.monotonic() + WAIT_S
    while not has_ended(submission):
        if time.monotonic() > deadline:
            raise UserError(
                f"{submission.folder}: its submitter is gone, and its sbatch still waits for an answer: "
                "Slurm is down, or busy. Type the same command again later"
            )
        time.sleep(_POLL_S)
    submission = read_submission(submission.study, submission.id)  # it may have come to its end meanwhile
    unheard = [array for array in submission.arrays if array.is_sent is None]
    if not unheard:
        return submission
    jobs = {} if submission.launcher == LOCAL else find_jobs([array.name for array in unheard], submission)
    told = {array.number: resolved(array, jobs) for array in unheard}
    submission = dataclasses.replace(
        submission, arrays=[told.get(array.number, array) for array in submission.arrays]
    )
    submission.write()
    return submission


def _with_follow_up(submission: Submission) -> Submission:
    """Find the job that comes after the arrays, or submit it now."""
    name = follow_up_name(submission)
    job = find_jobs([name], submission).get(name)
    if job is None:
        with sending(submission) as lock:
            return send_follow_up(submission, lock, is_late=True)
    submission = dataclasses.replace(submission, follow_up=job)
    submission.write()
    return submission
