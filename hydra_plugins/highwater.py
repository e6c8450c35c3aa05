"""Hydra's view of slurm/: found by Hydra because it lies in `hydra_plugins`, imported at every command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.plugins.launcher import Launcher


class LocalLauncher(Launcher):
    """`hydra/launcher=local`: processes of this machine, see slurm/submit."""

    def __init__(self, jobs: int = 1, detach: bool = False) -> None:
        self.jobs = jobs

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        self.runs = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[Any]:
        return self.runs.launch(job_overrides, jobs=self.jobs)


class SlurmLauncher(LocalLauncher):
    """`hydra/launcher=slurm`: see slurm/submit."""


class LocalSweeper(BasicSweeper):
    """`hydra/sweeper=local`: every combination, as it was checked before Hydra was asked."""

    def __init__(self, params: Any = None) -> None:
        super().__init__(max_batch_size=None, params=params)

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.runs = task_function

    def sweep(self, arguments: list[str]) -> Any:
        assert self.launcher is not None
        results = self.launcher.launch(self.runs.job_overrides(), initial_job_idx=0)
        self.runs.take(results)
        return [results]


class HalvingSweeper(LocalSweeper):
    """`hydra/sweeper=halving`: see slurm/search."""

    def __init__(
        self,
        samples: Any = None,
        sampling: Any = None,
        seed: Any = None,
        eta: Any = None,
        rungs: Any = None,
        params: Any = None,
    ) -> None:
        super().__init__(params)

    def sweep(self, arguments: list[str]) -> Any:
        from slurm.search.halving import search

        assert self.launcher is not None
        return search(self.runs, self.launcher)
