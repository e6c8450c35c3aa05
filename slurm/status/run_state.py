"""The state of a run, its steps, speed and highest memory, from a few small reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiment_utils.json_values import integer
from experiment_utils.metrics_file import Tail
from experiment_utils.run_folder import RunFolder
from memory.estimate.efficiency import Efficiency, efficiency_of
from memory.record.ring import Peak, read_head, read_peak
from training.attempt.made_by import Code

_COLUMNS = ("step", "tokens", "seconds", "tokens_per_s")


@dataclass(frozen=True)
class Progress:
    """Progress of a run; None is not known."""

    step: int | None = None
    """Optimizer steps done."""
    total_steps: int | None = None
    tokens_per_s: float | None = None
    """Mean of the last rows of metrics.csv."""
    seconds_per_step: float | None = None
    peak_bytes: int | None = None
    """The run's memory at its highest."""
    limit_bytes: int | None = None
    """None without a limit."""
    gpu_percent: float | None = None
    """Share of the time in which a kernel ran on its GPU: now, or of the attempt that has ended."""
    gpu_watts: float | None = None
    efficiency: dict[str, Any] | None = None
    """Fields of an `Efficiency`, once its last attempt has ended."""

    @property
    def share(self) -> float | None:
        """Share of the steps that is done: 0 to 1."""
        if self.step is None or not self.total_steps:
            return None
        return min(1.0, max(0.0, self.step / self.total_steps))

    @property
    def eta_s(self) -> float | None:
        """Seconds until the last step, at the speed of the last rows; None if not known."""
        if self.step is None or not self.total_steps or self.seconds_per_step is None:
            return None
        return max(0, self.total_steps - self.step) * self.seconds_per_step


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
    def efficiency(self) -> Efficiency | None:
        """Request and use of its last attempt if it is done. Another run does not show what it needs."""
        plain = self.progress.efficiency
        return None if plain is None or self.state != "done" else Efficiency.of_json(plain)

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


def read_progress(folder: Path, status: dict[str, Any], outcome: dict[str, Any], **request: bool) -> Progress:
    """Progress by metrics.csv, memory.ring, status.json and outcome.json. Never raises.

    Args:
        request: keywords of `efficiency_of`.
    """
    tokens_per_s, seconds_per_step = _pace(RunFolder(folder).metrics_tail)
    highest = Peak(
        u_bytes=integer(outcome.get("peak_unreclaimable_bytes")),
        limit_bytes=integer(outcome.get("limit_bytes")),
        own_bytes=integer(outcome.get("peak_own_bytes")),
        limit_at=outcome.get("limit_at"),
    )
    efficiency = efficiency_of(outcome, **request)
    gpu = (None, None) if efficiency is None else (efficiency.gpu_percent, efficiency.gpu_watts)
    if highest.u_bytes is None:
        highest, gpu = read_peak(folder / "memory.ring"), _gpu_now(folder)
    return Progress(
        integer(status.get("step")), integer(status.get("total_steps")), tokens_per_s, seconds_per_step,
        highest.run_bytes, highest.limit_bytes, *gpu, None if efficiency is None else vars(efficiency),
    )  # fmt: skip


def _gpu_now(folder: Path) -> tuple[float | None, float | None]:
    """Percent busy and watts of the newest sample."""
    _, newest = read_head(folder / "memory.ring") or ({}, None)
    if newest is None:
        return None, None
    power = newest.gpu_power_mw
    return newest.gpu_busy_percent, None if power is None else power / 1000


def _pace(tail: Tail) -> tuple[float | None, float | None]:
    """(tokens a second, seconds a step) of the last rows; seconds count through all attempts."""
    first, last = tail.first(_COLUMNS), tail.last(_COLUMNS)
    if first is None or last is None:
        return None, None
    if last["step"] == first["step"]:
        return last["tokens_per_s"], None
    passed_s, steps = last["seconds"] - first["seconds"], last["step"] - first["step"]
    if passed_s <= 0 or steps <= 0:
        return None, None
    return (last["tokens"] - first["tokens"]) / passed_s, passed_s / steps
