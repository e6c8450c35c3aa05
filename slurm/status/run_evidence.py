"""Read the files of a run: written by itself, by its supervisor, by its job and by its submitter.

status.json   the run's own word, with its heartbeat
outcome.json  how its process ended, by its supervisor
run.lock      the process that runs now
memory.ring   when the supervisor last looked, on the run's own clock
jobs.json     the run's place in each submission
starts.json   each start of a job for the run, by that job
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.exit_status import LEASE_LOST
from experiment_utils.json_values import at_path, integer, mapping, mappings, seconds, text
from experiment_utils.lock_file import Holder
from experiment_utils.run_folder import ABSENT, RunFolder
from experiment_utils.safe_read import changed_s
from memory.record.ring import read_head
from slurm.records.stamps import Stamp, stamp_of_note, stamp_of_variables
from slurm.records.start_records import DONE, ENDED, GAVE_UP
from slurm.records.submissions import LOCAL, SLURM, Array, Place, Submission, array_of, named_places, places
from training.attempt.made_by import Code, codes_of
from training.attempt.run_files import STALLED_AFTER_S

SubmissionReader = Callable[[Path, str], Submission | None]
PlacesReader = Callable[[Path], dict[str, list[Place]]]


@dataclass(frozen=True)
class RunEvidence:
    """The files of one run. Values that are not known are None or empty."""

    folder: Path
    status: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    """Only if it is of the last attempt."""
    holder: Holder | None = None
    """The process that holds run.lock."""
    silent_s: float | None = None
    """Since the last heartbeat; while the supervisor lives, by its clock."""
    sampled: bool = False
    """Whether its supervisor has just looked."""
    notes: tuple[dict[str, Any], ...] = ()
    """Entries of starts.json, oldest first."""
    submission: Submission | None = None
    array: Array | None = None
    place: Place | None = None
    lost: str | None = None
    """Id of a newer submission, which cannot be read."""
    unheard_s: float | None = None
    """Since the last sign of life, of the run or of its supervisor."""
    damaged: tuple[str, ...] = ()
    """Files that exist and hold nothing that can be read."""
    step: str = ""
    """Step of its job that the last attempt is in."""
    codes: tuple[Code | None, ...] = ()
    """The code of each attempt, None if it was not recorded."""
    job_ids: dict[str, Any] = field(default_factory=dict)
    """Slurm's variables in the process that wrote status.json."""
    unreadable: str | None = None
    """Which of its files cannot be read, and why: nothing else is known of the run then."""

    @property
    def state(self) -> str | None:
        """The run's own word; None before its first attempt."""
        state = self.status.get("state")
        return state if isinstance(state, str) else None

    @property
    def reason(self) -> str | None:
        """Why it ended, by itself."""
        reason = self.status.get("reason")
        return reason if isinstance(reason, str) and reason.strip() else None

    @property
    def attempt(self) -> int | None:
        """Number of the last attempt that is known."""
        numbers = (integer(one.get("attempt")) for one in (self.status, self.outcome))
        return max((one for one in numbers if one is not None), default=None)

    @property
    def heartbeat_s(self) -> float | None:
        """Unix time, on the clock of the node that the run is or was on."""
        return seconds(self.status.get("heartbeat_s"))

    @property
    def note(self) -> dict[str, Any]:
        """The newest entry of starts.json; empty without one."""
        return self.notes[-1] if self.notes else {}

    @property
    def is_done(self) -> bool:
        """Whether it is done: by status.json or, if that was lost, by its job or its supervisor."""
        if self.state is not None or self.damaged:
            return self.state == "done"
        return self.note.get("end") == DONE or self.outcome.get("exit_code") == 0

    @property
    def attempt_note(self) -> dict[str, Any]:
        """The newest entry of starts.json, if it is of the last attempt; else empty."""
        return self.note if self.note.get("attempt") == self.attempt else {}

    @property
    def job(self) -> str | None:
        """The job of its newest submission, as Slurm writes it; None of a run of this machine in no job."""
        if self.submission is not None and self.submission.launcher != SLURM:
            return self.submission.job
        if self.array is not None and self.place is not None:
            return self.array.job_of(self.place.task)
        return self.own_job

    @property
    def own_job(self) -> str | None:
        """The job of its last attempt."""
        is_last = (integer(self.note.get("attempt")) or 0) >= (self.attempt or 0)
        if is_last and isinstance(self.note.get("job_id"), str):
            return str(self.note["job_id"])
        if self.stamp is not None:
            return self.stamp.job
        job = str((self.holder.job_id if self.holder else None) or "")
        return job if job.isdigit() else None

    @cached_property
    def stamp(self) -> Stamp | None:
        """The start of a job in which the run wrote status.json, or else its supervisor outcome.json."""
        found = stamp_of_variables(self.job_ids)
        if self.submission is not None and self.submission.launcher == LOCAL:
            return found if found is not None and found.job == self.submission.job else None
        attempt = self.attempt or 0
        before = [note for note in self.notes if (integer(note.get("attempt")) or 0) <= attempt]
        return found or (stamp_of_note(before[-1]) if before else None) or self.supervised_stamp

    @property
    def supervised_stamp(self) -> Stamp | None:
        """The start of a job in which its supervisor wrote outcome.json."""
        is_here = self.submission is not None and self.submission.launcher == LOCAL
        return None if is_here else stamp_of_variables(mapping(self.outcome.get("environment")))

    @property
    def is_shared(self) -> bool:
        """Whether other runs share its job, each with a process of its own."""
        return self.array is not None and self.array.is_shared

    @property
    def cancelled_s(self) -> float | None:
        """When `slurm cancel` ended its newest submission."""
        return self.array.cancelled_at(self.place.task) if self.array and self.place else None

    @property
    def given_up(self) -> str | None:
        """Why its job does not start it again: the last starts brought no step forward."""
        is_given_up = self.note.get("end") == GAVE_UP
        return " ".join(text(self.note.get("reason")).split()) or None if is_given_up else None

    @property
    def is_here(self) -> bool:
        """Whether its process is known to run on this host."""
        return self.holder is not None and self.holder.host == os.uname().nodename and not self.is_gone

    @property
    def is_gone(self) -> bool:
        """Whether its process is known to have ended: it was here, or its supervisor or its job saw the end.

        A run that was asked to stop is not gone before its supervisor says so.
        """
        note = self.attempt_note if self.note.get("attempt") is not None else {}
        ended_in_job = note.get("end") == ENDED and note.get("signal") is None
        return bool(self.outcome) or ended_in_job or (self.holder is not None and self.holder.is_gone())

    @property
    def noted_oom(self) -> bool:
        """Whether its supervisor saw the kernel kill it, or a process of it, for memory."""
        return oom_kills(self.outcome) > 0 and (
            isinstance(self.outcome.get("victim"), dict) or self.outcome.get("signal") == "SIGKILL"
        )


