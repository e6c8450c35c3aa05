"""A part of the user's as its source describes it, and where a configuration chooses it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conf.schema_key import Key

KINDS = (
    "model", "arch_option", "optimizer", "schedule", "dataset", "tokenizer", "metric", "callback", "step",
    "analysis",
)  # fmt: skip
"""What can be registered: `highwater.register.KIND`."""

CHOSEN_AT = {
    "model": "arch.family",
    "optimizer": "optimizer.name",
    "schedule": "schedule.name",
    "dataset": "dataset.source",
    "tokenizer": "tokenizer.name",
    "step": "training.step",
}
"""Config path whose value is the name of the part in use."""

LISTED_AT = {"metric": "logging.metrics", "callback": "training.callbacks"}
"""Config path whose value is a list of the parts in use. They change no loss: not in a run's identity."""

ARCH_OPTIONS = ("activation", "norm", "positions")
"""Keys of `arch` that take code of the user's: `register.arch_option("activation", NAME)`."""

OPTION_GROUPS = {
    "model": "arch", "optimizer": "optimizer", "schedule": "schedule", "dataset": "dataset",
    "tokenizer": "tokenizer",
}  # fmt: skip
"""Config group in which the part is an option: `optimizer=NAME`."""


@dataclass(frozen=True)
class Part:
    """A registration that was read from the source of a plugin."""

    kind: str
    """One of KINDS."""
    name: str
    """Name by which a configuration chooses it."""
    plugin: str
    """The plugin as it is recorded in config.yaml: an absolute path, or the name of a module."""
    file: Path
    """File of the registration."""
    line: int
    """Line of the registration in `file`, from 1."""
    options: tuple[Key, ...] = ()
    """Its options, as keys `own.NAME.OPTION`."""
    arch_key: str = ""
    """For an arch_option: the key of `arch` whose value it is."""

    @property
    def place(self) -> str:
        """`FILE:LINE`, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def chosen_at(self) -> str:
        """Config path that chooses it, or that lists it; empty for an analysis."""
        if self.kind == "arch_option":
            return f"arch.{self.arch_key}"
        return CHOSEN_AT.get(self.kind) or LISTED_AT.get(self.kind, "")

    @property
    def typed_as(self) -> str:
        """Override that chooses it: `arch=mixer`, `training.callbacks=[probe]`."""
        if self.kind in OPTION_GROUPS:
            return f"{OPTION_GROUPS[self.kind]}={self.name}"
        return (
            f"{self.chosen_at}=[{self.name}]" if self.kind in LISTED_AT else f"{self.chosen_at}={self.name}"
        )
