"""`python -m slurm.tokens.run_task SET TASK ARGUMENTS`: one task of a token set, in one start of its job.

It runs the pretokenizer in this process, writes status.json for it and touches its lock. It waits while
another process does the task: a start of this job whose node was thought lost, or a command typed by hand.
Ahead of its time limit it has Slurm put the job back into the queue, and the next start resumes.
"""

from __future__ import annotations

import os
import runpy
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from experiment_utils.modules import module_name
from slurm.queue.job_entry import check_python

if __name__ == "__main__":  # inherited by all threads and processes that follow
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1, signal.SIGUSR2))
    check_python(("numpy", "orjson", "tokenizers"))

from data_loading.pretokenizer.distributed.task_plan import FLAG, SetTask, named_task
from data_loading.tokens.set_files import SetFiles
from experiment_utils import lock_file
from experiment_utils.errors import UserError
from experiment_utils.exit_status import exit_status
from experiment_utils.lease import Periodic, Watch
from slurm.cluster.current_job import Job
from training.attempt.run_files import Status, read_status

REQUEUE = (signal.SIGUSR1, signal.SIGUSR2)
BEAT_S = 5.0
AGAIN_S = 5.0
"""Between two looks at a lock that another process holds."""
_STATES = {0: "done", 130: "cancelled"}


def main(argv: list[str]) -> int:
    """Do the task; returns the exit status of the pretokenizer.

    Raises:
        UserError: this is no job, or the lock of the task is damaged.
    """
    output, name, *arguments = argv
    job = Job.of()
    if job is None:
        raise UserError("this is for inside of a job: pretokenize_dataset.py INPUTS --slurm SITE --tasks N")
    task, files = named_task(name), named_task(name).files(Path(output))
    folder = SetFiles(Path(output)).jobs / name
    say(f"job {job.id}, start {job.restart + 1}: {task.name} of {output}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    status = Status(folder, int(read_status(folder).get("attempt") or 0) + 1)
    status.update(stage="tokenize")
    with Periodic(BEAT_S, lambda: beat(files, task, status)):
        wait_for_others(files, task)
        threading.Thread(target=requeue_on_signal, args=(files, job), daemon=True).start()
        sys.argv = ["pretokenize_dataset.py", *arguments, FLAG, str(task)]
        code = 0
        try:
            runpy.run_module(module_name("pretokenize_dataset"), run_name="__main__")
        except SystemExit as end:
            code = int(end.code or 0)
    status.update(state=_STATES.get(code, "failed"))
    return code


def beat(files: SetFiles, task: SetTask, status: Status) -> None:
    """Touch the lock of the task, if a process of this host holds it, and status.json."""
    with suppress(OSError, UserError):
        holder = lock_file.read_holder(files.lock, task.name)
        if holder is not None and holder.host == socket.gethostname():
            os.utime(files.lock)
    status.update()


def wait_for_others(files: SetFiles, task: SetTask) -> None:
    """Return when no other process does the task."""
    before, watch = None, Watch()
    while (holder := watch.holder(files.lock, task.name)) is not None:
        if holder != before:
            say(f"{holder} does {task.name}: waiting for it")
        before = holder
        time.sleep(AGAIN_S)


def requeue_on_signal(files: SetFiles, job: Job) -> None:
    """Put the job back into the queue when its time is up, unless this start has written nothing."""
    before_bytes = written_bytes(files)
    signal.sigwait(REQUEUE)
    if written_bytes(files) <= before_bytes:
        say("the time is up, and this start wrote nothing: not put back into the queue. Give slurm.time=")
        return
    refused = job.requeue()
    say(f"the time is up: put back into the queue{f', which Slurm refused: {refused}' if refused else ''}")


def written_bytes(files: SetFiles) -> int:
    """Bytes of tokens that a task has written and not finished."""
    return sum(path.stat().st_size for path in files.partial.glob("*.npy"))


def say(line: str) -> None:
    """Write a line to the log of the task."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:])))
