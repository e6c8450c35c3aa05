"""The attempts of a run, as run.json, outcome.json and the jobs that started it tell of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiment_utils.quantities import format_duration


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
    for one in _list(folder / "run.json", "attempts"):
        number = one.get("attempt")
        if isinstance(number, int):
            found[number] = Attempt(number, _number(one.get("started_s")), _text(one.get("host")), _job(one))
    for one in _list(folder / "starts.json", "starts"):
        number = one.get("attempt")
        if not isinstance(number, int):
            continue
        before = found.get(number, Attempt(number))
        step = one.get("step_after")
        found[number] = Attempt(
            number,
            before.started_s or _number(one.get("started_s")),
            before.host or _text(one.get("host")),
            _text(one.get("job_id")) or before.job,
            step if isinstance(step, int) else None,
            _text(one.get("reason")).partition(". Why: ")[0] or _text(one.get("state")) or None,
        )
    return [found[number] for number in sorted(found)]


def _job(attempt: dict[str, Any]) -> str | None:
    told = attempt.get("slurm")
    told = told if isinstance(told, dict) else {}
    array, task = _text(told.get("SLURM_ARRAY_JOB_ID")), _text(told.get("SLURM_ARRAY_TASK_ID"))
    return f"{array}_{task}" if array and task else _text(told.get("SLURM_JOB_ID")) or None


def _list(path: Path, key: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8", errors="replace"))[key]
        return [one for one in found if isinstance(one, dict)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
