"""Configurations as the programs that they are: an ensemble is several runs in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.between_keys.ensembles import members_of

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

Place = Callable[[Config], dict[str, Any]]
"""Of a configuration, further arguments of `training.plan.run_plan.make_plan`."""


class Programs:
    """The runs of configurations. runs: of all of them, in order."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._each = [members_of(config) for config in configs]
        self.runs = [run for runs in self._each for run in runs]
        self._sizes = {id(run): len(runs) for runs in self._each for run in runs}

    def place(self, place: Place = lambda config: {}) -> Place:
        """The same, and for a run of an ensemble how many are one program with it."""

        def of(config: Config) -> dict[str, Any]:
            size = self._sizes.get(id(config), 1)
            return {**place(config), **({"together": size} if size > 1 else {})}

        return of

    def folders(self, plans: Sequence[Plan]) -> list[list[Path]]:
        """Of each configuration the folders of its runs. plans: of `runs`."""
        each = iter([plan.folder for plan in plans if plan.folder is not None])
        return [[next(each) for _ in runs] for runs in self._each]

    def names(self, keys: Sequence[str]) -> dict[str, str]:
        """Of each run of an ensemble the name of that, which is its first run's; in two: the first.

        keys: a name of each of `runs`.
        """
        each = iter(keys)
        found: dict[str, str] = {}
        for runs in self._each:
            own = [next(each) for _ in runs]
            for name in own if len(own) > 1 else ():
                found.setdefault(name, own[0])
        return found
