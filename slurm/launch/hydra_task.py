"""The runs that a request asks for, as Hydra's task function: checked once, however they are started."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.between_keys.rules import Rule
from conf.command_line.request import Request, read_run
from conf.composing.compose import Composer
from slurm.launch.outcome import Outcome
from slurm.launch.work_through import run_one

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

log = logging.getLogger("slurm")


class RunFailed(Exception):
    """Result of a run that is not done, for Hydra's sweepers."""


class RequestedRuns:
    """The runs of a request, and those that a sweeper chooses by the results of earlier ones."""

    folders: list[Path]
    """Folders of all runs that were asked for, in order."""
    outcomes: dict[Path, Outcome]
    """Outcomes of the runs that were waited for and have ended."""
    stopped_with: int | None = None
    """Exit code, if a signal ended a sweep in the foreground."""

    def __init__(
        self,
        request: Request,
        composer: Composer,
        rules: Iterable[Rule],
        *,
        quiet: bool = False,
        command: str = "",
    ) -> None:
        """quiet: only the answer goes to standard output. command: as typed."""
        self.request = request
        self.folders, self.outcomes = [], {}
        self.quiet, self.command = quiet, command
        self._composer = composer
        self._rules = tuple(rules)
        self._checked = {run.overrides: run.config for run in request.runs}

    def __call__(self, composed: Any) -> float:
        """Run one, as Hydra's other launchers ask for it, and return its validation loss.

        Raises:
            RunFailed: it is not done.
        """
        from hydra.core.hydra_config import HydraConfig

        outcome = run_one(self._config(tuple(HydraConfig.get().overrides.task)), quiet=self.quiet)
        self.folders += [] if outcome.folder in self.folders else [outcome.folder]
        self.note(outcome)
        if outcome.val_loss is None:
            raise RunFailed(f"{outcome.folder}: {outcome.reason}")
        return outcome.val_loss

    def job_overrides(self) -> list[list[str]]:
        """The overrides of every run, in order, as they were checked."""
        return [list(run.overrides) for run in self.request.runs]

    def take(self, results: Iterable[JobReturn]) -> None:
        """Raise the error of each result that is not a failed run."""
        from hydra.core.utils import JobStatus

        for result in results:
            error = result._return_value
            if result.status == JobStatus.FAILED and not isinstance(error, RunFailed):
                raise error

    def note(self, outcome: Outcome) -> None:
        """Keep and log the outcome of a run."""
        self.outcomes[outcome.folder] = outcome
        log.info("[%s/%s] %s", len(self.outcomes), len(self.folders), outcome)

    def _config(self, overrides: tuple[str, ...]) -> Config:
        if overrides not in self._checked:
            self._checked[overrides] = read_run(overrides, self._composer, self._rules)
        return self._checked[overrides]

    def _result(self, overrides: Sequence[str], folders: Sequence[Path]) -> JobReturn:
        """Hydra's result, of which sweepers read the final validation loss, the mean for an ensemble.

        None: a run was submitted and has not been waited for. RunFailed: a run is not done.
        """
        from hydra.core.utils import JobReturn, JobStatus

        outcomes = [self.outcomes.get(folder) for folder in folders]
        ended = [outcome for outcome in outcomes if outcome is not None]
        failed = next((outcome for outcome in ended if outcome.val_loss is None), None)
        value: float | RunFailed | None = None
        if failed is not None:
            value = RunFailed(f"{failed.folder}: {failed.state}: {failed.reason}")
        elif len(ended) == len(outcomes):
            value = sum(outcome.val_loss or 0.0 for outcome in ended) / len(ended)
        return JobReturn(
            overrides=list(overrides),
            working_dir=str(folders[0]),
            task_name="experiments",
            status=JobStatus.FAILED if failed is not None else JobStatus.COMPLETED,
            _return_value=value,
        )
