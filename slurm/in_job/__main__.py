"""`python -m slurm.in_job WORD [SLOT]`: what a job runs, from the snapshot (see `slurm.queue.job_entry`)."""

import os
import signal
import sys
import traceback
from contextlib import suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path

from slurm.queue.job_entry import SIGNALS, check_python, words_of

if __name__ == "__main__":  # until the run has a process that they are for
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    check_python()

from experiment_utils.errors import UserError
from experiment_utils.lease import TOKEN, new_token
from slurm.cluster.current_job import Job
from slurm.in_job.slots import end_job, is_done, is_over, run_slot, run_steps, take_cores
from slurm.launch.processes import Children, run_command
from slurm.records.submissions import Submission, read_submission


def main(word: str, slot: str | None = None) -> int:
    """Run a task's runs; returns the exit code. slot: number of the one that this process is, in a step."""
    study, submission_id, array_number, task = words_of(word)
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
    array = submission.arrays[array_number]
    own = [submission.study / name for name in array.tasks[task]]
    if job.rank:
        return follow_first_rank(own[0])
    os.environ[TOKEN] = new_token()  # the runs' processes share the leases of this one
    is_ended = partial(is_over, job=job) if len(own) > 1 or array.takes_any else is_done
    if array.takes_any:  # a slot can outlive its job, on a node that Slurm has lost
        is_ended = partial(is_over_or_cancelled, job=job, submission=submission, number=array_number)
    if array.how == "ensemble":
        return end_job([run_slot([own], job, is_ended)], [own], job)
    names = [name for names in zip_longest(*array.tasks) for name in names if name] if array.takes_any else []
    programs = [[submission.study / name] for name in dict.fromkeys([*array.tasks[task], *names])]
    if slot is not None:
        take_cores(int(slot), array.slots)
        return run_slot(programs, job, is_ended)
    missing = [program for program in programs if not is_ended(program[0])]
    steps = min(array.slots, len(missing))
    if steps > 1:
        codes = run_steps(programs, array.slots, steps, word, job)
    else:
        codes = [run_slot(programs, job, is_ended)]
    return end_job(codes, programs, job)


def is_over_or_cancelled(run: Path, job: Job, submission: Submission, number: int) -> bool:
    """Whether a run is over, or `slurm cancel` has ended its array since it was submitted."""
    if is_over(run, job):
        return True
    with suppress(UserError):
        return read_submission(submission.study, submission.id).arrays[number].cancelled_s is not None
    return False


def follow_first_rank(run: Path) -> int:
    """Run a rank that is not the first, which judges: it ends as its process does, but well when a stop was
    asked for, since srun ends all ranks as soon as one fails.
    """
    with Children() as children:
        children.start(run_command(run, quiet=False), quiet=False)
        child = children.wait()
    return 0 if children.requested is not None else child.exit_code


def check_snapshot(submission: Submission) -> None:
    """Check that this is the code of the submission.

    Raises:
        UserError: it is not.
    """
    here = Path(__file__).resolve()
    if submission.snapshot and not here.is_relative_to(Path(submission.snapshot).resolve()):
        raise UserError(
            f"this job runs {here}, which lies outside of the code that was submitted, "
            f"{submission.snapshot}. Is that there on this machine? Does slurm.setup change PYTHONPATH?",
            code="outside-snapshot",
        )


def exit_code_of(*words: str) -> int:
    """Exit code of `main`; what ends it is printed on stderr."""
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
