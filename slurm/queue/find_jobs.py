"""Jobs of an sbatch whose answer was not heard, found by their name."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable

from slurm.queue.slurm_client import NoAnswer, ask
from slurm.records.submissions import Array, Submission
from slurm.records.submitter_liveness import NEVER_SENT, sent_last_s

log = logging.getLogger("slurm")

SETTLE_S = 10.0
"""So long after it answers again slurmctld may still be making the job of an sbatch that it was handed."""
_POLL_S = 0.5


def after_no_answer(submission: Submission, array: Array, why: str) -> tuple[Array, str | None]:
    """Ask Slurm at once for the job of an sbatch that had no answer: the array as it stands then, and why it
    is not known to be submitted, None where it is. why: what sbatch said.
    """
    try:
        jobs = find_jobs([array.name], submission)
    except NoAnswer as error:
        return array, (
            f"{why}; squeue cannot be asked now ({error}), so that nobody knows yet whether there is a job. "
            "Type the same command again later: it asks Slurm first, and submits nothing twice"
        )
    told = resolved(array, jobs)
    if told.is_sent:
        return told, None
    return told, f"{why}. Slurm answers again, and has no job of it: type the same command again"


def resolved(array: Array, jobs: dict[str, str]) -> Array:
    job = jobs.get(array.name)
    if job is None:
        log.info("%s %s", array.name, NEVER_SENT)
        return dataclasses.replace(array, error=NEVER_SENT)
    log.info("%s is job %s: its sbatch was not heard to have made it", array.name, job)
    return dataclasses.replace(array, job_id=job, submitted_s=round(time.time(), 3))


def find_jobs(names: list[str], submission: Submission) -> dict[str, str]:
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
