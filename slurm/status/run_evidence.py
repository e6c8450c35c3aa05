"""What is written of a run: by itself, by its supervisor, by its submitter.

Nothing here raises: what is missing or damaged is left out, and what cannot be read is named in `unreadable`.

status.json   the run's own word, with its heartbeat
outcome.json  its supervisor's, when it is gone
run.lock      the process that runs now
memory.ring   when the supervisor last saw it: on the run's own clock
jobs.json     its place in the newest submission, and with it its job
starts.json   each start of a job for it, by that job (slurm/in_job)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.json_values import at_path, integer, mapping, seconds
from experiment_utils.lock_file import Holder
from experiment_utils.run_folder import ABSENT, FileContent, RunFolder
from experiment_utils.safe_read import changed_s
from memory.record.ring import read_head
from slurm.records.start_records import ENDED
from slurm.records.submissions import LOCAL, Array, Place, Submission, array_of, named_places, places
from slurm.records.submitter_liveness import launcher_lives
from training.attempt.made_by import Code, codes_of
from training.attempt.run_files import STALLED_AFTER_S


@dataclass(frozen=True)
class Known:
    """What is known of one run before Slurm is asked.

    status, outcome: the files; outcome only if it is of the last attempt. holder: who holds its lock.
    silent_s: since the last heartbeat, None without one; while its supervisor lives, by that one's clock.
    sampled: whether its supervisor has just looked. unheard_s: since either of them gave a sign of life.
    start: the last that a job made of it, as the job wrote it.
    submission, array, place: the newest; None of a run that was not submitted. lost: a newer submission that
    cannot be read. damaged: files that are there and cannot be read. made_s: when its folder got its
    config. looked_s: when a supervisor last looked at it. step: of its job that the last attempt is in, by
    its supervisor; empty where nothing tells. codes: the code of each attempt, None if it was not recorded.
    """

    folder: Path
    status: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    holder: Holder | None = None
    silent_s: float | None = None
    sampled: bool = False
    start: dict[str, Any] = field(default_factory=dict)
    submission: Submission | None = None
    array: Array | None = None
    place: Place | None = None
    lost: str | None = None
    unheard_s: float | None = None
    damaged: tuple[str, ...] = ()
    made_s: float | None = None
    looked_s: float | None = None
    step: str = ""
    codes: tuple[Code | None, ...] = ()
    unreadable: str | None = None
    """Which of its files cannot be read, and why: nothing else is known of the run then."""

    @property
    def state(self) -> str | None:
        """The run's own word; None before its first attempt."""
        state = self.status.get("state")
        return state if isinstance(state, str) else None

    @property
    def reason(self) -> str | None:
        reason = self.status.get("reason")
        return reason if isinstance(reason, str) and reason.strip() else None

    @property
    def attempt(self) -> int | None:
        numbers = (integer(one.get("attempt")) for one in (self.status, self.outcome))
        return max((one for one in numbers if one is not None), default=None)

    @property
    def heartbeat_s(self) -> float | None:
        """Unix time, on the clock of the node that the run is or was on."""
        return seconds(self.status.get("heartbeat_s"))

    @property
    def job(self) -> str | None:
        """As Slurm writes it; None of a run of this machine, or where it is not known."""
        if self.submission is not None and self.submission.launcher != "slurm":
            return None
        if self.array is not None and self.place is not None:
            return self.array.job_of(self.place.task)
        return self.own_job

    @property
    def cancelled_s(self) -> float | None:
        """When `slurm cancel` ended it, in its newest submission; None where it has not."""
        return self.array.cancelled_at(self.place.task) if self.array and self.place else None

    @property
    def own_job(self) -> str | None:
        """That the last attempt was in, by the job's own word or its supervisor's environment."""
        if isinstance(self.start.get("job_id"), str):
            return str(self.start["job_id"])
        told = mapping(self.outcome.get("environment"))
        array, task = str(told.get("SLURM_ARRAY_JOB_ID", "")), str(told.get("SLURM_ARRAY_TASK_ID", ""))
        if array.isdigit() and task.isdigit():
            return f"{array}_{task}"
        job = str(told.get("SLURM_JOB_ID") or (self.holder.job_id if self.holder else None) or "")
        return job if job.isdigit() else None

    @property
    def own_restarts(self) -> int | None:
        """Of its job before the last attempt, as that told; None where it is not known."""
        if (restart := integer(self.start.get("restart"))) is not None:
            return restart
        told = mapping(self.outcome.get("environment"))
        if not told.get("SLURM_JOB_ID"):
            return None
        count = str(told.get("SLURM_RESTART_COUNT", "0"))
        return int(count) if count.isdigit() and len(count) < 9 else None

    @property
    def given_up(self) -> str | None:
        """Why its job does not start it again: the last starts brought no step forward."""
        reason = self.start.get("reason")
        if self.start.get("end") != "gave_up" or not isinstance(reason, str):
            return None
        return " ".join(reason.split()) or None

    @property
    def is_here(self) -> bool:
        """Its process runs on this host: there is no doubt then."""
        return self.holder is not None and self.holder.host == os.uname().nodename and not self.is_gone

    @property
    def is_gone(self) -> bool:
        """Its process is known to be no more: it was here, or its supervisor or its job saw it end."""
        is_seen = bool(self.outcome) or self._ended_in_its_job
        return is_seen or (self.holder is not None and self.holder.is_gone())

    @property
    def _ended_in_its_job(self) -> bool:
        """Where the supervisor could not say so. One that was asked to stop may still be about to."""
        start = self.start
        is_of_this = start.get("attempt") is not None and start.get("attempt") == self.attempt
        return is_of_this and start.get("end") == ENDED and start.get("signal") is None

    @property
    def noted_oom(self) -> bool:
        """Its supervisor saw the kernel kill it, or a process of it, for memory."""
        if not self.outcome:
            return False
        return oom_kills(self.outcome) > 0 and (
            isinstance(self.outcome.get("victim"), dict) or self.outcome.get("signal") == "SIGKILL"
        )


