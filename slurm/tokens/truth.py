"""What became of each task of a token set, and of their merge: by the rules of runs, in their words.

A task writes no status.json. What it says stands in its log, that it lives in its lock, which the process
beside it touches, and that it is done in what lies on the disk. All of it is put into what the rules of
`slurm.truth` look at.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from data_loading.pretokenizer.block_range import BlockRange, found_tasks, named_block_range
from data_loading.set_files import SetFiles
from experiment_utils import lock_file
from experiment_utils.errors import UserError
from experiment_utils.safe_read import changed_s
from memory import format_bytes
from memory.sacct import Ask
from slurm.finding import set_of
from slurm.in_job.tokens import written_bytes
from slurm.records import SLURM, Array, Submission, submissions
from slurm.submitters import NO_ROOM
from slurm.tokens.script import LOG, MERGE
from slurm.truth.answers import ask_slurm
from slurm.truth.case import Case
from slurm.truth.known import Known, newest_place
from slurm.truth.last_words import tail, telling_line
from slurm.truth.study import Look, Truth, case_of, named_once, submissions_once, truth_of

_LEAST_TOLD_BYTES = 1 << 16
_BEGINS = re.compile(r"\bjob \d+(?:_\d+)?, start \d+")
_SEEN = re.compile(r"(the pretokenizer was ended by \w+)")
_SOURCES = {"done": "the files of the set", "running": "its lock", "stalled": "its lock"}
"""What a run has in status.json a task does not write: its log tells how it ended."""
_FIRST = (
    "oom", "failed", "timeout", "node_failed", "stalled", "preempted", "never_started", "cancelled",
    "blocked", "running", "queued", "done",
)  # fmt: skip


def look_at_tokens(study: Path, *, ask: Ask | None = None, now_s: float | None = None) -> list[Look]:
    """Of each task, in order, and of the merge, which is the last; one squeue and one sacct. Never raises.

    study: `.SET.slurm`, where lies what was submitted.
    """
    now_s = time.time() if now_s is None else now_s
    sent = list(submissions(study))
    files = SetFiles(set_of(study))
    names = task_names(study, sent)
    is_made = bool(sent) and changed_s(files.manifest) >= sent[-1].created_s
    known = [_known(study, name, files, sent, is_made, now_s) for name in names]
    jobs = [one.job for one in known if one.job and one.state != "done"]
    unheard = any(one.array and one.array.is_sent is None and one.state != "done" for one in known)
    users = sorted({one.user for one in sent})
    answers = ask_slurm(jobs, users=users, names=unheard, ask=ask)
    looks = []
    for one in known:
        case = case_of(one, answers, now_s)
        case = replace(case, explain=lambda: None, given=str(files.tokens))
        case = replace(case, last_words=partial(_last_words, one.folder))
        case = _with_own_end(case)
        looks.append(Look(_with_facts(truth_of(case, answers), case, files), case, answers, now_s))
    return [*looks[:-1], _merge(looks)] if looks else []


def token_truths(study: Path, *, ask: Ask | None = None, now_s: float | None = None) -> list[Truth]:
    """Of each task, in order, and of the merge, which is the last."""
    return [look.truth for look in look_at_tokens(study, ask=ask, now_s=now_s)]


def task_names(study: Path, sent: Sequence[Submission] | None = None) -> list[str]:
    """Of all tasks of the newest division, and the merge: as their folders are called."""
    sent = list(submissions(study)) if sent is None else sent
    for submission in reversed(sent):
        for array in submission.arrays:
            for name in (name for task in array.tasks for name in task if name != MERGE):
                tasks = named_block_range(name).tasks
                return [*(BlockRange(task, tasks).folder_name for task in range(tasks)), MERGE]
    return [MERGE] if sent else []


def _known(
    study: Path, name: str, files: SetFiles, sent: Sequence[Submission], is_made: bool, now_s: float
) -> Known:
    folder = study / name
    task = None if name == MERGE else named_block_range(name)
    own = files if task is None else task.files(files.tokens)
    is_done = is_made or (task is not None and task.task in found_tasks(files.tasks).get(task.tasks, set()))
    holder, silent_s = None, None
    status: dict[str, Any] = {"state": "done"} if is_done else {}
    if not is_done:
        try:
            holder = lock_file.read_holder(own.lock, name)
        except (OSError, UserError):
            holder = None
    if holder is not None:
        touched_s = changed_s(own.lock)
        stage = "merge" if task is None else "tokenize"
        status = {"state": "running", "stage": stage, "host": holder.host, "heartbeat_s": touched_s}
        if task is not None and holder.job_id is not None:  # nobody touches the lock of another command
            silent_s = max(0.0, now_s - touched_s)
    submission, array, place, lost = newest_place(folder, status, submissions_once(), named_once(), now_s)
    if submission is None and lost is None:  # each takes all that is missing, as far as there is room
        array = Array(0, "", [[name]], error=NO_ROOM)
    return Known(
        folder, status, {}, holder, silent_s, False, {}, submission, array, place, lost, silent_s
    )  # fmt: skip


def _with_own_end(case: Case) -> Case:
    """Of one whose job has ended, and that had begun: its last words are why."""
    known = case.known
    if known.state is not None or not case.has_ended:
        return case
    text = tail(known.folder / LOG)
    if not text.strip():
        return case
    status = {"state": "failed", "reason": _telling(text), "heartbeat_s": changed_s(known.folder / LOG)}
    return replace(case, known=replace(known, status=status))


def _with_facts(truth: Truth, case: Case, files: SetFiles) -> Truth:
    attempt = None if truth.state == "queued" else _starts(truth.folder / LOG) or len(case.starts) or None
    if truth.state == "running" and truth.name != MERGE:
        size = written_bytes(named_block_range(truth.name).files(files.tokens))
        told = size >= _LEAST_TOLD_BYTES
        reason = f"{truth.reason}; {format_bytes(size)} of tokens so far" if told else truth.reason
        truth = replace(truth, reason=reason)
    return replace(
        truth,
        attempt=attempt,
        launcher=SLURM,
        source=_SOURCES.get(truth.state, LOG) if truth.source == "status.json" else truth.source,
    )


def _starts(log: Path) -> int:
    """Of all its jobs, as they have said: Slurm is not asked of those that are done."""
    try:
        with open(log, encoding="utf-8", errors="replace") as file:
            return sum(1 for line in file if _BEGINS.search(line))
    except OSError:
        return 0


def _merge(looks: Sequence[Look]) -> Look:
    """Slurm takes it away when a task has failed: then that is why."""
    look = looks[-1]
    bad = [one.truth for one in looks[:-1] if not one.truth.is_live and one.truth.state != "done"]
    if look.truth.state not in ("cancelled", "never_started", "blocked") or not bad:
        return look
    names = ", ".join(truth.name for truth in bad[:3]) + (", ..." if len(bad) > 3 else "")
    reason = f"it begins when all tasks are done, and of these are not: {names}. It is submitted with them"
    return replace(look, truth=replace(look.truth, reason=reason))


def worst(looks: Iterable[Look]) -> Look:
    """That of which one wants to know why first."""
    return min(looks, key=lambda look: _FIRST.index(look.truth.state))


def _last_words(folder: Path) -> str | None:
    return _telling(tail(folder / LOG))


def _telling(text: str) -> str | None:
    """Of the last start: what the job itself saw of its end, before what srun says after it."""
    lines = text.splitlines()
    begins = [n for n, line in enumerate(lines) if _BEGINS.search(line)]
    last = lines[begins[-1] + 1 :] if begins else lines
    seen = next((found[1] for line in reversed(last) if (found := _SEEN.search(line))), None)
    return seen or telling_line("\n".join(last)) or telling_line(text)
