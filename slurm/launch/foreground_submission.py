"""Runs that a command starts one after the other, and waits for: on the disk as any other submission.

So `status` tells which of them wait for their turn, and that nobody will start them any more when the command
was killed; nobody else submits them meanwhile, and `cancel` finds the process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.launch.run_lock import Heartbeat
from slurm.queue.arrays import ToSend, array_name
from slurm.queue.two_phase import intend, submission_id
from slurm.records.submissions import LOCAL, STOPS_S, Array, Submission, note_cancelled
from slurm.records.submitter_liveness import BEAT_S, beat, this_process
from training.attempt.run_files import state_of

log = logging.getLogger("slurm")


@contextmanager
def noted(folders: Sequence[Path], jobs: int, command: str) -> Iterator[Callable[[], None]]:
    """Within the block this process works through these runs, `jobs` side by side. command: as typed.

    Yields what writes down that it was asked to stop, and its runs with it.
    """
    studies: dict[Path, list[str]] = {}
    for folder in folders:
        if state_of(folder) != "done":
            studies.setdefault(folder.parent, []).append(folder.name)
    try:
        made = [_intend(study, runs, jobs, command) for study, runs in studies.items()]
    except OSError as error:  # they run all the same
        log.warning("status will not tell which runs wait for their turn: %s", error.strerror)
        made = []

    def live() -> None:
        for submission in made:
            beat(submission)

    def was_stopped() -> None:
        for submission in made:
            with suppress(OSError, UserError):
                note_cancelled(submission, submission.arrays[0], time.time() - STOPS_S)

    live()
    with Heartbeat(beat_s=BEAT_S, also=live):
        yield was_stopped


def _intend(study: Path, runs: Sequence[str], jobs: int, command: str) -> Submission:
    now_s = time.time()
    identity = submission_id(now_s)
    me = this_process()
    array = Array(
        number=0,
        name=array_name(study, identity, 0),
        tasks=[[run] for run in runs],
        parallel=jobs,
        job_id=me,
        submitted_s=round(now_s, 3),
    )
    return intend(identity, study, [ToSend(array, ())], now_s, launcher=LOCAL, command=command, snapshot=None)
