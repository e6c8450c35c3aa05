"""Several runs in one job: side by side, each a step of its own, or one missing run after the other."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from experiment_utils import lock_file
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from memory.estimate.available import GPU_SHARE
from slurm.cluster.current_job import PACKED, Job
from slurm.cluster.job_step import srun_arguments
from slurm.in_job.run_in_job import (
    TO_BE_REQUEUED,
    TO_LOOK_AGAIN,
    look_again,
    note_lost,
    note_refused,
    run_beside_others,
    settings_of,
)
from slurm.launch.processes import Children, share_of
from slurm.launch.run_lock import Heartbeat, living_holder
from slurm.plans.gpu_slots import VISIBLE, gpu_slots, idle_gpus
from slurm.records.start_records import (
    DONE,
    GAVE_UP,
    LEFT,
    PREEMPTED,
    REQUEUED,
    Start,
    is_over_in,
    read_starts,
)
from training.attempt.run_files import read_status
from training.interrupt import TIME_IS_UP

OWN_MB = 48
"""Of the job's memory: for this process and the srun of each run."""


def run_side_by_side(runs: Sequence[Path], word: str, job: Job) -> int:
    """Run each in a step of its own, with its share of cores and memory: an OOM kill hits that run alone.

    A run that ended before the job was put back into the queue is not run again. Returns the exit code: 0
    when all are done, or the job was put back for those that are to go on.
    """
    waiting = [run for run in runs if not _is_over(run, job)]
    codes: dict[Path, int] = {}
    gpus = gpu_slots(len(runs))
    if (idle := idle_gpus(len(runs))) is not None:
        print(f"job {job.id}: {idle}", flush=True)
    try:
        # Slurm sends SIGTERM to each step; an srun that gets it kills its step at once, before a checkpoint
        with Children(slots=max(1, len(waiting)), shares_cores=False, kept=(signal.SIGTERM,)) as children:
            for run in waiting:
                place = runs.index(run)
                os.environ[PACKED] = f"{place}/{len(runs)}"
                os.environ.pop(GPU_SHARE, None)  # of the run before
                os.environ.update(gpus[place].share if gpus else {})
                children.start(step_command(run.name, word, len(runs), os.environ), quiet=False)
            for _ in waiting:
                child = children.wait()
                run, code = waiting[child.slot], child.process.returncode
                codes[run] = code
                if children.requested is None and code not in (0, TO_BE_REQUEUED, TO_LOOK_AGAIN):
                    note_lost(run, job)
    finally:
        os.environ.pop(PACKED, None)
        os.environ.pop(GPU_SHARE, None)
    if TO_BE_REQUEUED in codes.values():
        refused = job.requeue()
        if refused is None:
            return 0
        for run in waiting:
            last = next(reversed(read_starts(run)), None)
            if last is not None and _is_of(last, job) and last.end == REQUEUED:
                note_refused(run, job, last, refused)
    elif children.requested != signal.SIGTERM:  # else somebody has cancelled it
        beside = [run for run, code in codes.items() if code == TO_LOOK_AGAIN]
        if beside:
            return look_again(beside, job)
    worst = next((code for code in codes.values() if code), 0)
    return 1 if worst in (TO_BE_REQUEUED, TO_LOOK_AGAIN) or worst < 0 else worst


