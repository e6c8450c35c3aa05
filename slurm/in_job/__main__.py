"""`python -m slurm.in_job WORD [RUN]`: what a job runs, from the snapshot (see `slurm.queue.job_entry`)."""

import os
import signal
import sys
import traceback
from itertools import zip_longest
from pathlib import Path

from slurm.queue.job_entry import SIGNALS, check_python, words_of

if __name__ == "__main__":  # until the run has a process that they are for
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    check_python()

from experiment_utils.errors import UserError
from slurm.cluster.current_job import Job
from slurm.in_job.run_in_job import (
    TO_LOOK_AGAIN,
    look_again,
    run_beside_others,
    run_in_job,
    run_together_in_job,
)
from slurm.in_job.shared_job import run_missing, run_side_by_side, take_share
from slurm.records.start_records import LEFT
from slurm.records.submissions import Submission, read_submission


def main(word: str, run: str | None = None) -> int:
    """Run what the task is for; returns the exit code. run: the one of its runs that this process is for."""
    study, submission_id, array, task = words_of(word)
    submission = read_submission(Path(study), submission_id)
    check_snapshot(submission)
    try:
        os.chdir(submission.cwd)
    except OSError as error:
        raise UserError(
            f"{submission.cwd}, from where this was submitted, cannot be used on this machine: "
            f"{error.strerror}. Paths of data are relative to it: submit from a folder that all nodes see"
        ) from error
    job = Job.of()
    if job is None:
        raise UserError("this is no job of Slurm: SLURM_JOB_ID is not set")
    if run is not None:
        take_share(os.environ)
        return run_beside_others(submission.study / run, job).exit_code
    shared = submission.arrays[array]
    runs = [submission.study / name for name in shared.tasks[task]]
    if shared.how == "pack" and len(runs) > 1:
        return run_side_by_side(runs, word, job)
    if shared.takes_any:
        names = dict.fromkeys(name for names in zip_longest(*shared.tasks) for name in names if name)
        first_own = sorted(names, key=lambda name: name not in shared.tasks[task])
        return run_missing([submission.study / name for name in first_own], submission.folder / "claims", job)
    if shared.how == "ensemble" and len(runs) > 1:
        verdict = run_together_in_job(runs, job)
    else:
        verdict = run_in_job(runs[0], job)
    if verdict.end == LEFT and verdict.exit_code == TO_LOOK_AGAIN:
        return look_again(runs[:1], job)
    return verdict.exit_code


def check_snapshot(submission: Submission) -> None:
    """Raises UserError: this code is not that of the submission."""
    here = Path(__file__).resolve()
    if submission.snapshot and not here.is_relative_to(Path(submission.snapshot).resolve()):
        raise UserError(
            f"this job runs {here}, which lies outside of the code that was submitted, "
            f"{submission.snapshot}. Is that there on this machine? Does slurm.setup change PYTHONPATH?",
            code="outside-snapshot",
        )


def exit_code_of(*words: str) -> int:
    """Whatever happens has a word on stderr."""
    try:
        return main(*words)
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return 2
    except Exception:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    code = exit_code_of(*sys.argv[1:3])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
