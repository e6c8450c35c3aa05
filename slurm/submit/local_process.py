"""`hydra/launcher=local hydra.launcher.detach=true`: one process that works through a submission.

It is in a session of its own, without a terminal, so no logout reaches it. (A machine whose systemd has
KillUserProcesses=yes ends it all the same; `loginctl enable-linger` is the user's way out.) It notes its own
number in the submission, and its submitter waits for that: whoever dies in between, nobody is forgotten.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slurm.launch.run_lock import Heartbeat
from slurm.queue.environment import environment
from slurm.queue.send import Refused
from slurm.records.submissions import STOPS_S, Array, Submission, note_cancelled, read_submission
from slurm.records.submitter_liveness import BEAT_S, beat, this_process

if TYPE_CHECKING:
    from slurm.launch.outcome import Outcome

log = logging.getLogger("slurm")

LOG = "log.txt"
BEGUN_S = 60.0
_POLL_S = 0.05


def start_process(submission: Submission, array: Array, lock: int) -> Array:
    """Start it; returns the array with its number, which it has written down itself.

    Raises:
        Refused: it ended at once; says its last words.
    """
    code = submission.snapshot or str(Path(__file__).resolve().parent.parent.parent)
    log_path = submission.folder / LOG
    # -P: else the folder where the user stands goes before the snapshot.
    command = [sys.executable, "-P", "-u", "-m", "slurm.submit.local_process"]
    path = os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")]))
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
        told = read_submission(submission.study, submission.id).arrays[array.number]
        if told.job_id is not None:
            return told
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            lines = log_path.read_text(errors="replace").strip().splitlines()
            raise Refused(f"the process in the background ended at once: {lines[-1] if lines else log_path}")
        time.sleep(_POLL_S)


def main(study: Path, submission_id: str, lock: int | None) -> int:
    """What the process does; returns its exit status: 1 where a run did not end as done."""
    from slurm.launch.local_runs import run_units
    from slurm.submit.follow_up import follow_up

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    submission = read_submission(study, submission_id)
    me = this_process()
    array = dataclasses.replace(submission.arrays[0], job_id=me, submitted_s=round(time.time(), 3))
    submission = dataclasses.replace(submission, arrays=[array])
    submission.write()
    if lock is not None:
        os.close(lock)
    failed = []

    def note(outcome: Outcome) -> None:
        log.info("%s %s %s", outcome.state, outcome.folder.name, outcome.reason or "")
        if outcome.state != "done":
            failed.append(outcome)

    units = [[study / run for run in task] for task in array.tasks]
    beat(submission)
    with Heartbeat(beat_s=BEAT_S, also=lambda: beat(submission)):
        stopped = run_units(units, array.parallel or 1, quiet=True, note=note)
    if stopped is not None:
        log.info("stopped by %s", signal.Signals(stopped).name)
        note_cancelled(submission, array, time.time() - STOPS_S)
    follow_up(submission)
    return 1 if failed or stopped is not None else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None))
