"""The attempts of a run, from run.json and starts.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiment_utils.json_values import finite, integer, mapping, mappings, text
from experiment_utils.quantities import format_duration
from experiment_utils.run_folder import RunFolder
from slurm.records.stamps import stamp_of_variables


@dataclass(frozen=True)
class Attempt:
    """One attempt of a run."""

    number: int
    """From 1."""
    started_s: float | None = None
    """Unix time."""
    host: str = ""
    job: str | None = None
    """`4242_3` for a task of an array, `4242` for a plain job."""
    step: int | None = None
    """Step of the newest checkpoint at its end."""
    end: str | None = None
    """The reason why it ended; None if that is not known."""

    def line(self, now_s: float) -> str:
        """`attempt 2  on n1, job 4242_3, began 5 min ago, came to step 400: stopped by SIGUSR2`."""
        where = [f"on {self.host}" if self.host else "", f"job {self.job}" if self.job else ""]
        if self.started_s:
            where.append(f"began {format_duration(max(0.0, now_s - self.started_s))} ago")
        if self.step is not None:
            where.append(
                f"came to the checkpoint of step {self.step:,}" if self.step else "left no checkpoint"
            )
        facts = ", ".join(part for part in where if part)
        return f"attempt {self.number}  {facts}" + (f": {self.end}" if self.end else "")


def read_attempts(folder: Path) -> list[Attempt]:
    """The attempts of a run, oldest first. Never raises: what is damaged or missing is left out."""
    found: dict[int, Attempt] = {}
    run = RunFolder(folder)
    for one in run.attempts:
        if (number := integer(one.get("attempt"))) is not None:
            stamp = stamp_of_variables(mapping(one.get("job_ids")))
            found[number] = Attempt(
                number, finite(one.get("started_s")), text(one.get("host")), stamp.job if stamp else None
            )
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
