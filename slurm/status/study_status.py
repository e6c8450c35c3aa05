"""States of the runs of a study: one look at the files of each, one squeue and one sacct for all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from experiment_utils.errors import UserError
from memory.accounting.sacct import Ask, Job, SlurmFacts
from memory.explain import Explanation, explain
from memory.record.evidence import Evidence
from slurm.records.submissions import (
    SLURM,
    Array,
    Place,
    Submission,
    named_places,
    read_submission,
    run_folders,
)
from slurm.records.submitter_liveness import launcher_lives, submitter_lives, waiter_lives
from slurm.states import FROM_SLURM
from slurm.status.case import Case
from slurm.status.judge import judge
from slurm.status.last_words import cut_off_words, last_words, oom_words
from slurm.status.progress import Progress, read_progress
from slurm.status.run_evidence import Known, read_known
from slurm.status.slurm_answers import QueueRow, SlurmAnswers, ask_slurm
from training.attempt.made_by import Code

_SUBMITTED_APART_S = 120.0
"""Slurm's moment of a submission and its submitter's: what sbatch takes, and clocks that are apart."""


@dataclass(frozen=True)
class RunState:
    """What became of a run.

    state: of `slurm.states.STATES`. reason: why it is not `done`, in words. rule: the line of PRECEDENCE that
    applied; source: the evidence it stands on. job: as Slurm writes it. attempt: how many have begun. host:
    where it is or was. expected_start_s: Unix time, of a job that waits. notes: what could not be had.
    codes: the code of each attempt, None if it was not recorded.
    """

    folder: Path
    state: str
    reason: str | None
    rule: str
    source: str
    progress: Progress = field(default_factory=Progress)
    attempt: int | None = None
    launcher: str | None = None
    submission: str | None = None
    job: str | None = None
    job_name: str | None = None
    partition: str | None = None
    host: str | None = None
    heartbeat_s: float | None = None
    expected_start_s: float | None = None
    slurm_word: str = ""
    slurm_reason: str = ""
    notes: tuple[str, ...] = ()
    codes: tuple[Code | None, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_live(self) -> bool:
        """It runs, or will by itself."""
        return self.state in ("queued", "running", "stalled")

    @property
    def eta_s(self) -> float | None:
        """Seconds until its last step; None of one that does not go on, also while its job ends."""
        return self.progress.eta_s if self.state == "running" and self.rule == "lives" else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; keys are added, never renamed."""
        plain = asdict(replace(self, codes=()))
        del plain["codes"]  # `study_json` names them
        progress = plain.pop("progress")
        return {
            "version": 1, "run": self.name, **plain, "folder": str(self.folder), **progress,
            "share": self.progress.share, "eta_s": self.eta_s,
        }  # fmt: skip


def study_states(
    study: Path,
    *,
    folders: Sequence[Path] | None = None,
    answers: SlurmAnswers | None = None,
    ask: Ask | None = None,
    now_s: float | None = None,
) -> list[RunState]:
    """Of every run of a study, by name; at most one squeue and one sacct are asked. Never raises.

    Args:
        study: its folder.
        folders: of these runs alone.
        answers: what Slurm said, where it was asked already.
        ask: runs a client of Slurm; tests hand in recorded answers.
        now_s: Unix time.
    """
    return run_states(
        run_folders(study) if folders is None else folders, answers=answers, ask=ask, now_s=now_s
    )


def state_of_run(folder: Path, *, ask: Ask | None = None) -> RunState:
    """Of one run."""
    return run_states([folder], ask=ask)[0]


@dataclass(frozen=True)
class Look:
    """One run, its entry and all that it was found from."""

    entry: RunState
    case: Case
    answers: SlurmAnswers
    now_s: float

    @property
    def has_died(self) -> bool:
        """It ended, not as done, having run."""
        return self.entry.state in (
            "failed",
            "oom",
            "timeout",
            "preempted",
            "cancelled",
            "node_failed",
        ) and (self.case.known.state is not None or bool(self.case.known.outcome))

    @property
    def explained(self) -> Explanation | None:
        """Memory's word for it."""
        return self.case.explained


