"""The story of one run in one start of a job: start it, wait, judge, put the job back or end."""

from __future__ import annotations

import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from slurm.cluster.current_job import Job
from slurm.in_job.requeue_decision import Stopped, Verdict, judge, no_progress
from slurm.launch.outcome import Outcome, outcome_of
from slurm.launch.processes import Child, Children, run_command
from slurm.launch.run_lock import LOCK, Heartbeat, is_on_its_own, living_holder
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
from training.attempt.run_files import next_attempt, read_config, read_run, read_status
from training.checkpoint.checkpoints import checkpoint_steps
from training.interrupt import TIME_IS_UP, job_left_s


def run_together_in_job(folders: Sequence[Path], job: Job) -> Verdict:
    """Run those of an ensemble that are not over as one program: what becomes of the job is told by the one
    that got least far.

    Raises:
        UserError: the folders' files cannot be used.
    """
    waiting = [folder for folder in folders if not _is_over(folder, job)]
    if not waiting:
        say(folders[0], "the runs of this ensemble have ended; nothing to do")
        return Verdict(DONE, 0, None)
    waiting.sort(key=_newest_step)
    return run_in_job(waiting[0], job, members=waiting)


def _is_over(folder: Path, job: Job) -> bool:
    """Done, or ended by itself in an earlier start of this job: what made it diverge would come again."""
    state = read_status(folder).get("state")
    if state == "done":
        return True
    starts = read_starts(folder)
    return state in ("failed", "oom") and bool(starts) and starts[-1].raw_job_id == job.raw_id


def run_in_job(folder: Path, job: Job, members: Sequence[Path] = ()) -> Verdict:
    """Run `folder` until it has ended or is to stop. members: runs of an ensemble, itself the first of them.

    Where another copy of it is alive that Slurm takes for dead, the exit code is TO_LOOK_AGAIN: the caller
    has the job look again later (`look_again`).

    Only the first of several ranks judges; the others end as their process does, but well when a stop was
    asked for: srun ends all ranks as soon as one fails.

    Raises:
        UserError: the folder's files cannot be used.
    """
    if job.rank:
        with Children() as children:
            children.start(run_command(folder, quiet=False), quiet=False)
            child = children.wait()
        return Verdict(ENDED, 0 if children.requested is not None else child.exit_code, None)
    if read_status(folder).get("state") == "done":
        say(folder, f"{folder} is finished; nothing to do")
        return Verdict(DONE, 0, None)
    lock, what = folder / LOCK, f"the run folder {folder}"
    holder = living_holder(lock, what, job, say=lambda line: say(folder, line))
    if holder is not None:
        reason = f"{folder} is being run by {holder}: job {job.id} leaves it alone"
        say(folder, reason)
        comes_back = is_on_its_own(holder, job) and settings_of(folder)["requeue"]
        return Verdict(LEFT, TO_LOOK_AGAIN if comes_back else 0, reason)
    settings = settings_of(folder)
    step = _newest_step(folder)
    starts = read_starts(folder)
    idle = idle_starts(starts, job.raw_id, step)
    start = _start_now(job, step, next_attempt(folder))
    if idle >= settings["max_idle_attempts"]:
        reason = _why_given_up(starts, idle)
        return _end(folder, job, start, Verdict(GAVE_UP, 1, reason), "failed")
    _note(note_start, folder, start)
    others = [member for member in members if member != folder]
    for member in others:
        own_attempt = next_attempt(member)
        _note(note_start, member, replace(start, attempt=own_attempt, step_before=_newest_step(member)))
    before = read_status(folder)
    with Children() as children:
        late = _Late(folder, job, start, children, may_requeue=bool(settings["requeue"]))
        children.start(run_command(folder, quiet=False, members=members), quiet=False)
        with Heartbeat(lock, *(member / LOCK for member in others), also=late.look):
            child = children.wait()
        for member in others:
            _note_other(member, folder, start, child, children.requested)
        sampled = folder if members else None
        asked = children.requested is not None
        outcome = outcome_of(_least_far(folder, others), child, before, sampled, asked_to_stop=asked)
        if late.has_requeued:
            return Verdict(REQUEUED, outcome.exit_code, outcome.reason)
        stopped = _stopped(outcome, children.requested, idle, step)
        if stopped.signal is not None:  # before Slurm is asked: it may kill this process any moment
            told = Verdict(ENDED, stopped.exit_code, stopped.reason)
            _note(note_end, folder, _as_ended(folder, start, told, stopped.state, stopped.signal))
        verdict = judge(
            stopped,
            may_requeue=bool(settings["requeue"]),
            max_idle=int(settings["max_idle_attempts"]),
            is_being_preempted=job.is_being_preempted,
            is_early=_is_early(job_left_s(), float(settings["signal_s"])),
            was_for_another_start=lambda: (
                follows_a_lost_node(starts, start)
                and _says_it_got_term(outcome.folder)
                and job.is_to_go_on() is True
            ),
        )
        return _end(folder, job, start, verdict, verdict.state or stopped.state, children.requested)


