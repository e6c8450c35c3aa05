"""`python -m slurm.in_job.tokens SET TASK ARGUMENTS`: a task of a token set, in one start of its job.

A small process beside the pretokenizer. It waits while another process does the task (a start of this job
whose node was thought lost, or a command typed by hand), and has the job put back into the queue ahead of its
time limit; the pretokenizer goes on from its journal. A start that brought nothing is the last one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from slurm.in_job.start import SIGNALS

if __name__ == "__main__":  # until there are handlers
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

from data_loading.pretokenizer.block_range import FLAG, BlockRange, named_block_range
from data_loading.set_files import SetFiles
from experiment_utils.errors import UserError
from experiment_utils.exit_status import exit_status
from memory.supervision.outcome import signal_name
from slurm.in_job.job import Job
from slurm.in_job.lock import Heartbeat, living_holder

POLL_S = 0.5
AGAIN_S = 15.0
"""Between two looks at a lock that somebody else holds."""
STOPPED = 130
_TIME_IS_UP = (signal.SIGUSR1, signal.SIGUSR2)


class Asked:
    """What signals have asked for, since `listen`."""

    def __init__(self) -> None:
        self.to_stop = False
        self.time_is_up = False

    def listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._note)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _note(self, number: int, frame: object) -> None:
        if number in _TIME_IS_UP:
            self.time_is_up = True
        else:
            self.to_stop = True


def main(argv: list[str]) -> int:
    """Do the task; returns the exit status of the pretokenizer.

    Raises:
        UserError: this is no job, or the lock of the task is damaged.
    """
    output, name, *arguments = argv
    job = Job.of()
    if job is None:
        raise UserError("this is for inside of a job: pretokenize_dataset.py TEXT --slurm SITE --tasks N")
    task = named_block_range(name)
    files = task.files(Path(output))
    say(f"job {job.id}, start {job.restart + 1}: {task.name} of {output}")
    asked = Asked()
    asked.listen()
    if not _is_free(files, task, job, asked):
        return STOPPED
    command = [sys.executable, "-u", "-m", "pretokenize_dataset", *arguments, FLAG, str(task)]
    return run(command, files, job, asked)


def _is_free(files: SetFiles, task: BlockRange, job: Job, asked: Asked) -> bool:
    """Wait until nobody else does the task; False: asked to stop before."""
    told = False
    while not asked.to_stop:
        holder = living_holder(files.lock, task.name, job, say=say)
        if holder is None:
            return True
        if not told:
            say(f"{task.name} is done by {holder}: waiting for that")
            told = True
        until_s = time.monotonic() + AGAIN_S
        while time.monotonic() < until_s and files.lock.exists() and not asked.to_stop:
            time.sleep(POLL_S)
    return False


def run(command: list[str], files: SetFiles, job: Job, asked: Asked) -> int:
    """The command, with the lock of the task kept warm; returns its exit status."""
    before_bytes, is_put_back, is_told = written_bytes(files), False, False
    # In a session of its own: Slurm sends its signals to the whole group, and this one is not for it.
    child = subprocess.Popen(command, start_new_session=True)
    with Heartbeat(files.lock):
        while True:
            try:
                code = child.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                pass
            if asked.to_stop and not is_told:
                is_told = True
                child.send_signal(signal.SIGINT)
            if asked.time_is_up and not is_put_back:
                is_put_back = True
                _put_back(job, written_bytes(files) > before_bytes)
    if code < 0:
        name = signal_name(-code)
        say(f"the pretokenizer was ended by {name}. What it had done is kept: type the same command again")
        return 128 - code
    return code


def _put_back(job: Job, has_progress: bool) -> None:
    """Have the job start again; Slurm ends this start."""
    if not has_progress:
        say("the time is up, and this start has brought nothing: not put back into the queue. slurm.time=")
        return
    refused = job.requeue()
    say(f"the time is up: put back into the queue{f', which Slurm refused: {refused}' if refused else ''}")


def written_bytes(files: SetFiles) -> int:
    """Of tokens that the task has written and not finished."""
    return sum(path.stat().st_size for path in files.partial.glob("*.npy"))


def say(line: str) -> None:
    """To the log of the task."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:])))