def look_at(folder: Path, *, ask: Ask | None = None, now_s: float | None = None) -> Look:
    """One run with its evidence. Never raises."""
    now_s = time.time() if now_s is None else now_s
    known = read_known(folder, submissions_once(), now_s, named_once())
    answers = _ask([known], ask)
    case = case_of(known, answers, now_s)
    return Look(run_state_of(case, answers), case, answers, now_s)


def run_states(
    folders: Iterable[Path],
    *,
    answers: SlurmAnswers | None = None,
    ask: Ask | None = None,
    now_s: float | None = None,
) -> list[RunState]:
    """Of these runs, of whatever studies, in their order."""
    now_s = time.time() if now_s is None else now_s
    submission_of, named = submissions_once(), named_once()
    found = [read_known(folder, submission_of, now_s, named) for folder in folders]
    if answers is None:
        answers = _ask(found, ask)
    return [run_state_of(case_of(known, answers, now_s), answers) for known in found]


def _ask(found: Sequence[Known], ask: Ask | None) -> SlurmAnswers:
    """Of the jobs of those that are not done; what was submitted and has no number is looked up by name."""
    open_ones = [known for known in found if known.state != "done"]
    jobs = [known.job for known in open_ones if known.job]
    unknown = any(k.array and not k.array.job_id and not k.array.error and _is_slurm(k) for k in open_ones)
    users = {k.submission.user for k in open_ones if k.submission is not None and _is_slurm(k)}
    return ask_slurm(jobs, users=sorted(users), names=unknown, ask=ask)


def case_of(known: Known, answers: SlurmAnswers, now_s: float) -> Case:
    known = _with_number(known, answers)
    job = _job_of(known, answers)
    queue = answers.row(job) if job else None
    starts = answers.starts(job) if job else ()
    if known.array is not None and not _was_renamed(queue, known.array):
        name = known.array.name  # numbers begin anew where a cluster was set up again
        queue = queue if queue is None or queue.name in ("", name) else None
        starts = tuple(start for start in starts if start.row.name in ("", name))
    case = Case(
        known=known,
        now_s=now_s,
        queue=queue,
        starts=starts,
        in_queue=answers.queue is not None,
        in_accounting=answers.accounting is not None,
        source=answers.source,
        last_words=partial(last_words, known),
        launcher_lives=_launcher_lives(known, now_s),
        submitter_lives=_submitter_lives(known),
        waiter_lives=False if known.array is None else waiter_lives(known.array),
        knows_array=_knows_array(known, answers),
        notes=answers.notes,
    )
    is_shared = known.array is not None and known.array.how in ("pack", "workers")
    own = (case.own_start,) if is_shared and case.own_start else starts  # in others steps are of other runs
    return replace(case, explain=partial(_explained, known, job, own, answers))


def run_state_of(case: Case, answers: SlurmAnswers) -> RunState:
    known, queue = case.known, case.queue
    verdict = judge(case)
    waits = verdict.state in ("queued", "blocked") and case.stands == "queued"
    host = (
        known.outcome.get("host") or known.status.get("host") or (known.holder.host if known.holder else None)
    )
    return RunState(
        folder=known.folder,
        state=verdict.state,
        reason=verdict.reason,
        rule=verdict.rule,
        source=verdict.source,
        progress=read_progress(known.folder, known.status, known.outcome),
        attempt=known.attempt,
        launcher=known.submission.launcher if known.submission else SLURM if known.job else None,
        submission=known.submission.id if known.submission else None,
        job=_job_of(known, answers),
        job_name=known.array.name if known.array else None,
        partition=queue.partition if queue else None,
        host=host if isinstance(host, str) else None,
        heartbeat_s=known.heartbeat_s,
        expected_start_s=queue.start_s if waits and queue else None,
        slurm_word=case.word,
        slurm_reason=(queue.reason if queue else case.row.reason if case.row else ""),
        notes=answers.notes if known.job else (),
        codes=known.codes,
    )


