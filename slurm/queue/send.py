"""One sbatch: the script on the disk, a call that no signal interrupts, the job id of its answer.

During a call, it and its submitter hold a lock on the submission's file `sending`. The call inherits the
lock, which lasts as long as one of them lives: a killed submitter leaves an sbatch behind that can still
succeed (flock(2): a lock belongs to the open file, which fork shares).
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
from slurm.cluster.sbatch_errors import has_no_room, is_unanswered, meaning, words
from slurm.queue.batch_script import script, submitit_folder
from slurm.queue.environment import environment
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import Array, Submission
from slurm.records.submitter_liveness import SENDING, TIMEOUT_S


class Refused(Exception):
    """sbatch refused a job; the text is the reason."""


class NoRoom(Refused):
    """The queue has no room for a job now: a limit on the number of submitted jobs is reached."""


@contextmanager
def sending(submission: Submission) -> Iterator[int]:
    """Hold the submission's lock within the block; yields its file descriptor, for processes to inherit."""
    with open(submission.folder / SENDING, "a") as file:
        with suppress(OSError):  # a file system without flock: `has_ended` then compares times
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def prepare(submission: Submission, array: Array, setup: Sequence[str]) -> Path:
    """Write the array's script; returns its path."""
    submitit_folder(submission).mkdir(exist_ok=True)
    path = submitit_folder(submission) / f"{array.number}.sh"
    path.write_text(script(submission, array, setup), encoding="utf-8")
    return path


def send(submission: Submission, path: Path, options: dict[str, Any], lock: int) -> str:
    """Call sbatch with a script; returns the job id.

    Args:
        options: options of sbatch that the script sets.
        lock: file descriptor from `sending`.

    Raises:
        Refused: sbatch refused the job; NoRoom: because of the number of jobs in the queue.
        NoAnswer: whether there is a job is not known; `slurm.submit.reconcile` finds out.
    """
    os.utime(submission.folder / SENDING)
    command = ["sbatch", "--parsable", str(path)]
    atomic_files.point("submit:before_sbatch")
    with _uninterrupted():
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
        os.utime(submission.folder / SENDING)  # a request on its way has been on its way since now
        how = f"sbatch was ended by signal {-called.returncode}" if called.returncode < 0 else words(error)
        raise NoAnswer(f"slurmctld did not answer sbatch: {how}")
    if called.returncode != 0 and has_no_room(error):
        raise NoRoom(f"the queue has no room: {words(error)}")
    if called.returncode != 0:
        raise Refused(str(meaning(error, options)))
    job = job_id_of(out)
    if job is None:
        raise NoAnswer(f"sbatch --parsable answered {out!r}, in which there is no job id")
    return job


def check_room(submission: Submission, path: Path, options: dict[str, Any]) -> None:
    """Ask sbatch whether the queue has room for a script's job, without submitting it.

    sbatch itself tries for two minutes when the cluster holds MaxJobCount jobs; with --test-only it does not.

    Raises:
        NoRoom: it has none.
    """
    with suppress(subprocess.TimeoutExpired):
        asked = subprocess.run(
            ["sbatch", "--test-only", str(path)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=submission.cwd,
            env=environment(os.environ, options),
            timeout=TIMEOUT_S,
        )
        if has_no_room(asked.stderr):
            raise NoRoom(f"the queue has no room: {words(asked.stderr)}")


def job_id_of(answer: str) -> str | None:
    """The job id that `sbatch --parsable` printed, as `4242` or `4242;CLUSTER`; None without one.

    A site's sbatch can print other lines before it, with numbers of their own, or drop --parsable.
    """
    found = re.findall(r"^(?:Submitted batch job )?(\d+)(?:;\S+| on cluster \S+)?\s*$", answer, re.MULTILINE)
    return found[-1] if found else None


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay signals that ask to stop until the end of the block."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
