"""Runs on this machine, each in a process of its own: one by itself, or those of a sweep."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import durable
import experiment_utils
from conf import Config
from conf.check import to_plain
from conf.compose import Composer
from conf.quantities import format_duration
from conf.request import Request, read_run
from conf.rules import Rule
from slurm.plans import plan_all
from slurm.processes import Child, Children, run_command

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

    from training.plan import Plan

log = logging.getLogger("slurm")

_WHY = {
    "SIGBUS": (
        ", most likely because a token file was truncated in the moment in which it was read. See whether it "
        "is whole (pretokenize_dataset.py verify), and type the same command again to go on from the last "
        "checkpoint"
    )
}
"""What is known of a signal, behind its name."""

Command = Callable[..., list[str]]
"""`slurm.processes.run_command`, or what stands for it in a test."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended. val_loss: its final one, nats a token; reason: why it is not `done`."""

    folder: Path
    exit_code: int
    state: str
    val_loss: float | None
    reason: str | None
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "folder": str(self.folder)}


class RunFailed(Exception):
    """What Hydra's other parts meet in place of a failed run's result."""


class Interrupted(Exception):
    """A signal asked the whole sweep to stop; its runs have stopped."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = 130 if signal_number == signal.SIGINT else 1
        super().__init__(signal.Signals(signal_number).name)


def run_one(config: Config, *, quiet: bool = False, command: Command = run_command) -> Outcome:
    """Run one configuration in a child process and wait for it.

    Signals go on to the child, which checkpoints and stops; this returns when the child has ended.

    Raises:
        UserError: what is wrong with the configuration in view of its data; nothing was started.
    """
    (plan,) = plan_all([config], tokenize=True)
    assert plan.identity is not None
    folder = experiment_utils.create_run(plan.config, plan.identity)
    before = experiment_utils.read_status(folder)
    with Children() as children:
        children.start(command(folder, quiet=quiet), quiet=quiet)
        return outcome_of(folder, children.wait(), before)


def outcome_of(folder: Path, child: Child, before: dict[str, Any]) -> Outcome:
    """How the run ended: the child's exit, with what it left in its folder.

    before: status.json as it was when the child was started; what it says is of an earlier attempt.
    """
    if child.exit_code == 0:
        results = experiment_utils.read_run(folder).get("results") or {}
        val_loss = results.get("val_loss")
        known = val_loss if isinstance(val_loss, int | float) else None
        return Outcome(folder, 0, "done", known, None, child.seconds)
    status = experiment_utils.read_status(folder)
    if child.killed_by is not None:
        state, reason = "failed", f"killed by {child.killed_by}{_WHY.get(child.killed_by, '')}"
    elif status != before and status.get("state") in ("failed", "cancelled"):
        state, reason = status["state"], status.get("reason") or "see its log.txt"
    else:  # it ended before it could say anything there
        state = "cancelled" if child.exit_code == 130 else "failed"
        reason = child.last_error() or "see its log.txt"
    return Outcome(folder, child.exit_code, state, None, reason, child.seconds)


class LocalRuns:
    """The runs of a sweep; what Hydra knows as its task function.

    Hydra's sweeper asks for batches of runs (`launch`); all of a batch are checked, planned and given
    their folders before the first one starts. folders: of all runs that were asked for, in order;
    outcomes: of those that have ended.
    interrupted: set when a signal ended the sweep.
    """

    def __init__(
        self,
        request: Request,
        composer: Composer,
        rules: Iterable[Rule],
        *,
        quiet: bool = False,
        command: Command = run_command,
    ) -> None:
        self.request = request
        self.folders: list[Path] = []
        self.outcomes: dict[Path, Outcome] = {}
        self.interrupted: Interrupted | None = None
        self._composer = composer
        self._rules = tuple(rules)
        self._checked = {run.overrides: run.config for run in request.runs}
        self._quiet = quiet
        self._command = command

    def job_overrides(self) -> list[list[str]]:
        """The overrides of every run, in order, as they were checked."""
        return [list(run.overrides) for run in self.request.runs]

    def launch(self, job_overrides: Sequence[Sequence[str]], jobs: int = 1) -> list[JobReturn]:
        """Run a batch, `jobs` side by side, and return Hydra's results in its order.

        Raises:
            UserError: something is wrong with one of them; none was started.
            Interrupted: a signal came; running ones have stopped, the rest was not started.
        """
        configs = [self._config(tuple(overrides)) for overrides in job_overrides]
        plans = plan_all(configs, tokenize=True)
        folders = [self._folder(plan) for plan in plans]
        for folder, times in Counter(folders).items():
            if times > 1:
                log.info("%s is asked for %s times: it runs once", folder.name, times)
        self.folders += [folder for folder in dict.fromkeys(folders) if folder not in self.folders]
        waiting = [folder for folder in dict.fromkeys(folders) if folder not in self.outcomes]
        if len(waiting) > 1:
            how = f"{jobs} side by side" if jobs > 1 else "one after another"
            log.info("%s runs in %s, %s", len(waiting), folders[0].parent, how)
        self._run_all(waiting, jobs)
        return [
            _job_return(overrides, config, self.outcomes[folder])
            for overrides, config, folder in zip(job_overrides, configs, folders, strict=True)
        ]

    def __call__(self, composed: Any) -> float:
        """Run one, as Hydra's other launchers ask for it, and return its validation loss.

        Raises:
            RunFailed: it did not end as done.
        """
        from hydra.core.hydra_config import HydraConfig

        config = self._config(tuple(HydraConfig.get().overrides.task))
        outcome = run_one(config, quiet=self._quiet, command=self._command)
        self._note(outcome)
        if outcome.val_loss is None:
            raise RunFailed(f"{outcome.folder}: {outcome.reason}")
        return outcome.val_loss

    def take(self, results: Iterable[JobReturn]) -> None:
        """Look through what a launcher returned: a failed run is in `outcomes`, any other error is raised."""
        from hydra.core.utils import JobStatus

        for result in results:
            error = result._return_value
            if result.status == JobStatus.FAILED and not isinstance(error, RunFailed):
                raise error

    def _config(self, overrides: tuple[str, ...]) -> Config:
        if overrides not in self._checked:
            self._checked[overrides] = read_run(overrides, self._composer, self._rules)
        return self._checked[overrides]

    def _folder(self, plan: Plan) -> Path:
        """The run's folder, made; where another process runs in it, the run counts as failed."""
        assert plan.identity is not None
        try:
            return experiment_utils.create_run(plan.config, plan.identity)
        except durable.LockHeld as held:
            folder = experiment_utils.run_folder(plan.config, plan.identity)
            self._note(Outcome(folder, 2, "failed", None, str(held), 0.0))
            return folder

    def _run_all(self, folders: list[Path], jobs: int) -> None:
        waiting = list(folders)
        running: dict[int, tuple[Path, dict[str, Any]]] = {}
        quiet = self._quiet or jobs > 1
        with Children(slots=min(jobs, max(1, len(folders)))) as children:
            while True:
                while waiting and children.free:
                    folder = waiting.pop(0)
                    before = experiment_utils.read_status(folder)
                    child = children.start(self._command(folder, quiet=quiet), quiet=quiet)
                    running[child.process.pid] = folder, before
                if not running:
                    break
                child = children.wait()
                folder, before = running.pop(child.process.pid)
                self._note(outcome_of(folder, child, before))
            if children.requested is not None:
                raise Interrupted(children.requested)

    def _note(self, outcome: Outcome) -> None:
        self.outcomes[outcome.folder] = outcome
        if outcome.folder not in self.folders:
            self.folders.append(outcome.folder)
        result = f"val {outcome.val_loss:.4f}" if outcome.val_loss is not None else outcome.reason
        log.info(
            "[%s/%s] %s %s  %s  %s",
            len(self.outcomes),
            len(self.folders),
            outcome.state,
            outcome.folder.name,
            result,
            format_duration(outcome.seconds),
        )


def _job_return(overrides: Sequence[str], config: Config, outcome: Outcome) -> JobReturn:
    from hydra.core.utils import JobReturn, JobStatus
    from omegaconf import OmegaConf

    is_done = outcome.val_loss is not None
    return JobReturn(
        overrides=list(overrides),
        cfg=OmegaConf.create(to_plain(config)),
        working_dir=str(outcome.folder),
        task_name="experiments",
        status=JobStatus.COMPLETED if is_done else JobStatus.FAILED,
        _return_value=outcome.val_loss if is_done else RunFailed(f"{outcome.folder}: {outcome.reason}"),
    )
