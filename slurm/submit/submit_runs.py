"""Runs that outlive the command: what Hydra's sweeper hands over is submitted, and waited for if asked."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from conf import Config
from conf.compose import Composer
from conf.request import SLURM_LAUNCHER, Launcher, Request
from conf.rules import Rule
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from slurm.cluster import Cluster, planned_for, read_cluster
from slurm.cluster.reachability import warnings_of
from slurm.launch.code_snapshot import MANIFEST, take, while_submitting
from slurm.launch.hydra_task import RequestedRuns
from slurm.launch.outcome import Outcome
from slurm.plans.ensembles import Programs
from slurm.plans.gpu_slots import gpu_slots, planned_with
from slurm.plans.sweep_plans import check_side_by_side, plan_all
from slurm.queue.queue_limits import Limits
from slurm.queue.slurm_client import NoAnswer, need_slurm
from slurm.records.submissions import LOCAL, SLURM, Submission, submissions, typed_study
from slurm.records.submitter_liveness import this_process
from slurm.submit.batch import Order, Submitted, send_the_end, submit, was_cancelled
from slurm.submit.foreground import run_in_foreground
from slurm.submit.in_flight import without_a_waiter
from slurm.submit.outcomes import outcomes_of
from slurm.submit.request_checks import check_clean, check_request
from slurm.submit.resource_check import asked_of, has_room, limits_of_plans, refusals
from slurm.submit.watch_runs import PATIENCE_S, POLL_S, ROOM_POLL_S, WaitInterrupted, wait_for

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn

    from training.plan import Plan

log = logging.getLogger("slurm")
ROOT = Path(__file__).resolve().parent.parent.parent


class SubmittedRuns(RequestedRuns):
    """submitted: what became of each study's runs. folders: of all that were asked for, in order.

    outcomes: of those that were waited for (`wait=true`).
    """

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
        self._copies: dict[str, Path] = {}
        self._at_the_end: tuple[str | None, str | None] = None, None  # then, notify: of a search
        self._no_room: dict[Path, int] = {}  # of each study, how many runs wait to be submitted

    def launch(self, job_overrides: Sequence[Sequence[str]], jobs: int = 1) -> list[JobReturn]:
        """Submit a batch. Without `wait=true` Hydra's results say nothing but that.

        Raises:
            UserError: something is wrong with one of them; nothing was submitted.
            WaitInterrupted: Ctrl-C while waiting; the jobs go on.
        """
        configs = [self._config(tuple(overrides)) for overrides in job_overrides]
        programs, launcher = Programs(configs), self.request.launcher
        plans, cluster = check_and_plan(
            programs.runs, launcher, is_open=self.request.is_open, programs=programs
        )
        if self.request.is_open:  # what is to come comes when the search ends, and needs no room before
            self._at_the_end = configs[0].then, configs[0].notify
            plans = [_without_an_end(plan) for plan in plans]
        of_job = programs.folders(plans)
        ensembles = programs.names([folder.name for folders in of_job for folder in folders])
        folders = [plan.folder for plan in plans if plan.folder is not None]
        self.folders += [folder for folder in dict.fromkeys(folders) if folder not in self.folders]
        submit_these = partial(self._submit, cluster=cluster, ensembles=ensembles)
        if not launcher.submits:
            run_in_foreground(self, plans, of_job, submit_these)
            return [self._result(*one) for one in zip(job_overrides, of_job, strict=True)]
        submitted = submit_these(plans)
        self.submitted += submitted
        if configs[0].wait:
            for line in render(submitted, waiting=True):
                log.info("%s", line)
            self._no_room = {one.study: len(one.no_room) for one in submitted}
            try:
                self._wait(submitted, {plan.folder: plan for plan in plans}, cluster, ensembles)
            except WaitInterrupted as stopped:
                raise WaitInterrupted(" ".join([*self._ends_with_the_command(), str(stopped)])) from stopped
        return [self._result(*one) for one in zip(job_overrides, of_job, strict=True)]

    def send_the_end(self) -> None:
        """Of a search, whose sweeper has no more runs: what comes when it has ended, which comes once. What
        the same command has submitted before it was killed is of the search too.
        """
        then, notify = self._at_the_end
        if then is None and notify is None:
            return
        for study in dict.fromkeys(one.study for one in self.submitted):
            made = [one.id for one in submissions(study) if one.command == self.command and _is_sent(one)]
            if made:
                send_the_end(study, made, then, notify)

    def _submit(
        self,
        plans: Sequence[Plan],
        cluster: Cluster | None,
        ensembles: Mapping[str, str],
        earlier: tuple[str, ...] = (),
    ) -> list[Submitted]:
        """earlier: as of `Order`."""
        launcher = self.request.launcher
        return submit_plans(plans, cluster, launcher, self.command, ensembles, self._copies, earlier)

    def _wait(
        self,
        submitted: Sequence[Submitted],
        plans: dict[Path | None, Plan],
        cluster: Cluster | None,
        ensembles: Mapping[str, str],
    ) -> None:
        waits = [_Waited([one], [run for run in one.runs if run not in one.not_sent]) for one in submitted]
        for number, one in enumerate(submitted):
            self._wait_for(waits[number:], plans, cluster, ensembles)
            parts = waits[number].parts
            place = self.submitted.index(one)
            self.submitted[place : place + 1] = parts
            not_sent = {run: why for part in parts for run, why in part.not_sent.items()}
            for outcome in outcomes_of(one.study, one.runs):
                reason = not_sent.get(outcome.folder.name)
                self.outcomes[outcome.folder] = (
                    outcome
                    if reason is None
                    else Outcome(outcome.folder, 1, "never_started", None, reason, 0.0)
                )

    def _wait_for(
        self,
        waits: Sequence[_Waited],
        plans: dict[Path | None, Plan],
        cluster: Cluster | None,
        ensembles: Mapping[str, str],
    ) -> None:
        """Until the first of these studies has ended; what the queue has no room for is submitted as others
        end, of all of them.
        """
        first = waits[0]
        while True:
            waiting = {one.study: [plans[one.study / run] for run in one.no_room] for one in waits}
            self._no_room |= {study: len(late) for study, late in waiting.items()}
            going_on = [
                partial(_goes_on, waiting[one.study], cluster, one.not_before)
                for one in waits
                if one.no_room and cluster is not None
            ]
            ends = wait_for(
                first.study,
                first.ours,
                partial(_any_goes_on, going_on) if going_on else None,
                first.no_room,
            )
            if ends and cluster is not None:  # of a command that was there first, and has ended
                left = without_a_waiter(first.study, first.ours)
                waiting[first.study] = [plans[first.study / run] for run in left]
            if ends and not waiting[first.study]:
                return
            for one in waits:
                late = waiting[one.study]
                is_first = one is first and (ends or len(going_on) == 1)
                if late and (is_first or (cluster is not None and _goes_on(late, cluster, one.not_before))):
                    self._submit_more(one, late, cluster, ensembles)

    def _submit_more(
        self, one: _Waited, late: Sequence[Plan], cluster: Cluster | None, ensembles: Mapping[str, str]
    ) -> None:
        earlier = tuple(part.submission.id for part in one.parts if part.submission is not None)
        try:
            (more,) = self._submit(late, cluster, ensembles, earlier)
        except NoAnswer:  # it is waited for as it is while runs go on
            one.unheard_s = time.monotonic() if one.unheard_s is None else one.unheard_s
            if time.monotonic() - one.unheard_s > PATIENCE_S:
                raise
            one.not_before = time.monotonic() + POLL_S
            time.sleep(POLL_S)
            return
        one.unheard_s = None
        taken = [run for run in more.runs if run not in more.not_sent]
        if taken:
            told = dataclasses.replace(more, runs=taken, not_sent={})
            for line in render([told], waiting=True):
                log.info("%s", line)
        else:  # another command was faster, or a limit stands that sbatch alone knows of
            one.not_before = time.monotonic() + ROOM_POLL_S
        one.parts[-1] = one.parts[-1].without(more.runs)
        one.parts.append(more)
        one.ours = [run for run in one.ours if run not in more.runs] + taken

    def _ends_with_the_command(self) -> Iterator[str]:
        """What no job does, so that nobody waits for it."""
        left = sum(self._no_room.values())
        if left:
            yield (
                f"{counted(left, 'run')} that the queue had no room for {'is' if left == 1 else 'are'} not "
                "submitted: type the same command again."
            )
        if self.request.halves:
            yield "The search stops with these: type the same command again, and it goes on."


def _is_sent(submission: Submission) -> bool:
    return any(array.is_sent for array in submission.arrays)


@dataclasses.dataclass
class _Waited:
    """A study that is waited for. parts: what became of its runs, as they were submitted. ours: the runs that
    somebody has submitted. not_before: when the others are tried again; unheard_s: since when Slurm does not
    answer that; both of the monotonic clock.
    """

    parts: list[Submitted]
    ours: list[str]
    not_before: float = 0.0
    unheard_s: float | None = None

    @property
    def study(self) -> Path:
        return self.parts[0].study

    @property
    def no_room(self) -> tuple[str, ...]:
        return self.parts[-1].no_room


def _without_an_end(plan: Plan) -> Plan:
    return dataclasses.replace(plan, config=dataclasses.replace(plan.config, then=None, notify=None))


def _any_goes_on(found: Sequence[Callable[[], bool]]) -> bool:
    return any(goes_on() for goes_on in found)


def _goes_on(waiting: Sequence[Plan], cluster: Cluster, not_before: float) -> bool:
    """Whether there is anything to be done about runs that the queue had no room for. not_before: when it is
    tried again, of the monotonic clock.
    """
    waiter = this_process()
    is_over = any(plan.folder is not None and was_cancelled(plan.folder, waiter) for plan in waiting)
    return is_over or (time.monotonic() >= not_before and has_room(waiting, cluster))


def check_and_plan(
    configs: Sequence[Config],
    launcher: Launcher,
    *,
    is_open: bool,
    programs: Programs | None = None,
) -> tuple[list[Plan], Cluster | None]:
    """The plans of the runs, and the cluster that they are for; what can be refused without asking it is.

    programs: that they are the runs of, where some of them are one.

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
    earlier: tuple[str, ...] = (),
    is_frozen: bool = False,
) -> list[Submitted]:
    """Submit them, study by study. cluster: None for the local launcher. ensembles: as of `Order`. copies: of
    the code, by runs_dir, that this command has made already: what it submits later runs the same.
    earlier, is_frozen: as of `Order`.

    Raises:
        UserError: the cluster takes one of them in no case; none was submitted.
    """
    asked, limits = {}, Limits()
    if cluster is not None:
        asked, limits = asked_of(plans, cluster), limits_of_plans(plans, cluster)
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
                limits=limits,
                jobs=launcher.jobs,
                then=config.then,
                notify=config.notify,
                ensembles=ensembles or {},
                waiter=this_process() if config.wait else None,
                earlier=earlier,
                is_frozen=is_frozen,
            )
            submitted.append(submit(of_study, order))
            limits = limits.less(submitted[-1].tasks)
    return submitted


