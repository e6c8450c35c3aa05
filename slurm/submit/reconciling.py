"""What became of submissions whose submitter died: jobs that it did not hear of get their numbers, and what
is to come after them is submitted.

Everything here is done under the study's lock (`slurm.submit.phases.study_lock`).
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.records import LOCAL, Array, Submission, read_submission, submissions
from slurm.submit.ask import NoAnswer, ask
from slurm.submit.follow_up import follow_up_name, send_follow_up
from slurm.submit.send import sending
from slurm.submitters import NEVER_SENT, has_ended, sent_last_s

log = logging.getLogger("slurm")

SETTLE_S = 10.0
"""So long after it answers again slurmctld may still be making the job of an sbatch that it was handed."""
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
    jobs = {} if submission.launcher == LOCAL else _find([array.name for array in unheard], submission)
    told = {array.number: _told(array, jobs) for array in unheard}
    submission = dataclasses.replace(
        submission, arrays=[told.get(array.number, array) for array in submission.arrays]
    )
    submission.write()
    return submission


def after_no_answer(submission: Submission, array: Array, why: str) -> tuple[Array, str | None]:
    """Ask Slurm at once for the job of an sbatch that had no answer: the array as it stands then, and why it
    is not known to be submitted, None where it is. why: what sbatch said.
    """
    try:
        jobs = _find([array.name], submission)
    except NoAnswer as error:
        return array, (
            f"{why}; squeue cannot be asked now ({error}), so that nobody knows yet whether there is a job. "
            "Type the same command again later: it asks Slurm first, and submits nothing twice"
        )
    told = _told(array, jobs)
    if told.is_sent:
        return told, None
    return told, f"{why}. Slurm answers again, and has no job of it: type the same command again"


def _with_follow_up(submission: Submission) -> Submission:
    """Find the job that comes after the arrays, or submit it now."""
    name = follow_up_name(submission)
    job = _find([name], submission).get(name)
    if job is None:
        with sending(submission) as lock:
            return send_follow_up(submission, lock, is_late=True)
    submission = dataclasses.replace(submission, follow_up=job)
    submission.write()
    return submission


def _told(array: Array, jobs: dict[str, str]) -> Array:
    job = jobs.get(array.name)
    if job is None:
        log.info("%s %s", array.name, NEVER_SENT)
        return dataclasses.replace(array, error=NEVER_SENT)
    log.info("%s is job %s: its sbatch was not heard to have made it", array.name, job)
    return dataclasses.replace(array, job_id=job, submitted_s=round(time.time(), 3))


def _find(names: list[str], submission: Submission) -> dict[str, str]:
    """Name to job id. Looks until what may still be under way has come to light: a slurmctld that stood still
    finds the request when it goes on, however long ago sbatch gave it up.
    """
    was_called = sent_last_s(submission) > 0
    answered = None
    while True:
        found = jobs_named(names, since_s=submission.created_s)
        answered = time.monotonic() if answered is None else answered
        settled = not was_called or time.monotonic() - answered >= SETTLE_S
        if len(found) == len(names) or settled:
            return found
        time.sleep(_POLL_S)


def jobs_named(names: Iterable[str], *, since_s: float) -> dict[str, str]:
    """Name to the id of the job or array, of those that squeue or, when they have ended, sacct knows.

    since_s: none of them is older, seconds since the epoch.

    Raises:
        NoAnswer: of squeue. A site without sacct has squeue's memory alone (MinJobAge, five minutes).
    """
    wanted = ",".join(sorted(names))
    if not wanted:
        return {}
    found: dict[str, str] = {}
    rows = ask(["squeue", "--noheader", "--states=all", f"--name={wanted}", "--format=%F|%j"]).splitlines()
    try:
        day = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since_s - 86_400))
        asked = ["sacct", "--noheader", "--allocations", "--parsable2", "--format=JobID,JobName"]
        rows += ask([*asked, f"--name={wanted}", f"--starttime={day}", "--allusers"]).splitlines()
    except NoAnswer as error:
        log.debug("%s", error)
    for row in rows:
        job, _, name = row.strip().partition("|")
        number = job.partition("_")[0]
        if not number.isdigit():
            continue
        if found.setdefault(name, number) != number:
            log.warning("jobs %s and %s are both called %s; the first counts", found[name], number, name)
    return found
