"""One start of a job for a run: start its process, wait, note how it ended, judge whether it goes on."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files, lease
from experiment_utils.errors import UserError
from experiment_utils.exit_status import LEASE_LOST
from experiment_utils.lock_file import LockHeld
from slurm.cluster.current_job import Job
from slurm.in_job.requeue_decision import Stopped, Verdict, judge, no_progress
from slurm.launch.outcome import Outcome, outcome_of
from slurm.launch.processes import Children, attempt_of_start, run_command
from slurm.records.start_records import (
    DONE,
    ENDED,
    GAVE_UP,
    LEFT,
    REQUEUED,
    Start,
    follows_a_lost_node,
    idle_starts,
    note_end,
    note_start,
    read_starts,
)
from training.attempt.run_files import LOCK, read_config, read_status
from training.checkpoint.checkpoints import checkpoint_steps
from training.interrupt import TIME_IS_UP, job_left_s

_SETTINGS = ("requeue", "max_idle_attempts", "signal_s")
SENT_EARLY_S = 90.0
"""The signal ahead of a time limit can come this much earlier than asked for (sbatch(1), --signal: 60 s)."""
LOST_STEP = "its step ended without a word: it was killed"
"""Ended as a whole: scancel JOB.STEP, an OOM kill of all of it."""


def run_alone(
    runs: Sequence[Path],
    job: Job,
    children: Children,
    watch: lease.Watch,
    is_over: Callable[[Path], bool],
) -> Verdict:
    """Run a program under the leases of its runs until it has ended; a failure ends it alone, not its job.

    Args:
        runs: one run; several: members of an ensemble, one program.
        job: this start of the job.
        children: gets the run's process, and the signals for it.
        watch: earlier looks at the leases.
        is_over: whether a run is not to be started again.

    Returns:
        What came of it: DONE, REQUEUED (the job is to start again), GAVE_UP, ENDED, or LEFT: another process
        has taken it over.

    Raises:
        LockHeld: another process holds the lease of one of them.
    """
    try:
        for run in runs:
            read_config(run)
        with ExitStack() as leases:
            held = [
                leases.enter_context(lease.take(run / LOCK, f"the run folder {run}", watch)) for run in runs
            ]
            if all(map(is_over, runs)):  # since they were looked at
                return Verdict(DONE, 0, None, "done")
            if any(has_begun(run, job) for run in runs):
                raise UserError(LOST_STEP)  # by another slot of this job, whose lease is free now
            return _run(sorted(runs, key=newest_step), job, children, held)
    except LockHeld:
        raise
    except UserError as error:
        print(error.render(), file=sys.stderr, flush=True)
        code, why = 2, str(error)
    except Exception as error:
        traceback.print_exc()
        code, why = 1, f"{type(error).__name__}: {error}"
    reason = " ".join(why.split())
    for run in runs:
        note_lost(run, job, reason)
    return Verdict(ENDED, code, reason, "failed")


def _run(runs: Sequence[Path], job: Job, children: Children, held: Sequence[lease.Lease]) -> Verdict:
    """Run a program whose leases are held, the run with the fewest steps first."""
    lead = runs[0]
    settings = settings_of(lead)
    may_requeue, most_idle = bool(settings["requeue"]), int(settings["max_idle_attempts"])
    step, starts = newest_step(lead), read_starts(lead)
    idle = idle_starts(starts, job.raw_id, step)
    began = {run: _start_now(job, run) for run in runs}
    start = began[lead]
    if idle >= most_idle:
        return _end(lead, job, start, Verdict(GAVE_UP, 1, _why_given_up(starts, idle)), "failed")
    for run in runs:
        _note(note_start, run, began[run])
    before = read_status(lead)
    late = _Late(lead, job, start, children, may_requeue=may_requeue)
    children.start(run_command(lead, quiet=False, members=runs if len(runs) > 1 else ()), quiet=False)

    def look() -> None:
        with suppress(OSError):  # the run's process, which can take minutes to start, touches them as well
            for one in held:
                one.touch()
        late.look()

    with lease.Periodic(min(5.0, lease.touch_s()), look):
        child = children.wait()
    if child.exit_code == LEASE_LOST:
        return Verdict(LEFT, 0, f"another process has taken {lead} over")
    number = children.requested
    sampled = lead if len(runs) > 1 else None
    ends = {
        run: outcome_of(run, child, before if run == lead else {}, sampled, asked_to_stop=number is not None)
        for run in runs
    }
    for run in runs[1:]:
        end = Verdict(DONE if ends[run].state == "done" else ENDED, ends[run].exit_code, ends[run].reason)
        _note(note_end, run, _as_ended(run, began[run], end, ends[run].state, number))
    outcome = ends[next((run for run in runs if ends[run].state not in ("done", "failed", "oom")), lead)]
    if late.has_requeued:
        return Verdict(REQUEUED, outcome.exit_code, outcome.reason)
    stopped = _stopped(outcome, number, idle, step)
    if number is not None:  # before Slurm is asked: it can kill this process any moment
        end = Verdict(ENDED, stopped.exit_code, stopped.reason)
        _note(note_end, lead, _as_ended(lead, start, end, stopped.state, number))
    verdict = judge(
        stopped,
        may_requeue=may_requeue,
        max_idle=most_idle,
        is_being_preempted=job.is_being_preempted,
        is_early=_is_early(job_left_s(), float(settings["signal_s"])),
        was_for_another_start=lambda: (
            follows_a_lost_node(starts, start)
            and _says_it_got_term(outcome.folder)
            and job.is_to_go_on() is True
        ),
    )
    return _end(lead, job, start, verdict, verdict.state or stopped.state, number)


def note_lost(folder: Path, job: Job, reason: str = LOST_STEP) -> None:
    """Note the end of a run that could not note it itself, so that its job does not start it again."""
    if not folder.is_dir():
        return
    last = next(reversed(read_starts(folder)), None)
    if last is None or not is_of(last, job):
        last = _start_now(job, folder)
    if last.end is None:
        end = Verdict(ENDED, 1, reason)
        _note(note_end, folder, _as_ended(folder, last, end, "failed", None))


def has_begun(run: Path, job: Job) -> bool:
    """Whether this start of the job has begun the run, and not noted its end."""
    last = read_starts(run)[-1:]
    return any(is_of(start, job) and start.end is None for start in last)


def is_of(start: Start, job: Job) -> bool:
    """Whether a record is of this start of the job."""
    return (start.raw_job_id, start.restart) == (job.raw_id, job.restart)


def _start_now(job: Job, folder: Path) -> Start:
    return Start(
        job_id=job.id,
        raw_job_id=job.raw_id,
        restart=job.restart,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_s=round(time.time(), 3),
        attempt=attempt_of_start(folder),
        step_before=newest_step(folder),
    )


def _why_given_up(starts: Sequence[Start], idle: int) -> str:
    """Reason for a job that was given up and put back all the same: the one that it was given up for."""
    last = next((one for one in reversed(starts) if one.reason), None)
    if last is not None and last.reason is not None and last.end == GAVE_UP:
        return last.reason
    return no_progress(idle, last.reason if last is not None else None)


class _Late:
    """A run that was asked to stop in time, and comes to no step boundary before its job's time is up.

    Slurm does not put a job back that has reached its limit: it must be asked just before. The run then has
    KillWait to get there all the same, and else goes on from its last checkpoint, if this start made one.
    """

    MARGIN_S = 12.0

    def __init__(
        self, folder: Path, job: Job, start: Start, children: Children, *, may_requeue: bool
    ) -> None:
        self.has_requeued = False
        self._folder, self._job, self._start, self._children = folder, job, start, children
        self._at_s: float | None = None if may_requeue else math.inf

    def look(self) -> None:
        """Put the job back if it is time; called every few seconds in a thread."""
        if self.has_requeued or self._children.requested not in TIME_IS_UP:
            return
        if self._at_s is None:
            left_s = job_left_s()
            left_s = self._job.left_s() if left_s is None else left_s
            self._at_s = math.inf if left_s is None else time.time() + left_s - self.MARGIN_S
        if time.time() < self._at_s:
            return
        self._at_s = math.inf
        if newest_step(self._folder) <= self._start.step_before:
            return  # it would come here again
        self.has_requeued = True
        reason = "its time is up before the step was done; going on from its last checkpoint"
        verdict = Verdict(REQUEUED, 1, reason)
        _end(self._folder, self._job, self._start, verdict, "timeout", signal.SIGUSR2)
        refused = self._job.requeue()
        if refused is not None:
            note_refused(self._folder, self._job, refused)


def _is_early(left_s: float | None, signal_s: float) -> bool:
    """Whether a signal came too early to be of the time limit, as far as is known; Slurm is asked then."""
    return left_s is None or left_s > signal_s + SENT_EARLY_S


def _says_it_got_term(folder: Path) -> bool:
    """Whether one of its ranks did, which can be another than this process's."""
    status = read_status(folder)
    return status.get("state") == "cancelled" and "SIGTERM" in str(status.get("reason"))


