"""One run as a row: its values, its configuration, and where its curve is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiment_utils.json_values import finite, is_number
from training.attempt.made_by import Code

ALIASES = {"time": "seconds", "N": "non_embedding", "D": "tokens", "n": "non_embedding", "d": "tokens"}
"""Other names that columns of our runs can be given by."""

GOING_ON = ("running", "queued", "stalled")
"""States of runs that can still finish."""

OF_ITSELF = ("run", "state", "reason", "folder")
"""Columns that are no values of a run."""


@dataclass(frozen=True)
class Run:
    """One run of ours or of another program."""

    name: str
    folder: Path
    """Its run folder; of another program the file or folder with its curve, `FILE:ROW`, or `FILE:PART`."""
    state: str | None
    """State as `python -m slurm status` shows it; None for a run of another program that finished."""
    reason: str | None
    values: Mapping[str, Any]
    """Column to value."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Dotted path to value."""
    damage: tuple[str, ...] = ()
    """A line for each file that is not whole."""
    is_ours: bool = True
    codes: tuple[Code | None, ...] = ()
    """Code of each attempt, None if it was not recorded."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Registered metrics of a run of ours: column to unit."""
    is_row: bool = False
    """Row of a table of another program: it has values and no curve."""
    file: Path | None = None
    """File or folder with the curve of a run of another program."""
    part: str = ""
    """Which run of that file, if it has several."""

    def value(self, column: str) -> Any:
        """Value of a column or of a path of its configuration, None if the run lacks it."""
        name = ALIASES.get(column, column) if self.is_ours else column
        if name in self.values:
            return self.values[name]
        if name in OF_ITSELF:
            return (
                str(self.folder) if name == "folder" else self.name if name == "run" else getattr(self, name)
            )
        return self.config.get(name)

    def number(self, column: str) -> float | None:
        """Value as a float, which can be nan; None if it is no number."""
        value = self.value(column)
        return float(value) if is_number(value) else None

    @property
    def has_diverged(self) -> bool:
        """Whether the last loss of a run of ours is not finite."""
        return self.is_ours and bool(self.values.get("diverged"))

    @property
    def counts(self) -> bool:
        """Whether its losses are those of a finished run."""
        return self.state in ("done", None) and not self.has_diverged

    @property
    def curve_file(self) -> Path:
        """File with its curve; a folder for some runs of other programs."""
        return self.folder / "metrics.csv" if self.is_ours else self.file or self.folder

    @property
    def why_not(self) -> str:
        """Reason that it does not count: `oom at 1.2M tokens: ...`."""
        if self.has_diverged and self.state in ("done", "failed", None):
            return "its loss is not finite"
        tokens = self.value("tokens")
        at = f" at {tokens:,.0f} tokens" if finite(tokens) is not None else ""
        return f"{self.state}{at}" + (f": {self.reason}" if self.reason else "")