def oom_kills(outcome: dict[str, Any]) -> int:
    """Number of the kernel's OOM kills in the run's cgroup, while it ran."""
    before, after = (at_path(outcome, f"counters_{when}.oom_kill") for when in ("before", "after"))
    return max(0, (integer(after) or 0) - (integer(before) or 0))


def read_evidence(
    folder: Path, submission_of: SubmissionReader, now_s: float, named: PlacesReader = named_places
) -> RunEvidence:
    """The files of a run. Never raises: what is missing or damaged is left out.

    Args:
        folder: the run's folder.
        submission_of: reads a submission of a study by its id, None where it is damaged or gone.
        now_s: Unix time.
        named: reads the places that submissions of a study name, for a run without a place of its own.
    """
    try:
        with atomic_files.reading(folder):
            return _read(folder, submission_of, now_s, named)
    except atomic_files.Unreadable as error:
        return RunEvidence(folder, unreadable=f"{error.path} cannot be read: {error.why}")


def _read(folder: Path, submission_of: SubmissionReader, now_s: float, named: PlacesReader) -> RunEvidence:
    with os.scandir(folder):  # else a folder that cannot be listed looks like one without files
        pass
    run = RunFolder(folder)
    status, outcome = (dict(run.file(name).readable().value) for name in ("status.json", "outcome.json"))
    if status and not status.get("step") and run.checkpoint_step:  # an attempt that has not restored yet
        status["step"] = run.checkpoint_step
    holder = run.holder
    if outcome.get("exit_code") == LEASE_LOST or not _is_of_last_attempt(outcome, status, holder):
        outcome = {}
    head = read_head(run.ring_path) if status.get("state") == "running" and not outcome else None
    silent_s, sampled, unheard_s = _silence(
        status, changed_s(f"{folder}/status.json"), run.ring_path, head and head[1], now_s
    )
    submission, array, place, lost = _newest_place(folder, status, submission_of, named)
    # of a run that is done only the job is shown, which for workers no place names
    is_asked = status.get("state") != "done" or (array is not None and array.takes_any)
    starts = run.file("starts.json").readable().value if place is not None and is_asked else {}
    names = () if status else ("status.json", "jobs.json", "starts.json", "outcome.json", "run.json")
    files = [(name, run.file(name).readable()) for name in names]
    facts = run.file("run.json").readable().value
    supervised = outcome or (head[0] if head is not None else {})
    is_of_attempt = not status or supervised.get("attempt") in (None, status.get("attempt"))
    step = at_path(supervised, "environment.SLURM_STEP_ID") if is_of_attempt else None
    return RunEvidence(
        folder, status, outcome, holder, silent_s, sampled, tuple(mappings(starts.get("starts"))),
        submission, array, place, lost, unheard_s,
        tuple(name for name, file in files if file.state != ABSENT and not file.value),
        "" if step is None else str(step), tuple(codes_of(facts)), _job_ids(status, facts),
    )  # fmt: skip


