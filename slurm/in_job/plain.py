"""`python -m slurm.in_job.plain OVERRIDES`: a run inside of a job of a plain sbatch script (submit_job.sh).

The first start of the job makes what a launcher makes before a job: the run's folder, a copy of the code, a
submission of one run. Later starts find that, and resume with the same code and configuration, whatever was
edited since: this module too is then that of the copy.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

from slurm.queue.job_entry import SIGNALS, check_python, start, word_for

if __name__ == "__main__":  # until the run has a process that they are for
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    check_python()

from conf import Config
from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.exit_status import exit_status
from slurm.cluster.current_job import Job, leave_other_array
from slurm.launch.compose_one import compose
from slurm.records.submissions import SLURM, SUBMISSION, SUBMISSIONS, Array
from training.attempt.begin import create_run

OTHERS_WAIT_S = 600.0
SCRIPT = "sbatch slurm/submit_job.sh"
CODE = "code"
"""File in the submission's folder with the path of the copy of the code; the script reads no JSON."""
OUTPUT = "HIGHWATER_OUTPUT"
"""Environment variable: the file that the script writes to, whatever its --output is."""


def main(argv: list[str]) -> int:
    """Become the process of the job's run (`slurm.queue.job_entry.start`).

    Raises:
        UserError: the overrides are wrong, or this is no job.
    """
    leave_other_array()
    job = Job.of()
    if job is None:
        raise UserError(f"this is for inside of a job. From a shell: {SCRIPT} {shlex.join(argv)}")
    runs_dir = _runs_dir(argv)
    study = submitted_before(runs_dir, job) if job.restart or job.rank else None
    if study is None and job.rank:
        raise UserError(f"rank 0 has not begun the run below {runs_dir} within {OTHERS_WAIT_S:.0f} s")
    if study is None:
        study = submit_from_inside(compose(argv), job, argv)
    start(word_for(study, submission_id(job), 0, 0))


def submission_id(job: Job) -> str:
    """Id of the submission that the job is, the same in all of its starts."""
    return f"job-{job.id}"


def submitted_before(runs_dir: Path, job: Job) -> Path | None:
    """Study in which an earlier start of the job, or its first rank, has written its submission; else None.

    Other ranks wait for the first. An older job of the same number is another one: a cluster that is set up
    again counts from 1.
    """
    until_s = time.monotonic() + OTHERS_WAIT_S * bool(job.rank)
    begun_s = 0.0 if job.restart else float(os.environ.get("SLURM_JOB_START_TIME") or 0)
    while True:
        for path in sorted(runs_dir.glob(f"*/{SUBMISSIONS}/{submission_id(job)}/{SUBMISSION}")):
            if path.stat().st_mtime >= begun_s:
                return path.parents[2]
        if time.monotonic() >= until_s:
            return None
        time.sleep(0.5)


def submit_from_inside(config: Config, job: Job, argv: list[str]) -> Path:
    """Make the run's folder, copy the code, write the submission; returns the study.

    Raises:
        UserError: the run cannot be made of this configuration and its data.
    """
    from slurm.launch.code_snapshot import take, while_submitting
    from slurm.plans.sweep_plans import plan_all
    from slurm.queue.arrays import ToSend
    from slurm.queue.two_phase import intend

    (plan,) = plan_all([config], tokenize=True)
    assert plan.identity is not None
    folder = create_run(plan.config, plan.identity).resolve()
    array = Array(
        number=0,
        name=os.environ.get("SLURM_JOB_NAME", "highwater"),
        tasks=[[folder.name]],
        options=job.asked_for(),  # what `resubmit --mem x2` is twice of
        job_id=job.id,
        submitted_s=time.time(),
    )
    command = f"{SCRIPT} {shlex.join(argv)}"
    with while_submitting(plan.config.runs_dir):
        submission = intend(
            submission_id(job),
            folder.parent,
            [ToSend(array, ())],
            time.time(),
            launcher=SLURM,
            command=command,
            snapshot=take(plan.config.runs_dir).path,
            output=os.environ.get(OUTPUT),
        )
        atomic_files.write_text(submission.folder / CODE, f"{submission.snapshot}\n")
    return folder.parent


def _runs_dir(argv: list[str]) -> Path:
    """Folder of the studies, by the command line and the environment alone, as in submit_job.sh.

    Files can have been edited since an earlier start of the job.
    """
    there = os.environ.get("HIGHWATER_RUNS_DIR")
    given = [there] if there else []
    given += [argument.partition("=")[2] for argument in argv if argument.lstrip("+").startswith("runs_dir=")]
    if given:
        return Path(given[-1]).expanduser()
    from conf.schema import Config

    return Path(Config().runs_dir)


if __name__ == "__main__":
    import logging

    from training.report.log import terminal_handler

    logging.basicConfig(handlers=[terminal_handler(sys.stdout)], level=logging.INFO)
    code = exit_status(lambda: main(sys.argv[1:]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
