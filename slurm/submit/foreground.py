"""A sweep in the foreground: the command that submits runs of this machine works through them itself."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm.launch.hydra_task import RequestedRuns
from slurm.launch.outcome import Outcome, outcomes_of
from slurm.launch.work_through import work_through
from slurm.plans.gpu_slots import idle_gpus
from slurm.submit.batch import Submitted
from training.attempt.begin import CodeChanged, check_code

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

log = logging.getLogger("slurm")


class Interrupted(Exception):
    """A signal asked the whole sweep to stop; its runs have stopped."""

    def __init__(self, signal_number: int) -> None:
        self.exit_code = 130 if signal_number == signal.SIGINT else 1
        super().__init__(signal.Signals(signal_number).name)


def run_in_foreground(
    runs: RequestedRuns,
    plans: Sequence[Plan],
    programs: Sequence[Sequence[Path]],
    submit: Callable[[Sequence[Plan]], Sequence[Submitted]],
) -> None:
    """Submit runs and work through them; `runs` gets the outcome of each, also of those left as they are.

    A run whose code has changed has failed, and the others run.

    Args:
        runs: what was requested.
        plans: of a batch of it.
        programs: their folders, those of an ensemble together, in the order asked for.
        submit: writes the submissions of such plans.

    Raises:
        Interrupted: a signal came; the running ones have stopped, the rest was not started.
    """
    for folder, times in Counter(folder for unit in programs for folder in unit).items():
        if times > 1:
            log.info("%s is asked for %s times: it runs once", folder.name, times)
    wanted = {plan.folder: plan for plan in plans if plan.folder not in runs.outcomes}
    for plan in list(wanted.values()):
        try:
            if plan.folder is not None and not plan.config.again:
                check_code(plan.folder, plan.config.code, quiet=True)
        except CodeChanged as refused:
            runs.note(Outcome(refused.folder, 2, "failed", None, str(refused), 0.0))
            del wanted[refused.folder]
    submitted = submit(list(wanted.values()))
    for one in submitted:
        for outcome in outcomes_of(one.study, list(one.left)):
            runs.note(outcome)
    sent, units = {one.study / run for one in submitted for run in one.sent}, []
    for members in programs:
        if unit := [folder for folder in dict.fromkeys(members) if folder in sent]:
            units.append(unit)
            sent.difference_update(unit)
    jobs = runs.request.launcher.jobs
    if sum(map(len, units)) > 1:
        _log_start(units, jobs)
    submissions = [one.submission for one in submitted if one.submission is not None]
    stopped = work_through(
        units, jobs, submissions, quiet=runs.quiet or jobs > 1, is_brief=True, note=runs.note
    )
    if stopped is not None:
        raise Interrupted(stopped)


def _log_start(units: Sequence[Sequence[Path]], jobs: int) -> None:
    count = sum(map(len, units))
    how = f"{jobs} side by side" if jobs > 1 else "one after another"
    if count > len(units):
        how = "as one program" if len(units) == 1 else f"as {len(units)} programs, {how}"
    studies = dict.fromkeys(str(unit[0].parent) for unit in units)
    log.info("%s runs in %s, %s", count, ", ".join(studies), how)
    if (idle := idle_gpus(min(jobs, len(units)))) is not None:
        log.info("%s", idle)
