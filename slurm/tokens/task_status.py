"""State of each task of a token set, by the rules of runs: a job writes status.json for its task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from data_loading.pretokenizer.distributed.task_plan import SetTask, named_task
from data_loading.tokens.set_files import SetFiles
from experiment_utils.safe_read import changed_s
from memory.accounting.sacct import Ask
from slurm.arguments import set_of
from slurm.records.submissions import submissions
from slurm.status.study_status import Look, RunState, look_at, run_states

_WORST_FIRST = (
    "oom", "failed", "timeout", "node_failed", "stalled", "preempted", "never_started", "cancelled",
    "unreadable", "blocked", "running", "queued", "done",
)  # fmt: skip


def token_run_states(study: Path, *, ask: Ask | None = None, now_s: float | None = None) -> list[RunState]:
    """State of each task, in order, with one squeue and one sacct. Never raises.

    Args:
        study: `.SET.slurm`, the folder of what was submitted.
    """
    sent = list(submissions(study))
    names = [array.tasks[0][0] for submission in sent for array in submission.arrays]
    if not names:
        return []
    files, count = SetFiles(set_of(study)), named_task(names[-1]).tasks
    is_made = changed_s(files.manifest) >= sent[-1].created_s
    tasks = [SetTask(number, count) for number in range(count)]
    found = run_states([study / task.folder_name for task in tasks], ask=ask, now_s=now_s)
    return [
        replace(entry, state="done", reason=None, source="the files of the set")
        if is_made or task.files(files.tokens).manifest.exists()
        else entry
        for task, entry in zip(tasks, found, strict=True)
    ]


def look_at_token_task(study: Path, name: str | None) -> Look | None:
    """One task with its evidence; None if the set has none such. name: None: the one in the worst state."""
    found = [entry for entry in token_run_states(study) if name in (None, entry.name)]
    if not found:
        return None
    entry = min(found, key=lambda one: _WORST_FIRST.index(one.state))
    look = look_at(entry.folder)
    return replace(look, entry=entry, history=replace(look.history, explain=lambda: None))
