"""States of the runs of a study: one look at the files of each run, one squeue and one sacct for all."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from experiment_utils.errors import UserError
from memory.accounting.sacct import Ask, Job, SlurmFacts
from memory.explain import Explanation, explain
from memory.record.evidence import Evidence
from slurm.records.stamps import CLOCKS_APART_S
from slurm.records.submissions import (
    LOCAL,
    SLURM,
    Array,
    Submission,
    named_places,
    read_submission,
    run_folders,
)
from slurm.records.submitter_liveness import launcher_lives, submitter_lives
from slurm.states import ENDED, FROM_SLURM
from slurm.status.done_runs import DoneRuns
from slurm.status.last_words import last_words, words_of_slurm
from slurm.status.run_evidence import RunEvidence, read_evidence
from slurm.status.run_history import RunHistory
from slurm.status.run_state import Progress, RunState, read_progress
from slurm.status.slurm_answers import QueueRow, SlurmAnswers, ask_slurm
from slurm.status.state_table import decide
from slurm.status.timeline import events_of, fold

_SUBMITTED_APART_S = 120.0
"""Slurm's moment of a submission and its submitter's: what sbatch takes, and clocks that are apart."""


@dataclass(frozen=True)
class Look:
    """One run, its state, and all that the state was computed from."""

    entry: RunState
    history: RunHistory
    answers: SlurmAnswers

    @property
    def now_s(self) -> float:
        """Unix time of the look."""
        return self.history.now_s

    @property
    def has_died(self) -> bool:
        """Whether it had begun, and ended as another state than done."""
        known = self.history.evidence
        has_ended = self.entry.state in ENDED and self.entry.state not in ("done", "never_started")
        return has_ended and (known.state is not None or bool(known.outcome))

    @property
    def explained(self) -> Explanation | None:
        """Memory's verdict on how it ended."""
        return self.history.explained


def study_states(
    study: Path,
    *,
    folders: Sequence[Path] | None = None,
    answers: SlurmAnswers | None = None,
    ask: Ask | None = None,
    now_s: float | None = None,
) -> list[RunState]:
    """States of the runs of a study, by name, with at most one squeue and one sacct. Never raises.

    Args:
        study: its folder.
        folders: only these runs.
        answers: Slurm's answers, if it was asked already.
        ask: runs a client of Slurm; tests give recorded answers.
        now_s: Unix time.
    """
    return run_states(
        run_folders(study) if folders is None else folders, answers=answers, ask=ask, now_s=now_s
    )


def state_of_run(folder: Path, *, ask: Ask | None = None) -> RunState:
    """State of one run. Never raises."""
    return run_states([folder], ask=ask)[0]


def look_at(folder: Path, *, ask: Ask | None = None) -> Look:
    """One run with its evidence. Never raises."""
    return _look([folder], None, ask, None, is_whole=True)[0]


def run_states(
    folders: Iterable[Path],
    *,
    answers: SlurmAnswers | None = None,
    ask: Ask | None = None,
    now_s: float | None = None,
) -> list[RunState]:
    """State of each run, of any studies, with at most one squeue and one sacct. Never raises."""
    folders = list(folders)
    done = DoneRuns(folders)
    looked = iter(_look([folder for folder in folders if folder not in done.rows], answers, ask, now_s))
    found = [done.rows[folder] if folder in done.rows else next(looked).entry for folder in folders]
    done.write(found)
    return found


def _look(
    folders: Sequence[Path],
    answers: SlurmAnswers | None,
    ask: Ask | None,
    now_s: float | None,
    is_whole: bool = False,
) -> list[Look]:
    """is_whole: with the starts of runs that are done, which their state does not need."""
    now_s = time.time() if now_s is None else now_s

    @cache
    def submission_of(study: Path, submission_id: str) -> Submission | None:
        try:
            return read_submission(study, submission_id)
        except UserError:
            return None

    named = cache(named_places)
    found = [read_evidence(folder, submission_of, now_s, named) for folder in folders]
    answers = _ask(found, ask) if answers is None else answers
    histories = [history_of(evidence, answers, now_s, is_whole) for evidence in found]
    return [Look(_run_state(history, answers), history, answers) for history in histories]


def _ask(found: Sequence[RunEvidence], ask: Ask | None) -> SlurmAnswers:
    """Ask for the jobs of runs that are not done. A job without a known number is looked up by its name."""
    unfinished = [known for known in found if known.state != "done"]
    jobs = [job for known in unfinished for job in (known.job, known.is_shared and known.own_job) if job]
    sent = [(known.submission, known.array) for known in unfinished if _is_slurm(known)]
    users = {submission.user for submission, array in sent if submission is not None and array is not None}
    by_name = any(array is not None and array.is_sent is None for _, array in sent)
    return ask_slurm(jobs, users=sorted(users), names=by_name, ask=ask)


