"""Runs that outlive the command: submitted when Hydra's sweeper hands them over, and waited for if asked."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from conf import Config
from conf.between_keys.rules import Rule
from conf.command_line.request import SLURM_LAUNCHER, Launcher, Request
from conf.composing.compose import Composer
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from slurm.cluster import Cluster, planned_for, read_cluster
from slurm.cluster.reachability import warnings_of
from slurm.launch.code_snapshot import MANIFEST, take, while_submitting
from slurm.launch.hydra_task import RequestedRuns
from slurm.launch.outcome import Outcome, outcomes_of
from slurm.plans.ensembles import Programs
from slurm.plans.gpu_slots import gpu_slots, planned_with
from slurm.plans.sweep_plans import check_side_by_side, plan_all
from slurm.queue.arrays import MAX_ARRAY_SIZE, most_tasks
from slurm.queue.slurm_client import NoAnswer, need_slurm
from slurm.records.submissions import LOCAL, SLURM, typed_study
from slurm.submit.batch import Order, Submitted, submit
from slurm.submit.follow_up import send_search_end
from slurm.submit.foreground import run_in_foreground
from slurm.submit.request_checks import check_clean, check_request
from slurm.submit.resource_check import asked_of, refusals
from slurm.submit.watch_runs import WaitInterrupted, wait_for

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

    from training.plan.run_plan import Plan

log = logging.getLogger("slurm")
ROOT = Path(__file__).resolve().parent.parent.parent


class SubmittedRuns(RequestedRuns):
    """The runs of a request, submitted when Hydra's sweeper hands them over."""

    def __init__(
        self,
        request: Request,
        composer: Composer,
        rules: Iterable[Rule],
        *,
        quiet: bool = False,
        command: str = "",
    ) -> None:
        super().__init__(request, composer, rules, quiet=quiet, command=command)
        self.submitted: list[Submitted] = []
        """The submission of each study."""
        self._copies: dict[str, Path] = {}
        self._at_the_end: tuple[str | None, str | None] = None, None  # then, notify: of a search

    def launch(self, job_overrides: Sequence[Sequence[str]], jobs: int = 1) -> list[JobReturn]:
        """Submit a batch of runs; with `wait=true` return when all of them have ended.

        Raises:
            UserError: something is wrong with one of them; nothing was submitted.
            WaitInterrupted: Ctrl-C ended the waiting; the jobs continue.
        """
        configs = [self._config(tuple(overrides)) for overrides in job_overrides]
        programs, launcher = Programs(configs), self.request.launcher
        plans, cluster = check_and_plan(
            programs.runs, launcher, is_open=self.request.is_open, programs=programs
        )
        if self.request.is_open:  # the end job is sent when the search ends
            self._at_the_end = configs[0].then, configs[0].notify
            plans = [
                dataclasses.replace(plan, config=dataclasses.replace(plan.config, then=None, notify=None))
                for plan in plans
            ]
        of_job = programs.folders(plans)
        ensembles = programs.names([folder.name for folders in of_job for folder in folders])
        self.folders = list(dict.fromkeys([*self.folders, *(folder for part in of_job for folder in part)]))

        def submit_these(some: Sequence[Plan]) -> list[Submitted]:
            return submit_plans(some, cluster, launcher, self.command, ensembles, self._copies)

        if not launcher.submits:
            run_in_foreground(self, plans, of_job, submit_these)
            return [self._result(*one) for one in zip(job_overrides, of_job, strict=True)]
        submitted = submit_these(plans)
        self.submitted += submitted
        if configs[0].wait:
            for line in render(submitted, waiting=True):
                log.info("%s", line)
            self._wait(submitted)
        return [self._result(*one) for one in zip(job_overrides, of_job, strict=True)]

    def send_the_end(self) -> None:
        """Submit the end job of a search, which has no more runs."""
        then, notify = self._at_the_end
        if then is not None or notify is not None:
            for study in dict.fromkeys(one.study for one in self.submitted):
                send_search_end(study, self.command, then, notify)

    def _wait(self, submitted: Sequence[Submitted]) -> None:
        for one in submitted:
            try:
                wait_for(one.study, [run for run in one.runs if run not in one.not_sent])
            except WaitInterrupted as stopped:
                if not self.request.halves:
                    raise
                search = "The search stops with these: type the same command again to continue it."
                raise WaitInterrupted(f"{search} {stopped}") from stopped
            for outcome in outcomes_of(one.study, one.runs):
                reason = one.not_sent.get(outcome.folder.name)
                self.outcomes[outcome.folder] = (
                    outcome
                    if reason is None
                    else Outcome(outcome.folder, 1, "never_started", None, reason, 0.0)
                )


