"""The two phases of a submission: the intent on the disk, then one sbatch an array.

    lock -> reconcile -> ... -> intend: submission.json, each task's place in it      (all of it on the disk)
    send_all: one call an array, its job id written down before the next one          (the answers)

`slurm.submit.batch` submits runs, `slurm.tokens` tasks of a token set.
"""

from __future__ import annotations

import dataclasses
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError
from slurm.queue.arrays import ToSend
from slurm.queue.find_jobs import after_no_answer
from slurm.queue.send import Refused, sending
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import (
    SUBMISSIONS,
    Array,
    Place,
    Submission,
    add_place,
    read_submission,
    this_user,
)

LOCK, LOCK_WAIT_S = "lock", 300.0
WRITERS = 16

Send = Callable[[Submission, ToSend, int], Array]
"""Submits one array of a submission, with the lock of `sending`; raises as `send`."""


@contextmanager
def study_lock(study: Path, again: str = "it finds what has been submitted already") -> Iterator[None]:
    """Within the block no other process submits or cancels runs of the study.

    Args:
        again: result of typing the same command again, for the message about a full disk.

    Raises:
        LockHeld: another process holds the lock for minutes.
        UserError: a file of the study cannot be written.
    """
    folder = study / SUBMISSIONS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with lock_file.lock(folder / LOCK, f"submitting runs of {study}", wait_s=LOCK_WAIT_S):
            yield
    except OSError as error:
        if error.filename is not None and not Path(error.filename).is_relative_to(study):
            raise
        raise UserError(
            f"cannot write {error.filename or folder}: {error.strerror}. Once it can, type the same "
            f"command again: {again}",
            code="study-not-written",
        ) from error


def submission_id(now_s: float) -> str:
    """A new id, by the time in seconds since the epoch."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    return f"{stamp}-{int(now_s * 1000) % 1000:03d}-{secrets.token_hex(2)}"


def intend(
    submission_id: str,
    study: Path,
    to_send: Sequence[ToSend],
    now_s: float,
    *,
    launcher: str,
    command: str,
    snapshot: Path | None,
    **more: Any,
) -> Submission:
    """The first phase: write what is about to be submitted.

    Args:
        more: other fields of the submission.
    """
    submission = Submission(
        id=submission_id,
        study=study,
        launcher=launcher,
        created_s=round(now_s, 3),
        user=this_user(),
        host=socket.gethostname(),
        cwd=str(Path.cwd()),
        command=command,
        arrays=[one.array for one in to_send],
        snapshot=str(snapshot.absolute()) if snapshot else None,
        **more,
    )
    submission.write()
    atomic_files.point("submit:after_submission")
    places = [
        (study / run, Place(submission_id, one.array.number, task))
        for one in to_send
        for task, runs in enumerate(one.array.tasks)
        for run in runs
    ]
    side_by_side(lambda place: add_place(*place), places)
    atomic_files.point("submit:after_places")
    return submission


def send_all(
    submission: Submission,
    to_send: Sequence[ToSend],
    send_one: Send,
    *,
    afterwards: Callable[[Submission, int], Submission] = lambda submission, lock: submission,
) -> tuple[Submission, dict[str, str]]:
    """The second phase: submit each array. An array that is refused keeps no other from being sent.

    Args:
        send_one: submits one array.
        afterwards: submits what else goes with the arrays, under the same lock.

    Returns:
        The submission with the answers, and the reason for each run that was not submitted.
    """
    why: dict[int, str] = {}
    silent: str | None = None
    with sending(submission) as lock:
        for one in to_send:
            array = one.array
            try:
                if silent is not None:
                    raise Refused(f"not tried after another array had no answer: {silent}")
                array = send_one(submission, one, lock)
            except Refused as refused:
                array = dataclasses.replace(array, error=str(refused))
                why[array.number] = str(refused)
            except NoAnswer as error:  # there can be a job
                written = read_submission(submission.study, submission.id).arrays[array.number]
                array, silent = after_no_answer(submission, written, str(error))
                if silent is not None:
                    why[array.number] = silent
            submission = submission.with_array(array)
            submission.write()
            atomic_files.point("submit:after_job_id")
        submission = afterwards(submission, lock)
    not_sent = [array for array in submission.arrays if not array.is_sent]
    return submission, {
        run: why.get(array.number) or array.error or ""
        for array in not_sent
        for task in array.tasks
        for run in task
    }


def side_by_side(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """Results of `work` for each item, in threads: a network file system takes milliseconds for each call."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, items))


def sent(array: Array, job: str) -> Array:
    """The array, with the job id that sbatch has answered."""
    return dataclasses.replace(array, job_id=job, submitted_s=round(time.time(), 3))