def _job_ids(status: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Variables of Slurm in status.json, or else those that the same process noted in run.json."""
    attempts = mappings(facts.get("attempts"))[-1:]
    names = ("attempt", "host", "pid")
    noted = [one for one in attempts if status and all(one.get(key) == status.get(key) for key in names)]
    return mapping(status.get("job_ids")) or mapping(noted[0].get("job_ids") if noted else None)


def _newest_place(
    folder: Path, status: dict[str, Any], submission_of: SubmissionReader, named: PlacesReader
) -> tuple[Submission | None, Array | None, Place | None, str | None]:
    """The newest place that can be read, and the id of a newer submission that cannot."""
    known = places(folder)
    if not known and not status:  # its submitter may have died between the two
        known = named(folder.parent).get(folder.name, [])
    for found in reversed(known):
        submission = submission_of(folder.parent, found.submission)
        array = array_of(folder, submission, found) if submission else None
        if array is not None:
            lost = None if found is known[-1] else known[-1].submission
            return submission, array, found, lost
    return None, None, None, known[-1].submission if known else None


def _is_of_last_attempt(outcome: dict[str, Any], status: dict[str, Any], holder: Holder | None) -> bool:
    """Whether outcome.json is of the last attempt.

    It is not, if the last attempt has no supervisor, or if a second process found the lock held and ended
    while the first continues.
    """
    ended, ended_s = integer(outcome.get("attempt")), seconds(outcome.get("ended_s"))
    attempt, beat_s = integer(status.get("attempt")), seconds(status.get("heartbeat_s"))
    if ended is not None and attempt is not None and ended < attempt:
        return False
    if status.get("state") != "running" or outcome.get("host") != status.get("host"):
        return True
    lives = holder is not None and holder.host == os.uname().nodename and not holder.is_gone()
    return not lives and (ended_s is None or beat_s is None or beat_s <= ended_s + 1)


def _silence(
    status: dict[str, Any], written_s: float, ring: Path, sample: Any, now_s: float
) -> tuple[float | None, bool, float | None]:
    """Seconds since the heartbeat, whether the supervisor has just looked, seconds since any sign of life.

    The supervisor's last sample is on the run's own clock. Without one the younger of two ages counts: by
    the heartbeat, unless that is in the future, and by the time that the file server gave the file.
    """
    beat = seconds(status.get("heartbeat_s"))
    if beat is None:
        return None, False, None
    by_files = min((age_s for age_s in (now_s - beat, now_s - written_s) if age_s >= 0), default=0.0)
    looked_s = changed_s(ring)
    if sample is None or not looked_s:
        return by_files, False, by_files
    unheard_s = max(0.0, min(by_files, now_s - looked_s, now_s - sample.time_s))
    sampled = now_s - looked_s < STALLED_AFTER_S
    if sampled and sample.time_s >= beat:
        return sample.time_s - beat, True, unheard_s
    return by_files, sampled, unheard_s