def check_and_plan(
    configs: Sequence[Config],
    launcher: Launcher,
    *,
    is_open: bool,
    programs: Programs | None = None,
) -> tuple[list[Plan], Cluster | None]:
    """The plans of the runs and their cluster, None for this machine; refuses what needs no sbatch to refuse.

    Args:
        is_open: whether the sweeper chooses runs by the results of earlier ones.
        programs: the programs that the runs belong to, if some are ensembles.

    Raises:
        UserError: everything that is wrong.
    """
    on_slurm, programs = launcher.target == SLURM_LAUNCHER, programs or Programs(configs)
    wrong = []
    if launcher.submits:
        wrong = check_request(configs, launcher, is_open=is_open) + check_clean(configs, ROOT)
    if any(problem.where == "slurm.confirm" for problem in wrong) or (wrong and not on_slurm):
        raise UserError(*wrong)  # plans of thousands of runs take long
    if not on_slurm:
        slots = gpu_slots(min(launcher.jobs, len(configs)))
        with planned_with(slots):
            # in the foreground an ensemble is planned as its runs, and chooses how many go together
            place = (programs if launcher.submits else Programs([])).place()
            plans = plan_all(configs, tokenize=True, place=place)
        check_side_by_side(plans, launcher.jobs, slots)
        return plans, None
    need_slurm()
    cluster = read_cluster()
    if not cluster.is_here:
        raise NoAnswer(f"Slurm does not answer, so nothing was submitted: {'; '.join(cluster.notes)}")
    also = partial(refusals, cluster=cluster)
    place = programs.place(planned_for(cluster))
    try:
        plans = plan_all(configs, tokenize=True, place=place, also=also)
    except UserError as error:
        raise UserError(*wrong, *error.problems) from error
    if wrong:
        raise UserError(*wrong, *also([(plan.config, plan) for plan in plans]))
    return plans, cluster


def submit_plans(
    plans: Sequence[Plan],
    cluster: Cluster | None,
    launcher: Launcher,
    command: str,
    ensembles: Mapping[str, str] | None = None,
    copies: dict[str, Path] | None = None,
    is_frozen: bool = False,
) -> list[Submitted]:
    """Submit planned runs, study by study.

    Args:
        cluster: None for the local launcher.
        command: the command as typed.
        ensembles: name of a run to the name of its ensemble.
        copies: copies of the code that this command has made, by runs_dir; later submissions use them too.
        is_frozen: whether the copies are those of an earlier submission.

    Raises:
        UserError: the cluster never takes one of them; none was submitted.
    """
    asked = asked_of(plans, cluster) if cluster is not None else {}
    if cluster is not None:
        for warning in warnings_of(plans, cluster, ROOT):
            log.warning("%s", warning)
    studies: dict[Path, list[Plan]] = {}
    for plan in plans:
        assert plan.folder is not None
        studies.setdefault(plan.folder.parent, []).append(plan)
    submitted = []
    for of_study in studies.values():
        config = of_study[0].config
        with while_submitting(config.runs_dir):
            order = Order(
                launcher=LOCAL if cluster is None else SLURM,
                command=command,
                snapshot=_snapshot(config.runs_dir, {} if copies is None else copies)
                if launcher.submits
                else None,
                asked=asked,
                most_tasks=MAX_ARRAY_SIZE if cluster is None else most_tasks(cluster),
                jobs=launcher.jobs,
                then=config.then,
                notify=config.notify,
                ensembles=ensembles or {},
                is_frozen=is_frozen,
            )
            submitted.append(submit(of_study, order))
    return submitted


def _snapshot(runs_dir: str, copies: dict[str, Path]) -> Path:
    found = copies.get(runs_dir)
    if found is None or not (found / MANIFEST).exists():  # `clean` removes a copy that no open run needs
        found = copies[runs_dir] = take(runs_dir).path
    return found


def render(submitted: Sequence[Submitted], *, waiting: bool = False) -> Iterator[str]:
    """Lines for a terminal about submissions."""
    for one in submitted:
        study = typed_study(one.study)
        if one.submission is not None and one.sent:
            jobs = ", ".join(array.job_id or "" for array in one.submission.arrays if array.is_sent)
            how = "in the background as process" if one.submission.launcher == LOCAL else "as job"
            yield f"{one.study.name}: submitted {counted(len(one.sent), 'run')} {how} {jobs}"
        if one.left:
            listed = ", ".join(f"{count} {word}" for word, count in Counter(one.left.values()).items())
            blocked = [run for run, state in one.left.items() if state == "blocked"]
            never = f". Blocked runs never start: python -m slurm cancel {study} {' '.join(blocked)}"
            yield f"{one.study.name}: left as they are: {listed}{never if blocked else ''}"
        for why in dict.fromkeys(one.not_sent.values()):
            runs = [run for run, reason in one.not_sent.items() if reason == why]
            how = "not known to be submitted" if set(runs) & set(one.unheard) else "not submitted"
            yield f"{one.study.name}: {how}: {counted(len(runs), 'run')}: {why}"
        if set(one.not_sent) - set(one.unheard):
            yield f"Submit what is missing: python -m slurm resubmit {study}"
        if one.submission is not None and one.submission.follow_up is not None:
            yield f"{one.study.name}: when they have ended: job {one.submission.follow_up}"
        if not waiting:
            yield f"How they go: python -m slurm status {study}"
            if one.sent:
                yield f"To stop them: python -m slurm cancel {study}"
