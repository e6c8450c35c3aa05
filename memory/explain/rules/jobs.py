"""A job that has not ended, and tasks of an array: what is told is one of several."""

from __future__ import annotations

from collections.abc import Iterator

from memory.explain.facts import Facts
from memory.explain.finding import Finding
from memory.sacct import Row

_WORDS = {
    "PENDING": "it waits in the queue",
    "REQUEUED": "it waits in the queue again",
    "REQUEUE_HOLD": "it is held in the queue",
    "REQUEUE_FED": "it waits in the queue of its federation",
    "SPECIAL_EXIT": "it is held in the queue",
    "RESIZING": "it changes its size",
    "CONFIGURING": "its nodes are being made ready",
    "RUNNING": "it is running",
    "COMPLETING": "it is ending",
    "STAGE_OUT": "its files are being moved out",
    "SUSPENDED": "it is suspended: it keeps its memory and does not go on",
    "STOPPED": "it is stopped: it keeps its memory and does not go on",
    "SIGNALING": "it is being sent a signal",
}
"""Of states in which a job is not over (squeue(1), JOB STATE CODES)."""
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING")
_MOST_TASKS = 6
NOT_OVER = "not_over"
"""The rule's name."""


def not_over(facts: Facts) -> Iterator[Finding]:
    """Slurm says that it waits, or runs, and nothing of the run itself says more."""
    job = facts.slurm.job if facts.slurm else None
    if job is None or job.row.state not in _WORDS or facts.outcome or facts.samples or facts.status:
        return
    row = job.row
    told = _WORDS[row.state]
    reason = f" ({row.reason})" if row.reason else ""
    if row.elapsed_s:
        limit = f" of {row.timelimit_s:.0f}" if row.timelimit_s else ""
        told += f", for {row.elapsed_s:.0f}{limit} s so far"
    where = f" on {row.nodes}" if row.nodes else ""
    yield Finding(
        rule=NOT_OVER,
        says=f"Job {row.job} is {row.state}{reason}: {told}{where}",
        confidence="likely",
        verdict="healthy",
        cause="none",
        evidence=(f"{row}{reason} ({facts.slurm.source if facts.slurm else ''})",),
    )


def one_of_several(facts: Facts) -> Iterator[Finding]:
    """An array or a job of several components was asked for: which of them this is, how the others ended."""
    if facts.slurm is None or facts.slurm.job is None or len(facts.slurm.last_starts) < 2:
        return
    told = facts.slurm.job.row
    rows = [job.row for job in facts.slurm.last_starts]
    if told.job == facts.slurm.job_id:
        return
    yield Finding(
        rule="one_of_several",
        says=f"{facts.slurm.job_id} has {len(rows)} tasks; this is {told.job}",
        confidence="certain",
        evidence=(
            f"{told.job} is told of, of {len(rows)}: {_listed(rows)} ({facts.slurm.source}); "
            f"another: --job {next(row.job for row in rows if row.job != told.job)}",
        ),
    )


def waits(facts: Facts) -> bool:
    """In the queue, by accounting."""
    job = facts.slurm.job if facts.slurm else None
    return job is not None and job.row.state in _WAITING


def _listed(rows: list[Row]) -> str:
    shown = [f"{row.job} {row.state}" for row in rows[:_MOST_TASKS]]
    return ", ".join(shown) + (f" and {len(rows) - _MOST_TASKS} more" if len(rows) > _MOST_TASKS else "")
