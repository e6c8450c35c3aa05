"""Configurations as the programs that they are: an ensemble is several runs in one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from conf import Config
from conf.between_keys.ensembles import members_of

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

Place = Callable[[Config], dict[str, Any]]
"""Keyword arguments of `training.plan.run_plan.make_plan` for a configuration."""
Each = TypeVar("Each")


class Programs:
    """The runs of some configurations."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._programs = [members_of(config) for config in configs]
        self.runs = [run for runs in self._programs for run in runs]
        """Runs of all of them, in order."""

    def place(self, place: Place = lambda config: {}) -> Place:
        """`place`, and for each run of an ensemble the number of runs in its program."""
        sizes = {id(run): len(runs) for runs in self._programs for run in runs if len(runs) > 1}

        def with_size(config: Config) -> dict[str, Any]:
            return {**place(config), **({"together": sizes[id(config)]} if id(config) in sizes else {})}

        return with_size

    def folders(self, plans: Sequence[Plan]) -> list[list[Path]]:
        """Folders of the runs of each configuration. plans: of `runs`."""
        return self._by_program(plan.folder for plan in plans if plan.folder is not None)

    def names(self, keys: Iterable[str]) -> dict[str, str]:
        """The name of the first run of its ensemble for each run in one; for a run of two, the first.

        Args:
            keys: A name of each of `runs`.
        """
        found: dict[str, str] = {}
        for own in self._by_program(keys):
            for name in own if len(own) > 1 else ():
                found.setdefault(name, own[0])
        return found

    def _by_program(self, values: Iterable[Each]) -> list[list[Each]]:
        each = iter(values)
        return [list(islice(each, len(runs))) for runs in self._programs]
