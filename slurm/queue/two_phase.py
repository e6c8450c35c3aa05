"""The two phases of a submission, whatever its tasks are: the intent on the disk, then one sbatch an array.

    lock -> reconcile -> ... -> intend: submission.json, each task's place in it      (all of it on the disk)
    send_all: one call an array, its job id written down before the next one          (the answers)

What a task is, its script, and what is left alone is the affair of `slurm.submit.batch` (runs) and
`slurm.tokens` (tasks of a token set).
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
from slurm.queue.queue_limits import Queue
from slurm.queue.send import NoRoom, Refused, sending
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import SUBMISSIONS, Array, Place, Submission, add_place, this_user
from slurm.records.submitter_liveness import NO_ROOM

LOCK, LOCK_WAIT_S = "lock", 300.0
WRITERS = 16

Send = Callable[[Submission, ToSend, int], Array]
"""Submits one array: the submission as it stands, the array, the lock of `sending`. Raises as `send`."""


@contextmanager
def study_lock(study: Path, again: str = "it finds what has been submitted already") -> Iterator[None]:
    """Nobody else submits or cancels anything of the study for the length of the block. again: what the same
    command does when a disk that was full has room.

    Raises:
        LockHeld: somebody else still does after minutes.
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
            f"cannot write {error.filename or folder}: {error.strerror}. When that is mended, type the same "
            f"command again: {again}",
            code="study-not-written",
        ) from error


def submission_id(now_s: float) -> str:
    """No other submission has it."""
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
    """The first phase: what is about to be submitted, on the disk. more: other facts of the submission."""
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
    afterwards: Callable[[Submission, int], Submission] = lambda submission, lock: submission,
) -> tuple[Submission, dict[str, str]]:
    """The second phase. Returns the submission as it stands then, and why which task was not submitted.

    After one for which the queue has no room, those for other queues are sent all the same. afterwards: what
    else is sent under the same lock.
    """
    why: dict[int, str] = {}
    error, before = None, ""
    full: dict[Queue | None, str] = {}  # why; of None: all queues
    with sending(submission) as lock:
        for one in to_send:
            queue = Queue.of(one.array.options)
            no_room = full.get(None) or full.get(queue)
            if error is not None:
                array = _with_error(one.array, f"not tried after another array {before}: {error}")
            elif no_room is not None:
                array, why[one.array.number] = _with_error(one.array, NO_ROOM), no_room
            else:
                try:
                    array = send_one(submission, one, lock)
                except NoRoom as raised:
                    array = _with_error(one.array, NO_ROOM)
                    full[None if raised.is_for_all else queue] = why[array.number] = str(raised)
                except Refused as raised:
                    error, before = str(raised), "was refused"
                    array = _with_error(one.array, error)
                except NoAnswer as raised:  # it may be in the queue
                    array, error = after_no_answer(submission, one.array, str(raised))
                    before = "had no answer"
                if error is not None:
                    why[array.number] = error
            arrays = [array if array.number == other.number else other for other in submission.arrays]
            submission = dataclasses.replace(submission, arrays=arrays)
            submission.write()
            atomic_files.point("submit:after_job_id")
        submission = afterwards(submission, lock)
    refused = {
        run: why.get(array.number) or array.error or ""
        for array in submission.arrays
        if not array.is_sent
        for task in array.tasks
        for run in task
    }
    return submission, refused


def side_by_side(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """What is waited for is the disk, on a network file system for milliseconds each time."""
    with ThreadPoolExecutor(WRITERS) as pool:
        return list(pool.map(work, items))


def sent(array: Array, job: str) -> Array:
    """The array, with the job id that sbatch has answered."""
    return dataclasses.replace(array, job_id=job, submitted_s=round(time.time(), 3))


def _with_error(array: Array, error: str) -> Array:
    return dataclasses.replace(array, error=error)
