"""What Hydra knows as its task function: the checked runs of a request, however they are started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.compose import Composer
from conf.request import Request, read_run
from conf.rules import Rule

if TYPE_CHECKING:
    from pathlib import Path

    from hydra.core.utils import JobReturn


class RunFailed(Exception):
    """What Hydra's other parts meet in place of a failed run's result."""


class RequestedRuns:
    """The runs of a request, and those that a sweeper chooses as it goes, each checked once.

    quiet: nothing but the answer goes to standard output.
    """

    def __init__(
        self, request: Request, composer: Composer, rules: Iterable[Rule], *, quiet: bool = False
    ) -> None:
        self.request = request
        self._composer = composer
        self._rules = tuple(rules)
        self._checked = {run.overrides: run.config for run in request.runs}
        self._quiet = quiet

    def __call__(self, composed: Any) -> Any:
        """Hydra's other launchers run one run by this."""
        raise NotImplementedError

    def job_overrides(self) -> list[list[str]]:
        """The overrides of every run, in order, as they were checked."""
        return [list(run.overrides) for run in self.request.runs]

    def take(self, results: Iterable[JobReturn]) -> None:
        """Look through what a launcher returned: failed runs are known, any other error is raised."""
        from hydra.core.utils import JobStatus

        for result in results:
            error = result._return_value
            if result.status == JobStatus.FAILED and not isinstance(error, RunFailed):
                raise error

    def _config(self, overrides: tuple[str, ...]) -> Config:
        if overrides not in self._checked:
            self._checked[overrides] = read_run(overrides, self._composer, self._rules)
        return self._checked[overrides]


def job_return(overrides: Sequence[str], folder: Path, value: float | RunFailed | None) -> JobReturn:
    """A run's result for Hydra's sweepers, which read no more of it.

    Args:
        value: Its validation loss; None: it was submitted and has not ended.
    """
    from hydra.core.utils import JobReturn, JobStatus

    return JobReturn(
        overrides=list(overrides),
        working_dir=str(folder),
        task_name="experiments",
        status=JobStatus.FAILED if isinstance(value, RunFailed) else JobStatus.COMPLETED,
        _return_value=value,
    )
