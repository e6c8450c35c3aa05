"""The attempts of a run, as run.json, outcome.json and the jobs that started it tell of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_utils.json_values import finite, integer, mapping, mappings, text
from experiment_utils.quantities import format_duration
from experiment_utils.run_folder import RunFolder


@dataclass(frozen=True)
class Attempt:
    """number: from 1. started_s: Unix time. job: as Slurm writes it. step: optimizer steps at its end, of the
    newest checkpoint. end: how it ended, in words, None where that is not known.
    """

    number: int
    started_s: float | None = None
    host: str = ""
    job: str | None = None
    step: int | None = None
    end: str | None = None

    def line(self, now_s: float) -> str:
        """`attempt 2  on n1, job 4242_3, began 5 min ago, came to step 400: stopped by SIGUSR2`."""
        where = [f"on {self.host}" if self.host else "", f"job {self.job}" if self.job else ""]
        if self.started_s:
            where.append(f"began {format_duration(max(0.0, now_s - self.started_s))} ago")
        if self.step is not None:
            where.append(
                f"came to the checkpoint of step {self.step:,}" if self.step else "left no checkpoint"
            )
        told = ", ".join(part for part in where if part)
        return f"attempt {self.number}  {told}" + (f": {self.end}" if self.end else "")


def read_attempts(folder: Path) -> list[Attempt]:
    """Oldest first. Never raises: what is damaged or missing is left out."""
    found: dict[int, Attempt] = {}
    run = RunFolder(folder)
    for one in run.attempts:
        if (number := integer(one.get("attempt"))) is not None:
            found[number] = Attempt(number, finite(one.get("started_s")), text(one.get("host")), _job(one))
    for one in mappings(run.file("starts.json").value.get("starts")):
        if (number := integer(one.get("attempt"))) is None:
            continue
        before = found.get(number, Attempt(number))
        found[number] = Attempt(
            number,
            before.started_s or finite(one.get("started_s")),
            before.host or text(one.get("host")),
            text(one.get("job_id")) or before.job,
            integer(one.get("step_after")),
            text(one.get("reason")).partition(". Why: ")[0] or text(one.get("state")) or None,
        )
    return [found[number] for number in sorted(found)]


def _job(attempt: dict[str, Any]) -> str | None:
    job = mapping(attempt.get("slurm"))
    array, task = text(job.get("SLURM_ARRAY_JOB_ID")), text(job.get("SLURM_ARRAY_TASK_ID"))
    return f"{array}_{task}" if array and task else text(job.get("SLURM_JOB_ID")) or None
