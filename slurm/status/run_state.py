"""The state of a run, and what is shown with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm.status.progress import Progress
from training.attempt.made_by import Code


@dataclass(frozen=True)
class RunState:
    """The state of a run, and what is shown with it."""

    folder: Path
    state: str
    """One of `slurm.states.STATES`."""
    reason: str | None
    """Why it is not `done`: one line."""
    rule: str
    """Name of the row of `slurm.status.state_table` that applied."""
    source: str
    """The record that the state is known from."""
    progress: Progress = field(default_factory=Progress)
    attempt: int | None = None
    """Number of attempts that have begun."""
    launcher: str | None = None
    submission: str | None = None
    job: str | None = None
    """`4242_3` for a task of an array, `4242` for a plain job."""
    job_name: str | None = None
    partition: str | None = None
    host: str | None = None
    heartbeat_s: float | None = None
    expected_start_s: float | None = None
    """Unix time at which Slurm expects to start a job that waits."""
    slurm_word: str = ""
    slurm_reason: str = ""
    notes: tuple[str, ...] = ()
    """Sources that did not answer, and why."""
    codes: tuple[Code | None, ...] = ()
    """The code of each attempt, None if it was not recorded."""

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.folder.name

    @property
    def is_live(self) -> bool:
        """Whether it runs, or will run without a new submission."""
        return self.state in ("queued", "running", "stalled")

    @property
    def eta_s(self) -> float | None:
        """Seconds until its last step; None unless the run is known to make steps."""
        return self.progress.eta_s if self.rule == "runs" else None

    def to_json(self) -> dict[str, Any]:
        """Plain values; keys are added, never renamed."""
        plain = {name: value for name, value in vars(self).items() if name not in ("progress", "codes")}
        return {
            "version": 1, "run": self.name, **plain, "folder": str(self.folder), **vars(self.progress),
            "share": self.progress.share, "eta_s": self.eta_s,
        }  # fmt: skip