def _snapshot(runs_dir: str, copies: dict[str, Path]) -> Path:
    found = copies.get(runs_dir)
    if found is None or not (found / MANIFEST).exists():  # `clean` takes one that no open run needs
        found = copies[runs_dir] = take(runs_dir).path
    return found


def render(submitted: Sequence[Submitted], *, waiting: bool = False) -> Iterator[str]:
    """What a submission is told by: lines for a terminal."""
    for one in submitted:
        study = typed_study(one.study)
        if one.submission is not None and one.sent:
            arrays = [array for array in one.submission.arrays if array.is_sent]
            jobs = ", ".join(array.job_id or "" for array in arrays)
            what = "in the background as" if one.submission.launcher == LOCAL else "as"
            kind = "process" if one.submission.launcher == LOCAL else "job"
            yield f"{one.study.name}: submitted {counted(len(one.sent), 'run')} {what} {kind} {jobs}"
        if one.left:
            words = {word: sum(state == word for state in one.left.values()) for word in one.left.values()}
            listed = ", ".join(f"{count} {word}" for word, count in words.items())
            blocked = [run for run, state in one.left.items() if state == "blocked"]
            never = f". What is blocked never starts: python -m slurm cancel {study} {' '.join(blocked)}"
            yield f"{one.study.name}: left as they are: {listed}{never if blocked else ''}"
        not_sent = one.not_sent
        if waiting and one.no_room:
            not_sent = {run: why for run, why in not_sent.items() if run not in one.no_room}
            waits = "1 run waits" if len(one.no_room) == 1 else f"{len(one.no_room):,} runs wait"
            full = "room in the queue (MaxSubmitJobs, MaxJobCount) until others have ended"
            yield f"{one.study.name}: {waits} for {full}"
        for why in dict.fromkeys(not_sent.values()):
            runs = [run for run, reason in not_sent.items() if reason == why]
            how = "not known to be submitted" if set(runs) & set(one.unheard) else "not submitted"
            yield f"{one.study.name}: {how}: {counted(len(runs), 'run')}: {why}"
        if one.submission is not None and one.submission.follow_up is not None:
            yield f"{one.study.name}: when they have ended: job {one.submission.follow_up}"
        if not waiting:
            yield f"How they go: python -m slurm status {study}"
            if one.sent:
                yield f"To stop them: python -m slurm cancel {study}"
