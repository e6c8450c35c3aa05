"""Find out what a submitter that was killed has submitted: jobs without a number, and the end job.

Everything here is done under the study's lock (`slurm.queue.two_phase.study_lock`).
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.queue.find_jobs import find_jobs, resolved
from slurm.queue.send import sending
from slurm.records.submissions import LOCAL, Submission, read_submission, submissions
from slurm.records.submitter_liveness import has_ended
from slurm.submit.follow_up import follow_up_name, send_follow_up

WAIT_S = 330.0
"""Patience with an sbatch of a killed submitter: longer than the time that it is given."""
_POLL_S = 0.5


def reconcile(study: Path) -> list[Submission]:
    """Complete the records of the study's submissions; returns those that were changed.

    Raises:
        UserError: Slurm does not answer; nothing was changed.
    """
    changed = []
    for before in submissions(study):
        submission = before
        if any(array.is_sent is None for array in submission.arrays):
            submission = _with_job_ids(submission)
        if submission.wants_follow_up:
            submission = _with_follow_up(submission)
        if submission != before:
            changed.append(submission)
    return changed


def _with_job_ids(submission: Submission) -> Submission:
    deadline = time.monotonic() + WAIT_S
    while not has_ended(submission):
        if time.monotonic() > deadline:
            raise UserError(
                f"{submission.folder}: its submitter is gone, and its sbatch still waits for an answer: "
                "Slurm is down, or busy. Type the same command again later"
            )
        time.sleep(_POLL_S)
    submission = read_submission(submission.study, submission.id)  # the submitter can have completed it
    unheard = [array for array in submission.arrays if array.is_sent is None]
    if not unheard:
        return submission
    jobs = {} if submission.launcher == LOCAL else find_jobs([array.name for array in unheard], submission)
    for array in unheard:
        submission = submission.with_array(resolved(array, jobs))
    submission.write()
    return submission


def _with_follow_up(submission: Submission) -> Submission:
    """Find the end job, or submit it now."""
    name = follow_up_name(submission)
    job = find_jobs([name], submission).get(name)
    if job is None:
        with sending(submission) as lock:
            return send_follow_up(submission, lock)
    submission = dataclasses.replace(submission, follow_up=job)
    submission.write()
    return submission
