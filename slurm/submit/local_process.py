"""`hydra/launcher=local hydra.launcher.detach=true`: the process in the background that works through it.

The process has a session of its own and no terminal, so a logout does not end it. (systemd does, if it has
KillUserProcesses=yes; `loginctl enable-linger` prevents that.) It writes its own number into the submission,
and its submitter waits for that: a submitter that dies before leaves no process without a record.

Resubmitting with earlier code starts this module of that code, so its name and arguments stay.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from experiment_utils.modules import module_name
from slurm.queue.environment import environment
from slurm.queue.send import Refused
from slurm.queue.two_phase import sent
from slurm.records.submissions import Array, Submission, read_submission
from slurm.records.submitter_liveness import this_process

log = logging.getLogger("slurm")

LOG = "log.txt"
BEGUN_S = 60.0
_POLL_S = 0.05


def start_process(submission: Submission, array: Array, lock: int) -> Array:
    """Start it; returns the array with its number, which it has written into the submission.

    A submission without a copy of the code is in the foreground: then it is this process.

    Args:
        submission: of this machine.
        array: its only one.
        lock: descriptor of the submitter's lock, which the process holds until it has written its number.

    Raises:
        Refused: it ended immediately; with its last line of output.
    """
    if submission.snapshot is None:
        return sent(array, this_process())
    log_path = submission.folder / LOG
    # -P: else the current folder precedes the snapshot
    command = [sys.executable, "-P", "-u", "-m", module_name("slurm.submit.local_process")]
    path = os.pathsep.join(filter(None, [submission.snapshot, os.environ.get("PYTHONPATH")]))
    with open(log_path, "ab") as out:
        process = subprocess.Popen(
            [*command, str(submission.study.absolute()), submission.id, str(lock)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=submission.cwd,
            env=environment(os.environ, ()) | {"PYTHONPATH": path},
            pass_fds=(lock,),
            start_new_session=True,
        )
    deadline = time.monotonic() + BEGUN_S
    while True:
        written = read_submission(submission.study, submission.id).arrays[array.number]
        if written.job_id is not None:
            return written
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            lines = log_path.read_text(errors="replace").strip().splitlines()
            raise Refused(f"the process in the background ended at once: {lines[-1] if lines else log_path}")
        time.sleep(_POLL_S)


def main(study: Path, submission_id: str, lock: int | None) -> None:
    """Write this process into a submission, and work through it."""
    from slurm.launch.work_through import work_through
    from slurm.submit.follow_up import follow_up

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    submission = read_submission(study, submission_id)
    array = sent(submission.arrays[0], this_process())
    submission = dataclasses.replace(submission, arrays=[array])
    submission.write()
    if lock is not None:
        os.close(lock)
    units = [[study / run for run in task] for task in array.tasks]
    note = partial(log.info, "%s")
    work_through(units, array.parallel or 1, [submission], quiet=True, note=note)
    follow_up(submission)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
