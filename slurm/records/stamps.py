"""Stamps: which start of a job a file of a run or a row of Slurm belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from experiment_utils.json_values import integer

CLOCKS_APART_S = 30.0
"""Largest difference that is expected between the clocks of two nodes."""


@dataclass(frozen=True)
class Stamp:
    """One start of a job. Records with equal stamps are of the same start."""

    job: str
    """`4242_3` for a task of an array, `4242` for a plain job."""
    restart: int
    """Number of times that the job was requeued before."""


def stamp_of_variables(variables: Mapping[str, Any]) -> Stamp | None:
    """Stamp from Slurm's variables: `job_ids` of status.json and run.json, `environment` of outcome.json."""
    names = ("ARRAY_JOB_ID", "ARRAY_TASK_ID", "JOB_ID")
    array, task, raw = (str(variables.get(f"SLURM_{name}", "")) for name in names)
    count = str(variables.get("SLURM_RESTART_COUNT", "0"))
    if not raw.isdigit() or not count.isdigit() or len(count) > 8:
        return None
    return Stamp(f"{array}_{task}" if array.isdigit() and task.isdigit() else raw, int(count))


def stamp_of_note(note: Mapping[str, Any]) -> Stamp | None:
    """Stamp of an entry of starts.json."""
    job, restart = note.get("job_id"), integer(note.get("restart"))
    return Stamp(job, restart) if isinstance(job, str) and restart is not None else None


def is_before(earlier_s: float | None, later_s: float | None, margin_s: float = CLOCKS_APART_S) -> bool:
    """Whether a moment on one clock was surely before a moment on another; False if one is not known.

    The only comparison of clocks: for records without a stamp, as earlier versions wrote them, for runs of
    this machine, which have none (margin 0), and for a run that ended long before its job.
    """
    return earlier_s is not None and later_s is not None and earlier_s < later_s - margin_s
