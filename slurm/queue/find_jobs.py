"""Find the jobs of an sbatch without an answer, by their names."""

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
"""Time after slurmctld answers again within which it can still make the job of an sbatch."""
_POLL_S = 0.5


def after_no_answer(submission: Submission, array: Array, why: str) -> tuple[Array, str | None]:
    """Ask Slurm for the job of an sbatch without an answer; returns the array, and why it is not submitted.

    Args:
        why: what sbatch said.
    """
    try:
        jobs = find_jobs([array.name], submission)
    except NoAnswer as error:
        return array, (
            f"{why}; squeue does not answer either ({error}), so there can be a job or not. Type the same "
            "command again later: it asks Slurm first, and submits nothing twice"
        )
    found = resolved(array, jobs)
    if found.is_sent:
        return found, None
    return found, f"{why}. Slurm answers again, and has no job of it: type the same command again"


def resolved(array: Array, jobs: dict[str, str]) -> Array:
    """The array with its job id, or with an error if it has no job."""
    job = jobs.get(array.name)
    if job is None:
        log.info("%s %s", array.name, NEVER_SENT)
        return dataclasses.replace(array, error=NEVER_SENT)
    log.info("%s is job %s, of an sbatch that had no answer", array.name, job)
    return dataclasses.replace(array, job_id=job, submitted_s=round(time.time(), 3))


def find_jobs(names: list[str], submission: Submission) -> dict[str, str]:
    """Job ids by name. If sbatch was called, look until slurmctld has had time to make the jobs: one that was
    stopped handles a request when it continues, however long ago sbatch gave it up.
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
    """Ids of jobs and arrays by name, from squeue and, for jobs that have ended, sacct.

    Args:
        since_s: no job is older, seconds since the epoch.

    Raises:
        NoAnswer: squeue does not answer. Without sacct, squeue alone is asked (MinJobAge, five minutes).
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
