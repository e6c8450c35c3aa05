"""Slots of a job: each takes missing runs of its array under their leases, and runs one after another."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

from experiment_utils import lease
from experiment_utils.errors import UserError
from experiment_utils.lock_file import LockHeld
from experiment_utils.modules import module_name
from experiment_utils.quantities import counted
from slurm.cluster.current_job import Job
from slurm.cluster.job_step import srun_arguments
from slurm.in_job.run_in_job import has_begun, is_of, note_lost, note_refused, run_alone, say, settings_of
from slurm.launch.processes import Children, share_of
from slurm.plans.gpu_slots import GpuSlot, gpu_slots, idle_gpus
from slurm.records.start_records import DONE, GAVE_UP, LEFT, PREEMPTED, REQUEUED, is_over_in, read_starts
from training.attempt.run_files import read_status
from training.interrupt import TIME_IS_UP

Program = Sequence[Path]
"""Folders of the runs that one process trains: one; several for an ensemble."""
OWN_MB = 48
"""Memory of the job for this process, and for the srun of each slot."""
TO_BE_REQUEUED = 75
"""Exit status of a slot: the job is to start again when all of its slots have stopped."""
_STOPPED = ("timeout", "cancelled", PREEMPTED)
"""States of a run that a signal has stopped: whether its job starts again was decided with it."""


def run_slot(programs: Sequence[Program], job: Job, is_over: Callable[[Path], bool]) -> int:
    """Run the programs that are missing, one after another.

    A program that another process runs is passed over. When no other is left it is waited for if an earlier
    start of this job runs it: Slurm took that one for dead, and ends it when its node answers again.

    Args:
        programs: those to run first come first.
        job: this start of the job.
        is_over: whether a run is not to be started again.

    Returns:
        TO_BE_REQUEUED; else the exit status of the first program that did not end as done, 0 without one.
    """
    code, passed, has_begun, has_moved, is_judged = 0, 0, False, False, False
    watch, left, waits_for = lease.Watch(), deque(programs), set[Path]()
    with Children() as children:
        while left and not (has_begun and children.requested is not None):
            program = left.popleft()
            missing = [run for run in program if not is_over(run)]
            if not missing:
                continue
            has_begun = True
            try:
                verdict = run_alone(missing, job, children, watch, is_over)
            except LockHeld as held:
                passed += 1
                is_waited_for = _is_of_earlier_start(held, job)
                if passed <= len(left) or is_waited_for or not watch.lives(held.path):
                    left.append(program)
                elif held.holder.job_id != job.raw_id:
                    print(f"job {job.id} leaves {program[0].name} to {held.holder}", flush=True)
                if passed > len(left):
                    if is_waited_for and watch.lives(held.path) and held.path not in waits_for:
                        waits_for.add(held.path)
                        say(program[0], f"job {job.id} waits: {held.holder} runs {program[0].name}")
                    time.sleep(lease.look_s())
                continue
            if verdict.end == REQUEUED:
                return TO_BE_REQUEUED
            if verdict.end == LEFT:
                left.append(program)
                continue
            passed = 0
            code = code or verdict.exit_code
            has_moved = has_moved or verdict.end in (DONE, GAVE_UP)
            is_judged = verdict.state in _STOPPED and verdict.end != GAVE_UP
        asked = children.requested
    if asked is None or is_judged:
        return code
    missing = [run for program in left for run in program if not is_over(run)]
    if missing and _is_to_start_again(job, asked, missing, has_moved=has_moved):
        print(f"job {job.id} goes back into the queue for {counted(len(missing), 'run')}", flush=True)
        return TO_BE_REQUEUED
    return code or int(bool(missing))


def _is_of_earlier_start(held: LockHeld, job: Job) -> bool:
    """Whether the holder is a process of an earlier start of this job."""
    last = read_starts(held.path.parent)[-1:]
    return held.holder.job_id == job.raw_id and not any(is_of(start, job) for start in last)


def _is_to_start_again(job: Job, number: int, missing: Sequence[Path], *, has_moved: bool) -> bool:
    """Whether a job starts again that was asked to stop while none of its runs was there to stop for it.

    The signal came between two runs, or a run came to its end all the same. Starts that brought nothing are
    bounded by slurm.max_idle_attempts.
    """
    settings = None
    for run in missing:
        with suppress(UserError):  # the folder of a run can be deleted meanwhile
            settings = settings_of(run)
            break
    if settings is None or not settings["requeue"]:
        return False
    if not has_moved and job.restart >= int(settings["max_idle_attempts"]):
        return False
    return number in TIME_IS_UP or (number == signal.SIGTERM and job.is_being_preempted() is True)


def is_over(run: Path, job: Job) -> bool:
    """Whether a run is done, or has ended by itself in this job or another one of its array.

    A run whose status cannot be read is not: its start reports that.
    """
    return is_done(run) or is_over_in(read_starts(run), job.id.partition("_")[0])


def is_done(run: Path) -> bool:
    """Whether a run is done."""
    with suppress(UserError):
        return bool(read_status(run).get("state") == "done")
    return False


def run_steps(programs: Sequence[Program], slots: int, steps: int, word: str, job: Job) -> list[int]:
    """Run slots in steps of their own, with shares of cores, memory and GPUs: an OOM kill hits one run.

    Args:
        programs: of all slots.
        slots: shares into which the job is divided.
        steps: slots to start.
        word: of the job, for `slurm.in_job`.
        job: this start of the job.

    Returns:
        The exit status of each.
    """
    gpus, codes = gpu_slots(slots), list[int]()
    if (idle := idle_gpus(slots)) is not None:
        print(f"job {job.id}: {idle}", flush=True)
    # Slurm sends SIGTERM to each step; an srun that gets it kills its step at once, before a checkpoint
    with Children(slots=steps, shares_cores=False, kept=(signal.SIGTERM,)) as children:
        for slot in range(steps):
            command = step_command(word, slot, slots, os.environ, gpus[slot] if gpus else None)
            children.start(command, quiet=False)
        while len(codes) < steps:
            codes.append(children.wait().process.returncode)
            if codes[-1] not in (0, TO_BE_REQUEUED) and children.requested is None:
                for run in (run for program in programs for run in program):
                    _note_if_lost(run, job)
    return codes


def _note_if_lost(run: Path, job: Job) -> None:
    """Note the end of a run whose slot is gone without having noted it."""
    if has_begun(run, job) and not Path(f"/proc/{read_starts(run)[-1].pid}").exists():
        note_lost(run, job)


def step_command(
    word: str, slot: int, slots: int, environment: Mapping[str, str], gpu: GpuSlot | None = None
) -> list[str]:
    """Command of the srun of one slot.

    --overlap: this process is a step too, and has all of the job to itself; and GPUs are shared. Steps that
    overlap get the same cores: each gets all, of which `take_cores` takes some. --cpu-bind=none: they inherit
    what this step is bound to (SLURM_CPU_BIND). Slurm leaves the job's memory and all of its GPUs in the
    environment of a step.
    """
    options = [*srun_arguments(environment)]
    options += ["--overlap", "--exact", "--nodes=1", "--ntasks=1", "--kill-on-bad-exit=1", "--cpu-bind=none"]
    cores, memory_mb = (environment.get(f"SLURM_{name}", "") for name in ("CPUS_PER_TASK", "MEM_PER_NODE"))
    own = {} if gpu is None else gpu.environment
    if cores.isdigit():
        options.append(f"--cpus-per-task={cores}")
    if memory_mb.isdigit() and int(memory_mb):
        own_mb = max(1, (int(memory_mb) - OWN_MB * (slots + 1)) // slots)
        options.append(f"--mem={own_mb}M")
        own["SLURM_MEM_PER_NODE"] = str(own_mb)
    variables = ["env", *(f"{name}={value}" for name, value in own.items())]
    return [
        "srun",
        *options,
        *variables,
        sys.executable,
        "-P",
        "-u",
        "-m",
        module_name("slurm.in_job"),
        word,
        str(slot),
    ]


def take_cores(slot: int, slots: int, environment: MutableMapping[str, str] = os.environ) -> None:
    """Bind this process to its slot's share of the job's cores, before anything counts them.

    In a job that Slurm binds to no cores all of the node are visible, and which of them are the job's is not
    known: then the share is a number alone.
    """
    cores = environment.get("SLURM_CPUS_PER_TASK", "")
    if not cores.isdigit():
        return
    environment["SLURM_CPUS_PER_TASK"] = str(max(1, int(cores) // slots))
    if hasattr(os, "sched_setaffinity") and len(here := os.sched_getaffinity(0)) <= int(cores):
        os.sched_setaffinity(0, share_of(here, slot, slots))


def end_job(codes: Sequence[int], programs: Sequence[Program], job: Job) -> int:
    """Put the job back into the queue if one of its slots asks for that; returns the job's exit status."""
    if TO_BE_REQUEUED not in codes:
        return next((code if code > 0 else 1 for code in codes if code), 0)
    refused = job.requeue()
    if refused is None:
        return 0
    print(f"job {job.id} could not be put back into the queue: {refused}", flush=True)
    for run in (run for program in programs for run in program):
        note_refused(run, job, refused)
    return 1