def _stopped(outcome: Outcome, number: int | None, idle: int, step_before: int) -> Stopped:
    moved = newest_step(outcome.folder) > step_before
    return Stopped(outcome.state, outcome.exit_code, outcome.reason, number, 0 if moved else idle + 1)


def _end(
    folder: Path, job: Job, start: Start, verdict: Verdict, state: str, number: int | None = None
) -> Verdict:
    """Note and log how a start ended; returns the verdict with the state of the run."""
    _note(note_end, folder, _as_ended(folder, start, verdict, state, number))
    if verdict.end == REQUEUED:
        say(folder, f"job {job.id} goes back into the queue: {verdict.reason}")
    elif verdict.reason:
        say(folder, f"job {job.id}: {state}: {verdict.reason}")
    return replace(verdict, state=state)


def note_refused(folder: Path, job: Job, refused: str) -> None:
    """Note that a job which was to start again for this run does not. refused: what Slurm said."""
    last = next(reversed(read_starts(folder)), None)
    if last is not None and is_of(last, job) and last.end == REQUEUED:
        reason = f"{last.reason}; it could not be put back into the queue: {refused}"
        say(folder, f"job {job.id}: {reason}")
        _note(note_end, folder, replace(last, end=ENDED, reason=reason))


def _as_ended(folder: Path, start: Start, verdict: Verdict, state: str, number: int | None) -> Start:
    return replace(
        start,
        step_after=newest_step(folder),
        ended_s=round(time.time(), 3),
        end=verdict.end,
        state=state,
        reason=verdict.reason,
        exit_code=verdict.exit_code,
        signal=None if number is None else signal.Signals(number).name,
    )


def say(folder: Path, line: str) -> None:
    """Write a line to the job's output and to the run's log.txt."""
    print(line, flush=True)
    try:
        with open(folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    except OSError:
        return


def _note(how: Callable[[Path, Start], None], folder: Path, start: Start) -> None:
    """Write a record; a full disk stops nothing that would otherwise go on, nor changes how it ends."""
    try:
        how(folder, start)
    except OSError as error:
        print(f"cannot write {folder / 'starts.json'}: {error.strerror}", file=sys.stderr, flush=True)
    except atomic_files.Unreadable as error:
        print(error, file=sys.stderr, flush=True)


def newest_step(folder: Path) -> int:
    """Step of the newest checkpoint; 0 without one, or if they cannot be read, which the run reports."""
    try:
        return max(checkpoint_steps(folder / "checkpoints"), default=0)
    except atomic_files.Unreadable as error:
        print(error, file=sys.stderr, flush=True)
        return 0


def settings_of(folder: Path) -> dict[str, Any]:
    """`slurm=` of the run; keys that its config lacks have their default."""
    from conf.schema import Slurm

    found = read_config(folder).get("slurm") or {}
    plain = Slurm()
    return {name: found.get(name, getattr(plain, name)) for name in _SETTINGS}
