"""One sbatch: the script on the disk, the call that nothing interrupts, the job id that it answers.

While a call is under way, it and its submitter hold a lock on the submission's file `sending`. The call
inherits it, so that the lock stands as long as either of them lives: a submitter that was killed leaves an
sbatch behind that may still succeed (flock(2): a lock belongs to the open file, which fork shares).
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from slurm.cluster.sbatch_errors import has_no_room, is_full, is_unanswered, meaning, words
from slurm.queue.batch_script import script, submitit_folder
from slurm.queue.environment import environment
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import Array, Submission
from slurm.records.submitter_liveness import SENDING, TIMEOUT_S


class Refused(Exception):
    """sbatch did not take it; says why."""


class NoRoom(Refused):
    """The queue has no place for it now: there was none that we knew of, or another command took it.

    is_for_all: nor for any other job (MaxJobCount), not only for those of its account, qos and partition.
    """

    def __init__(self, why: str, is_for_all: bool) -> None:
        super().__init__(why)
        self.is_for_all = is_for_all


@contextmanager
def sending(submission: Submission) -> Iterator[int]:
    """Hold the submission's lock for the length of the block, as what is started in it does: its number."""
    with open(submission.folder / SENDING, "a") as file:
        with suppress(OSError):  # a file system without flock: `has_ended` then goes by the clock
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def prepare(submission: Submission, array: Array, setup: Sequence[str]) -> Path:
    """Write the array's script; returns its path."""
    submitit_folder(submission).mkdir(exist_ok=True)
    path = submitit_folder(submission) / f"{array.number}.sh"
    path.write_text(script(submission, array, setup), encoding="utf-8")
    return path


def send(submission: Submission, path: Path, options: dict[str, Any], lock: int, *arguments: str) -> str:
    """Call sbatch with a script; returns the job id.

    options: that the script sets. lock: of `sending`.

    Raises:
        Refused: sbatch says no; NoRoom: for now.
        NoAnswer: nobody can tell yet whether there is a job; `reconciling` will.
    """
    os.utime(submission.folder / SENDING)
    command = ["sbatch", "--parsable", *arguments, str(path)]
    atomic_files.point("submit:before_sbatch")
    with _left_alone():
        # In a session of its own: Ctrl-C in the terminal must not end it between the job and its number.
        called = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=submission.cwd,
            env=environment(os.environ, options),
            pass_fds=(lock,),
            start_new_session=True,
        )
        try:
            out, error = called.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            called.kill()
            called.communicate()
            os.utime(submission.folder / SENDING)
            raise NoAnswer(f"sbatch has not answered for {TIMEOUT_S:.0f} s: Slurm is down, or busy") from None
    atomic_files.point("submit:after_sbatch")
    if called.returncode != 0 and is_unanswered(error, called.returncode):
        os.utime(submission.folder / SENDING)  # what is still under way is so from now on
        how = f"sbatch was ended by signal {-called.returncode}" if called.returncode < 0 else words(error)
        raise NoAnswer(f"slurmctld did not answer sbatch: {how}")
    if called.returncode != 0:
        why = str(meaning(error, options))
        raise NoRoom(why, is_full(error)) if has_no_room(error) else Refused(why)
    job = job_id_of(out)
    if job is None:
        raise NoAnswer(f"sbatch --parsable answered {out!r}, in which there is no job id")
    return job


def job_id_of(answer: str) -> str | None:
    """The job id that `sbatch --parsable` printed, as `4242` or `4242;CLUSTER`; None without one.

    A site's sbatch can print other lines before it, with numbers of their own, or drop --parsable.
    """
    found = re.findall(r"^(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?\s*$", answer, re.MULTILINE)
    return found[-1] if found else None


@contextmanager
def _left_alone() -> Iterator[None]:
    """Signals that ask to stop wait until the block has ended."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