def history_of(
    evidence: RunEvidence, answers: SlurmAnswers, now_s: float, is_whole: bool = True
) -> RunHistory:
    """The history of a run, from its files and Slurm's answers."""
    array, submission = evidence.array, evidence.submission
    if array is not None and array.is_sent is None and _is_slurm(evidence):
        # its submitter died before sbatch answered
        array = replace(array, job_id=answers.names.get(array.name))
        evidence = replace(evidence, array=array)
    job = _job_of(evidence, answers) or ""
    queue, accounting = answers.row(job), answers.starts(job)
    if array is not None and _is_slurm(evidence) and not _is_renamed(queue, array):
        name = array.name  # a cluster that is set up again counts jobs from 1 again
        queue = queue if queue is None or queue.name in ("", name) else None
        accounting = tuple(start for start in accounting if start.row.name in ("", name))
    is_local = submission is not None and submission.launcher == LOCAL
    starts = fold(
        events_of(evidence, job, queue, accounting) if is_whole or evidence.state != "done" else (),
        job,
        submission.created_s if submission is not None else None,
        0.0 if is_local else CLOCKS_APART_S,
    )
    lives, is_submitted = None, None
    if submission is not None and array is not None:
        lives = launcher_lives(submission, array, now_s) if is_local else None
        is_submitted = submitter_lives(submission) if array.is_sent is None else None
    history = RunHistory(
        evidence=evidence,
        now_s=now_s,
        starts=starts,
        in_queue=answers.queue is not None,
        in_accounting=answers.accounting is not None,
        last_words=partial(last_words, evidence),
        launcher_lives=lives,
        submitter_lives=is_submitted,
        knows_array=array is not None and _knows_array(array, answers),
        notes=answers.notes,
    )
    spoken = history.spoken.accounted if history.spoken and evidence.is_shared else None
    of_run = accounting if spoken is None else (spoken,)  # in other starts steps are of other runs
    return replace(history, explain=partial(_explained, evidence, job, of_run, answers))


def _run_state(history: RunHistory, answers: SlurmAnswers) -> RunState:
    known, queue = history.evidence, history.last.queued
    decision = decide(history)
    waits = decision.state in ("queued", "blocked") and history.job_state == "queued"
    host = (
        known.outcome.get("host") or known.status.get("host") or (known.holder.host if known.holder else None)
    )
    submission = known.submission
    request = {
        "is_shared": known.is_shared or (submission is not None and submission.launcher == LOCAL),
        "as_keys": submission is not None and not submission.command.startswith("sbatch"),
    }
    return RunState(
        folder=known.folder,
        state=decision.state,
        reason=decision.reason,
        rule=decision.rule,
        source=decision.source,
        progress=read_progress(known.folder, known.status, known.outcome, **request)
        if known.status or known.outcome
        else Progress(),
        attempt=known.attempt,
        launcher=known.submission.launcher if known.submission else SLURM if known.job else None,
        submission=known.submission.id if known.submission else None,
        job=history.last.job or None,
        job_name=known.array.name if known.array else None,
        partition=queue.partition if queue else None,
        host=host if isinstance(host, str) else None,
        heartbeat_s=known.heartbeat_s,
        expected_start_s=queue.start_s if waits and queue else None,
        slurm_word=history.job_word,
        slurm_reason=history.queue_reason,
        notes=answers.notes if known.job else (),
        codes=known.codes,
    )


def _is_renamed(queue: QueueRow | None, array: Array) -> bool:
    """Whether the job has another name than it was given, and was submitted when ours was."""
    if queue is None or queue.name in ("", array.name):
        return False
    by_slurm_s, by_us_s = queue.submitted_s, array.submitted_s
    return by_slurm_s is not None and by_us_s is not None and abs(by_slurm_s - by_us_s) < _SUBMITTED_APART_S


def _knows_array(array: Array, answers: SlurmAnswers) -> bool:
    """Whether Slurm knows the array. The last of its tasks to begin has the array's own number."""
    row = answers.row(array.job_id or "")
    names = [start.row.name for start in answers.starts(array.job_id or "")]
    return array.name in names or (row is not None and row.name == array.name)


def _job_of(known: RunEvidence, answers: SlurmAnswers) -> str | None:
    """The job of a run. Of an array of workers any task can run it: the one that did, else one that can."""
    array = known.array
    if array is None or not array.takes_any:
        return known.job
    tasks = [job for task in range(len(array.tasks)) if (job := array.job_of(task)) is not None]
    if known.own_job in tasks:
        return known.own_job
    rows = [row for task in tasks if (row := answers.row(task)) is not None]
    live = [row.job for state in ("running", "queued") for row in rows if FROM_SLURM.get(row.state) == state]
    return live[0] if live else known.job


def _is_slurm(known: RunEvidence) -> bool:
    return known.submission is not None and known.submission.launcher == SLURM


def _explained(known: RunEvidence, job: str, starts: tuple[Job, ...], answers: SlurmAnswers) -> Explanation:
    """Memory's verdict, with lines of the job's stderr if no supervisor saw the end."""
    slurm = SlurmFacts(job, starts, "sacct", **answers.gathering()) if job and starts else None
    is_unseen = known.state == "running" and not known.outcome
    words = words_of_slurm(known, with_oom=not any(start.steps for start in starts)) if is_unseen else ""
    evidence = Evidence(known.folder, added_log=words, added_log_name="its job's stderr" if words else "")
    return explain(evidence, slurm=slurm)
