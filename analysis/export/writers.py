"""Which writer a name means. No package of another program is loaded before one is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from analysis.export.run_facts import RunFacts
from analysis.export.series import Point
from conf.between_keys.logging_rules import PACKAGES, install_words, is_missing
from experiment_utils.errors import UserError
from experiment_utils.extras import PACKAGE_MISSING

TARGETS = ("csv", "tensorboard", "wandb")


class Writer(Protocol):
    """The destination of the series of one run. after: the last step that it has, or 0."""

    after: int

    @property
    def destination(self) -> str:
        """The place, for a person."""

    def add(self, points: Iterable[Point]) -> int:
        """Returns how many points there were."""

    def end(self, state: str | None, results: Mapping[str, Any]) -> None:
        """Nothing more comes; the run ended so, or `running`: it still goes on."""


def check_installed(to: str) -> None:
    """Raises UserError where it needs a package that is not there, with the command that installs it."""
    if is_missing(to):
        raise UserError(
            f"--to {to} needs the package {PACKAGES[to]}: {install_words(to)}. --to csv needs none",
            code=PACKAGE_MISSING,
        )


def open_live(to: str, facts: RunFacts, place: Path, project: str | None = None) -> Writer:
    """The writer of a run that goes on, in this folder.

    Raises:
        UserError: it needs a package that is not there, or W&B refuses.
        OSError: it cannot be written.
    """
    check_installed(to)
    if to == "csv":
        from analysis.export.tidy import TidyFile

        return TidyFile(facts, place)
    if to == "tensorboard":
        from analysis.export.tensorboard import EventFile

        return EventFile(facts, place)
    from analysis.export.wandb import WandbRun

    return WandbRun(facts, place, project)