def oom_kills(outcome: dict[str, Any]) -> int:
    """How often the kernel killed for memory where the run was, while it ran."""
    before, after = (at_path(outcome, f"counters_{when}.oom_kill") for when in ("before", "after"))
    return max(0, (integer(after) or 0) - (integer(before) or 0))


def read_known(
    folder: Path,
    submission_of: Callable[[Path, str], Submission | None],
    now_s: float,
    named: Callable[[Path], dict[str, list[Place]]] = named_places,
) -> Known:
    """submission_of: reads a submission of a study by its id, None where it is damaged or gone. named: what
    submissions of a study name, asked for where the run itself was not told.
    """
    try:
        with atomic_files.reading(folder):
            return _read_known(folder, submission_of, now_s, named)
    except atomic_files.Unreadable as error:
        return Known(folder, unreadable=f"{error.path} cannot be read: {error.why}")


def _read_known(
    folder: Path,
    submission_of: Callable[[Path, str], Submission | None],
    now_s: float,
    named: Callable[[Path], dict[str, list[Place]]],
) -> Known:
    with os.scandir(folder):  # else a folder that cannot be listed looks like one without files
        pass
    run = RunFolder(folder)
    status, outcome = (dict(run.file(name).readable().value) for name in ("status.json", "outcome.json"))
    if status and not status.get("step") and run.checkpoint_step:  # an attempt that has not restored yet
        status["step"] = run.checkpoint_step
    holder = run.holder
    if outcome and not _is_of_last_attempt(outcome, status, holder):
        outcome = {}
    head = read_head(run.ring_path) if status.get("state") == "running" and not outcome else None
    silent_s, sampled, unheard_s = _silence(
        status, changed_s(folder / "status.json"), run.ring_path, head and head[1], now_s
    )
    submission, array, place, lost = newest_place(folder, status, submission_of, named, now_s)
    # of one that is done nothing more is asked than its job, which of workers no place tells
    is_asked = status.get("state") != "done" or (array is not None and array.how == "workers")
    starts = (
        run.file("starts.json").readable().value.get("starts") if place is not None and is_asked else None
    )
    names = () if status else ("status.json", "jobs.json", "starts.json", "outcome.json", "run.json")
    damaged = tuple(name for name in names if _is_empty(run.file(name).readable()))
    run_facts = run.file("run.json").readable().value
    return Known(
        folder, status, outcome, holder, silent_s, sampled,
        mapping(starts[-1]) if isinstance(starts, list) and starts else {},
        submission, array, place, lost, unheard_s, damaged,
        _modified_s(folder / "config.yaml"), _modified_s(run.ring_path),
        _step(outcome or (head[0] if head is not None else {}), status), tuple(codes_of(run_facts)),
    )  # fmt: skip