def submissions_once() -> Callable[[Path, str], Submission | None]:
    """Reads each once."""
    read: dict[tuple[Path, str], Submission | None] = {}

    def submission_of(study: Path, submission_id: str) -> Submission | None:
        if (study, submission_id) not in read:
            try:
                read[study, submission_id] = read_submission(study, submission_id)
            except UserError:
                read[study, submission_id] = None
        return read[study, submission_id]

    return submission_of


def named_once() -> Callable[[Path], dict[str, list[Place]]]:
    """Reads each study once."""
    read: dict[Path, dict[str, list[Place]]] = {}

    def named(study: Path) -> dict[str, list[Place]]:
        if study not in read:
            read[study] = named_places(study)
        return read[study]

    return named


def _with_number(known: Known, answers: SlurmAnswers) -> Known:
    """Of an array whose submitter died before it wrote the number down: squeue knows its name."""
    array = known.array
    if array is None or array.job_id or array.error or not _is_slurm(known):
        return known
    number = answers.names.get(array.name)
    if number is None:
        return known
    return replace(known, array=replace(array, job_id=number))


def _was_renamed(queue: QueueRow | None, array: Array) -> bool:
    """Another name than it was given, and submitted when ours was: a site, or somebody, has renamed it."""
    if queue is None or queue.name in ("", array.name):
        return False
    told, ours = queue.submitted_s, array.submitted_s
    return told is not None and ours is not None and abs(told - ours) < _SUBMITTED_APART_S


def _knows_array(known: Known, answers: SlurmAnswers) -> bool:
    """The last of its tasks to begin has the array's own number."""
    number = known.array.job_id if known.array is not None else None
    if number is None or known.array is None:
        return False
    row = answers.row(number)
    names = [start.row.name for start in answers.starts(number)] + ([row.name] if row is not None else [])
    return known.array.name in names


def _job_of(known: Known, answers: SlurmAnswers) -> str | None:
    """Of an array of workers any task may take the run: the one that did, else one that still may."""
    array = known.array
    if array is None or array.how != "workers":
        return known.job
    if array.job_id is None:
        return None
    tasks = [job for task in range(len(array.tasks)) if (job := array.job_of(task)) is not None]
    if known.own_job in tasks:
        return known.own_job
    rows = [row for task in tasks if (row := answers.row(task)) is not None]
    for state in ("running", "queued"):
        found = next((row.job for row in rows if FROM_SLURM.get(row.state) == state), None)
        if found is not None:
            return found
    return known.job


def _is_slurm(known: Known) -> bool:
    return known.submission is not None and known.submission.launcher == SLURM


def _explained(known: Known, job: str | None, starts: tuple[Job, ...], answers: SlurmAnswers) -> Explanation:
    """Where neither a supervisor nor a row of its step tells of a kill for memory, its job's stderr may; of a
    node that went away srun alone tells, where the node came back at once, and of a poll of RSS slurmd.
    """
    slurm = SlurmFacts(job, starts, answers.source, **answers.gathering()) if job and starts else None
    is_told = bool(known.outcome) or any(start.steps for start in starts)
    is_cut_off = known.state == "running" and not known.outcome
    words = cut_off_words(known) if is_cut_off else ""
    words = words or ("" if is_told else oom_words(known))
    evidence = Evidence(known.folder, added_log=words, added_log_name="its job's stderr" if words else "")
    return explain(evidence, slurm=slurm)


def _launcher_lives(known: Known, now_s: float) -> bool | None:
    if known.submission is None or known.array is None or _is_slurm(known):
        return None
    return launcher_lives(known.submission, known.array, now_s)


def _submitter_lives(known: Known) -> bool | None:
    array = known.array
    if known.submission is None or array is None or array.is_sent is not None:
        return None
    return submitter_lives(known.submission)