def step_command(
    run: str, word: str, sharing: int, environment: os._Environ[str] | dict[str, str]
) -> list[str]:
    """The srun of one run. --overlap: this process is a step too, and has all of the job to itself; and GPUs
    are shared. Steps that overlap are given the same cores, so each gets all, of which `take_share` takes
    some; --cpu-bind=none, since they inherit what this step is bound to (SLURM_CPU_BIND).
    """
    options = [*srun_arguments(environment)]
    options += ["--overlap", "--exact", "--nodes=1", "--ntasks=1", "--kill-on-bad-exit=1", "--cpu-bind=none"]
    cores, memory_mb = (environment.get(f"SLURM_{name}", "") for name in ("CPUS_PER_TASK", "MEM_PER_NODE"))
    if cores.isdigit():
        options.append(f"--cpus-per-task={cores}")
    if memory_mb.isdigit() and int(memory_mb):
        own_mb = max(1, (int(memory_mb) - OWN_MB * (sharing + 1)) // sharing)
        options.append(f"--mem={own_mb}M")
        # Slurm leaves the job's there, and where it polls RSS nothing else says what a run may have
        options += ["env", f"SLURM_MEM_PER_NODE={own_mb}"]
    return ["srun", *options, sys.executable, "-P", "-u", "-m", "slurm.in_job", word, run]


def take_share(environment: os._Environ[str] | dict[str, str]) -> None:
    """In the step of a packed run: its GPU and its share of the cores, before anything counts them.

    Slurm shows all GPUs of the job to each step.

    Where Slurm binds no job to cores, all of the node are to be seen here, and which of them are this job's
    nobody knows: then the share is a number alone.
    """
    place, _, sharing = environment.get(PACKED, "").partition("/")
    if sharing and (gpus := gpu_slots(int(sharing), environment)):
        environment[VISIBLE] = gpus[int(place)].name
    cores = environment.get("SLURM_CPUS_PER_TASK", "")
    if not sharing or not cores.isdigit():
        return
    environment["SLURM_CPUS_PER_TASK"] = str(max(1, int(cores) // int(sharing)))
    if hasattr(os, "sched_setaffinity") and len(here := os.sched_getaffinity(0)) <= int(cores):
        os.sched_setaffinity(0, share_of(here, int(place), int(sharing)))


def run_missing(runs: Sequence[Path], claims: Path, job: Job) -> int:
    """Run one after the other those that are not done, have not failed in this array, and are not taken.

    Returns the exit code: of the first that did not end as done.
    """
    claims.mkdir(exist_ok=True)
    failed, beside, asked, has_moved = 0, list[Path](), None, False
    with Children() as outer:  # so that a signal between two runs ends nothing
        for run in runs:
            if outer.requested is not None:
                asked = outer.requested
                break
            if _is_over(run, job):
                continue
            with _claimed(claims / run.name, run, job) as holder:
                if holder is not None and holder.job_id == job.raw_id:  # this task, on a node that is lost
                    beside.append(run)
                if holder is not None or _is_over(run, job):
                    continue
                print(f"job {job.id} takes {run.name}", flush=True)
                verdict = run_beside_others(run, job)
            if verdict.end == REQUEUED:
                return verdict.exit_code
            if verdict.end == LEFT:
                beside += [run] if verdict.exit_code == TO_LOOK_AGAIN else []
                continue
            failed = failed or verdict.exit_code
            has_moved = has_moved or verdict.end in (DONE, GAVE_UP)
            began = next((one for one in reversed(read_starts(run)) if _is_of(one, job)), None)
            if began is not None and began.signal is not None:  # it was for the job, and comes once
                was_judged = began.state in _STOPPED and verdict.end != GAVE_UP
                asked = None if was_judged else signal.Signals[began.signal]
                if was_judged:
                    beside.clear()  # nothing of a job that was cancelled, or is not to start again
                break
    left = [run for run in runs if not _is_over(run, job)]
    if asked is not None and left and _may_go_on(job, asked, left, has_moved):
        refused = job.requeue()
        told = f"could not be put back into the queue: {refused}" if refused else "goes back into the queue"
        print(f"job {job.id} {told}, for {counted(len(left), 'run')} to go on with", flush=True)
        return failed if refused else 0
    if beside and asked is None and outer.requested is None:
        return look_again(beside, job)
    return failed


_STOPPED = ("timeout", "cancelled", PREEMPTED)
"""States of a run that the signal has stopped, by which its job has been judged."""


def _is_of(start: Start, job: Job) -> bool:
    return (start.raw_job_id, start.restart) == (job.raw_id, job.restart)


def _may_go_on(job: Job, number: int, left: Sequence[Path], has_moved: bool) -> bool:
    """Whether a job is to start again of which no run has stopped for its signal: that came between two runs,
    or to one that came to its end all the same. Starts that brought nothing are bounded.
    """
    settings = None
    for run in left:
        with suppress(UserError):  # one that was deleted meanwhile: the others go on
            settings = settings_of(run)
            break
    if settings is None or not settings["requeue"]:
        return False
    if not has_moved and job.restart >= int(settings["max_idle_attempts"]):
        return False
    return number in TIME_IS_UP or (number == signal.SIGTERM and job.is_being_preempted() is True)


@contextmanager
def _claimed(claim: Path, run: Path, job: Job) -> Iterator[lock_file.Holder | None]:
    """Who else has this run; None: it is ours for the length of the block."""
    what = f"the run {run.name} of this submission"
    holder = living_holder(claim, what, job, say=lambda line: print(line, flush=True))
    if holder is not None:
        yield holder
        return
    try:
        with lock_file.lock(claim, what), Heartbeat(claim):
            yield None
    except lock_file.LockHeld as held:
        if held.path != claim:
            raise
        yield held.holder


def _is_over(run: Path, job: Job) -> bool:
    """Done, or ended in this job, or in another of its array, by itself. Not one whose status cannot be read:
    that is told when it is taken, and ends no other.
    """
    with suppress(UserError):
        if read_status(run).get("state") == "done":
            return True
    return is_over_in(read_starts(run), job.id.partition("_")[0])