def run_beside_others(folder: Path, job: Job) -> Verdict:
    """`run_in_job` of a run whose job is for others too: where its files cannot be used it ends alone."""
    try:
        return run_in_job(folder, job)
    except UserError as error:
        print(error.render(), file=sys.stderr, flush=True)
        code, why = 2, str(error)
    except Exception as error:
        traceback.print_exc()
        code, why = 1, f"{type(error).__name__}: {error}"
    reason = " ".join(why.split())
    note_lost(folder, job, reason)
    return Verdict(ENDED, code, reason)


LOST_STEP = "its step ended without a word: it was killed, or Slurm could not start it"
"""Ended as a whole: scancel JOB.STEP, an OOM kill of all of it."""


def note_lost(folder: Path, job: Job, reason: str = LOST_STEP) -> None:
    """Of a run whose job is for others too: where the run could not note how it ended. Its job would else
    start it again.
    """
    last = next(reversed(read_starts(folder)), None)
    if last is None or (last.raw_job_id, last.restart) != (job.raw_id, job.restart):
        last = _start_now(job, _newest_step(folder), _next_attempt(folder))
    if last.end is None:
        told = Verdict(ENDED, 1, reason)
        _note(note_end, folder, _as_ended(folder, last, told, "failed", None))


def _next_attempt(folder: Path) -> int:
    """1 where its files do not tell: other runs of the job must not end for that."""
    try:
        return next_attempt(folder)
    except UserError:
        return 1


def _start_now(job: Job, step: int, attempt: int) -> Start:
    return Start(
        job_id=job.id,
        raw_job_id=job.raw_id,
        restart=job.restart,
        host=socket.gethostname(),
        pid=os.getpid(),
        started_s=round(time.time(), 3),
        attempt=attempt,
        step_before=step,
    )


def _why_given_up(starts: Sequence[Start], idle: int) -> str:
    """Of a job that was given up and put back all the same: for the reason that it was given up for."""
    last = next((one for one in reversed(starts) if one.reason), None)
    if last is not None and last.reason is not None and last.end == GAVE_UP:
        return last.reason
    return no_progress(idle, last.reason if last is not None else None)


def _least_far(folder: Path, others: Sequence[Path]) -> Path:
    """The run by which the end of an ensemble's process is judged: one that it was to go on with."""
    stopped = [
        one for one in (folder, *others) if read_status(one).get("state") not in ("done", "failed", "oom")
    ]
    return stopped[0] if stopped else folder


def _note_other(member: Path, lead: Path, start: Start, child: Child, number: int | None) -> None:
    """How a run of an ensemble ended that is not the one by which its job is judged."""
    outcome = outcome_of(member, child, {}, lead, asked_to_stop=number is not None)
    end = DONE if outcome.state == "done" else ENDED
    verdict = Verdict(end, outcome.exit_code, outcome.reason)
    began = replace(start, attempt=len(read_run(member).get("attempts", [])))
    _note(note_end, member, _as_ended(member, began, verdict, outcome.state, number))


def look_again(runs: Sequence[Path], job: Job) -> int:
    """Have the job start again in a while, for runs that copies of them go on with. Returns its exit code."""
    refused = job.come_back()
    for run in runs:
        told = f"could not be put back into the queue: {refused}" if refused else "goes back into the queue"
        say(run, f"job {job.id} {told}, to go on when that copy has ended")
    return 0


_SETTINGS = ("requeue", "max_idle_attempts", "signal_s")
SENT_EARLY_S = 90.0
"""So much earlier than asked for the signal ahead of a time limit may come (sbatch(1), --signal: 60 s)."""
TO_BE_REQUEUED = 75
"""Exit code of a run that goes on in this job and has not put it back: whoever started it does."""
TO_LOOK_AGAIN = 76
"""The same, of one that another copy has: the job is to start again in a while, not at once."""