def _is_empty(file: FileContent) -> bool:
    """Whether the file exists and holds nothing that can be read."""
    return file.state != ABSENT and not file.value


def newest_place(
    folder: Path,
    status: dict[str, Any],
    submission_of: Callable[[Path, str], Submission | None],
    named: Callable[[Path], dict[str, list[Place]]],
    now_s: float,
) -> tuple[Submission | None, Array | None, Place | None, str | None]:
    """The newest that can be read, and a newer one that cannot; an older one of this machine, whose process
    is there, where that of the newest has ended: it will start the run all the same.
    """
    there = places(folder)
    if not there and not status:  # its submitter may have died between the two
        there = named(folder.parent).get(folder.name, [])
    newest, lost = None, None
    for found in reversed(there):
        submission = submission_of(folder.parent, found.submission)
        array = array_of(folder, submission, found) if submission else None
        if submission is None or array is None:
            lost = lost or (found.submission if newest is None else None)
            continue
        lives = submission.launcher == LOCAL and launcher_lives(submission, array, now_s)
        if newest is None:
            newest = submission, array, found
            if submission.launcher != LOCAL or lives:
                break
        elif lives:
            newest = submission, array, found
            break
    return (*(newest or (None, None, None)), lost)


def _modified_s(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except OSError:
        return None


def _is_of_last_attempt(outcome: dict[str, Any], status: dict[str, Any], holder: Holder | None) -> bool:
    """Not of an attempt before, whose successor nobody supervises; nor of a second start, which found the
    lock taken and left while the first one goes on.
    """
    told, ended_s = integer(outcome.get("attempt")), seconds(outcome.get("ended_s"))
    attempt, beat_s = integer(status.get("attempt")), seconds(status.get("heartbeat_s"))
    if told is not None and attempt is not None and told < attempt:
        return False
    if status.get("state") != "running" or outcome.get("host") != status.get("host"):
        return True
    lives = holder is not None and holder.host == os.uname().nodename and not holder.is_gone()
    return not lives and (ended_s is None or beat_s is None or beat_s <= ended_s + 1)


def _silence(
    status: dict[str, Any], written_s: float, ring: Path, sample: Any, now_s: float
) -> tuple[float | None, bool, float | None]:
    """Seconds since the heartbeat, and since any sign of life. Clocks may be apart: the supervisor's last
    sample is on that of the run; else what is younger counts, what was noted on our clock or the file on the
    file server's.
    """
    beat = seconds(status.get("heartbeat_s"))
    if beat is None:
        return None, False, None
    by_files = max(0.0, min(now_s - beat, now_s - written_s))
    try:
        ring_s = now_s - ring.stat().st_mtime
    except OSError:
        sample = None
    if sample is None:
        return by_files, False, by_files
    unheard_s = max(0.0, min(by_files, ring_s, now_s - sample.time_s))
    sampled = ring_s < STALLED_AFTER_S
    if sampled and sample.time_s >= beat:
        return sample.time_s - beat, True, unheard_s
    return by_files, sampled, unheard_s


def _step(facts: dict[str, Any], status: dict[str, Any]) -> str:
    """facts: as a supervisor wrote them down, in outcome.json or in memory.ring."""
    is_of_it = facts.get("attempt") in (None, status.get("attempt")) or not status
    return str(mapping(facts.get("environment")).get("SLURM_STEP_ID", "")) if is_of_it else ""
