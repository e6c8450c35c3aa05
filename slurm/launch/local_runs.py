"""Runs on this machine, each in a process of its own: one by itself, or those of a sweep."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.compose import Composer
from conf.ensembles import members_of
from conf.request import Request
from conf.rules import Rule
from experiment_utils import lock_file
from experiment_utils.quantities import format_duration
from slurm.launch.foreground_submission import noted
from slurm.launch.hydra_task import RequestedRuns, RunFailed, job_return
from slurm.launch.outcome import Outcome, outcome_of
from slurm.launch.processes import Children, run_command
from slurm.launch.run_lock import remove_lock_of_the_dead
from slurm.plans.gpu_slots import gpu_slots, idle_gpus, planned_with
from slurm.plans.sweep_plans import check_side_by_side, plan_all
from training.attempt.begin import CodeChanged, create_run
from training.attempt.run_files import read_status, run_folder

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

    from training.plan import Plan

log = logging.getLogger("slurm")

Command = Callable[..., list[str]]
"""`slurm.launch.processes.run_command`, or what stands for it in a test."""


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
    remove_lock_of_the_dead(run_folder(plan.config, plan.identity))
    folder = create_run(plan.config, plan.identity)
    before = read_status(folder)
    with Children() as children:
        children.start(command(folder, quiet=quiet), quiet=quiet)
        child = children.wait()
        return outcome_of(folder, child, before, asked_to_stop=children.requested is not None)


class LocalRuns(RequestedRuns):
    """The runs of a sweep, waited for.

    Hydra's sweeper asks for batches of runs (`launch`); all of a batch are checked, planned and given
    their folders before the first one starts. folders: of all runs that were asked for, in order;
    outcomes: of those that have ended.
    interrupted: set when a signal ended the sweep. typed: the command, for those who ask what started them.
    """

    def __init__(
        self,
        request: Request,
        composer: Composer,
        rules: Iterable[Rule],
        *,
        quiet: bool = False,
        command: Command = run_command,
        typed: str = "",
    ) -> None:
        super().__init__(request, composer, rules, quiet=quiet)
        self.folders: list[Path] = []
        self.outcomes: dict[Path, Outcome] = {}
        self.interrupted: Interrupted | None = None
        self._command = command
        self._typed = typed

    def launch(self, job_overrides: Sequence[Sequence[str]], jobs: int = 1) -> list[JobReturn]:
        """Run a batch, `jobs` side by side, and return Hydra's results in its order.

        Raises:
            UserError: something is wrong with one of them; none was started.
            Interrupted: a signal came; running ones have stopped, the rest was not started.
        """
        configs = [self._config(tuple(overrides)) for overrides in job_overrides]
        asked = [members_of(config) for config in configs]
        slots = gpu_slots(min(jobs, len(asked)))
        with planned_with(slots):
            plans = plan_all([member for members in asked for member in members], tokenize=True)
        check_side_by_side(plans, jobs, slots)
        folders = [self._folder(plan) for plan in plans]
        for folder, times in Counter(folders).items():
            if times > 1:
                log.info("%s is asked for %s times: it runs once", folder.name, times)
        self.folders += [folder for folder in dict.fromkeys(folders) if folder not in self.folders]
        each, units, seen = iter(folders), list[list[Path]](), set(self.outcomes)
        of_job = [[next(each) for _ in members] for members in asked]
        for members in of_job:
            missing = [folder for folder in dict.fromkeys(members) if folder not in seen]
            seen |= set(missing)
            if missing:
                units.append(missing)
        if sum(map(len, units)) > 1:
            how = f"{jobs} side by side" if jobs > 1 else "one after another"
            if any(len(unit) > 1 for unit in units):
                how = "as one program" if len(units) == 1 else f"as {len(units)} programs, {how}"
            log.info("%s runs in %s, %s", sum(map(len, units)), folders[0].parent, how)
            if (idle := idle_gpus(min(jobs, len(units)))) is not None:
                log.info("%s", idle)
        self._run_all(units, jobs)
        return [
            job_return(overrides, members[0], self._value(members))
            for overrides, members in zip(job_overrides, of_job, strict=True)
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

    def _folder(self, plan: Plan) -> Path:
        """The run's folder, made; if a process runs in it, or its code has changed, the run has failed."""
        assert plan.identity is not None
        try:
            remove_lock_of_the_dead(run_folder(plan.config, plan.identity))
            return create_run(plan.config, plan.identity)
        except (lock_file.LockHeld, CodeChanged) as refused:
            folder = run_folder(plan.config, plan.identity)
            self._note(Outcome(folder, 2, "failed", None, str(refused), 0.0))
            return folder

    def _value(self, folders: Sequence[Path]) -> float | RunFailed:
        """The validation loss of a run, the mean of an ensemble's; the first of these that failed."""
        values = [_value(self.outcomes[folder]) for folder in folders]
        failed = [value for value in values if isinstance(value, RunFailed)]
        return failed[0] if failed else sum(float(str(value)) for value in values) / len(values)

    def _run_all(self, units: list[list[Path]], jobs: int) -> None:
        with noted([folder for unit in units for folder in unit], jobs, self._typed) as was_stopped:
            stopped = run_units(
                units, jobs, quiet=self._quiet or jobs > 1, command=self._command, note=self._note
            )
            if stopped is not None:
                was_stopped()
        if stopped is not None:
            raise Interrupted(stopped)

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


def _value(outcome: Outcome) -> float | RunFailed:
    if outcome.val_loss is not None:
        return outcome.val_loss
    return RunFailed(f"{outcome.folder}: {outcome.reason}")


def run_units(
    units: Sequence[Sequence[Path]],
    jobs: int,
    *,
    quiet: bool,
    note: Callable[[Outcome], None],
    command: Command = run_command,
) -> int | None:
    """Run units of run folders, `jobs` in parallel, in their order.

    units: the runs of a unit of several run as one program, an ensemble. note: called with each outcome, as
    it comes. Returns the signal that asked to stop, if one did: running ones have stopped then, the rest was
    not started.
    """
    waiting = list(units)
    running: dict[int, tuple[list[Path], list[dict[str, Any]]]] = {}
    slots = min(jobs, max(1, len(units)))
    with Children(slots, gpus=gpu_slots(slots)) as children:
        while True:
            while waiting and children.free:
                unit = [*waiting.pop(0)]
                unit.sort(key=lambda folder: read_status(folder).get("state") == "done")
                before = [read_status(folder) for folder in unit]
                members = {"members": unit} if len(unit) > 1 else {}
                child = children.start(command(unit[0], quiet=quiet, **members), quiet=quiet)
                running[child.process.pid] = unit, before
            if not running:
                break
            child = children.wait()
            unit, before = running.pop(child.process.pid)
            for folder, was in zip(unit, before, strict=True):
                sampled, asked = unit[0] if len(unit) > 1 else None, children.requested is not None
                note(outcome_of(folder, child, was, sampled, asked_to_stop=asked))
        return children.requested