class _Late:
    """A run that was told in time, and comes to no step boundary before its job's time is up.

    Slurm does not put a job back that has reached its limit: it must be asked just before. The run then has
    KillWait to get there all the same, and else goes on from its last checkpoint, if this start made one.
    Runs beside it have stopped by then, or are as late.
    """

    MARGIN_S = 12.0

    def __init__(
        self, folder: Path, job: Job, start: Start, children: Children, *, may_requeue: bool
    ) -> None:
        self.has_requeued = False
        self._folder, self._job, self._start, self._children = folder, job, start, children
        self._at_s: float | None = None if may_requeue else math.inf

    def look(self) -> None:
        """Now and then, from another thread."""
        if self.has_requeued or self._children.requested not in TIME_IS_UP:
            return
        if self._at_s is None:
            left_s = job_left_s()
            left_s = self._job.left_s() if left_s is None else left_s
            self._at_s = math.inf if left_s is None else time.time() + left_s - self.MARGIN_S
        if time.time() < self._at_s:
            return
        self._at_s = math.inf
        if _newest_step(self._folder) <= self._start.step_before:
            return  # it would come here again
        self.has_requeued = True
        reason = "its time is up before the step was done; going on from its last checkpoint"
        verdict = Verdict(REQUEUED, 1, reason)
        _end(self._folder, self._job, self._start, verdict, "timeout", signal.SIGUSR2, at_once=True)


def _is_early(left_s: float | None, signal_s: float) -> bool:
    """Whether a signal came too early to be of the time limit, as far as is known; Slurm is asked then."""
    return left_s is None or left_s > signal_s + SENT_EARLY_S


def _says_it_got_term(folder: Path) -> bool:
    """One of its ranks did, which may be another than this process's."""
    status = read_status(folder)
    return status.get("state") == "cancelled" and "SIGTERM" in str(status.get("reason"))


def _stopped(outcome: Outcome, number: int | None, idle: int, step_before: int) -> Stopped:
    moved = _newest_step(outcome.folder) > step_before
    return Stopped(outcome.state, outcome.exit_code, outcome.reason, number, 0 if moved else idle + 1)


def _end(
    folder: Path,
    job: Job,
    start: Start,
    verdict: Verdict,
    state: str,
    number: int | None = None,
    *,
    at_once: bool = False,
) -> Verdict:
    """Write it down, then ask for another start: from then on Slurm may end this process at any time.

    at_once: also where others run beside it, which whoever started them would wait for.
    """
    start = _as_ended(folder, start, verdict, state, number)
    _note(note_end, folder, start)
    if verdict.end != REQUEUED:
        if verdict.reason:
            say(folder, f"job {job.id}: {state}: {verdict.reason}")
        return verdict
    say(folder, f"job {job.id} goes back into the queue: {verdict.reason}")
    refused = job.requeue() if at_once or not job.is_packed else None
    if refused is None:
        return replace(verdict, exit_code=TO_BE_REQUEUED if job.is_packed else 0)
    return replace(verdict, end=ENDED, reason=note_refused(folder, job, start, refused))


def note_refused(folder: Path, job: Job, start: Start, refused: str) -> str:
    """Of a run whose job was to start again, and does not. Returns the reason that is told for it."""
    reason = f"{start.reason}; it could not be put back into the queue: {refused}"
    say(folder, f"job {job.id}: {reason}")
    _note(note_end, folder, replace(start, end=ENDED, reason=reason))
    return reason


def _as_ended(folder: Path, start: Start, verdict: Verdict, state: str, number: int | None) -> Start:
    return replace(
        start,
        step_after=_newest_step(folder),
        ended_s=round(time.time(), 3),
        end=verdict.end,
        state=state,
        reason=verdict.reason,
        exit_code=verdict.exit_code,
        signal=None if number is None else signal.Signals(number).name,
    )


def say(folder: Path, line: str) -> None:
    """To the job's output and to the run's log.txt."""
    print(line, flush=True)
    try:
        with open(folder / "log.txt", "a", encoding="utf-8") as log:
            log.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")
    except OSError:
        return


def _note(how: Any, folder: Path, start: Start) -> None:
    """A full disk must not stop what would otherwise go on, or change how it ends."""
    try:
        how(folder, start)
    except OSError as error:
        print(f"cannot write {folder / 'starts.json'}: {error.strerror}", file=sys.stderr, flush=True)
    except atomic_files.Unreadable as error:
        print(error, file=sys.stderr, flush=True)


def _newest_step(folder: Path) -> int:
    """Step of the newest checkpoint; 0 without one, or if they cannot be read, which the run reports."""
    try:
        return max(checkpoint_steps(folder / "checkpoints"), default=0)
    except atomic_files.Unreadable as error:
        print(error, file=sys.stderr, flush=True)
        return 0


def settings_of(folder: Path) -> dict[str, Any]:
    """`slurm=` of the run, with what stands where the config is older than a key."""
    from conf.schema import Slurm

    found = read_config(folder).get("slurm") or {}
    plain = Slurm()
    return {name: found.get(name, getattr(plain, name)) for name in _SETTINGS}
