"""Plan of runs that go to a cluster (`plan=true`): their resources, costs and refusals, and each sbatch text.

Nothing is written or submitted. The texts are made by the code that submits (`slurm.queue`), with
placeholders for what only a submission has.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import Config
from conf.command_line.request import SLURM_LAUNCHER, Launcher
from conf.composing.run_identity import run_name, varying_settings
from conf.per_model_slurm import settle
from experiment_utils.display import table
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_count, format_duration
from memory import format_bytes
from slurm.cluster import Ask, Cluster, Speeds, ask, planned_for, read_cluster
from slurm.cluster.job_step import python_of
from slurm.cluster.reachability import unreachable, warnings_of
from slurm.cluster.resources import shares_a_job
from slurm.plans.ensembles import Programs
from slurm.plans.sweep_plans import plan_all
from slurm.queue.arrays import Asked, ToSend, arrays_of, most_tasks
from slurm.queue.batch_script import script
from slurm.queue.slurm_client import NoAnswer
from slurm.records.submissions import SLURM, Submission, this_user
from slurm.submit.in_flight import in_flight
from slurm.submit.request_checks import check_clean, check_request
from slurm.submit.resource_check import check_with_sbatch, conflicts, refusals

if TYPE_CHECKING:
    from training.plan.run_plan import Plan

THERE = ("done", "queued", "running", "blocked")
"""States of runs that are not submitted again."""
ID, SNAPSHOT = "SUBMISSION", "SNAPSHOT"
"""Placeholders of the submission's name and of the folder of the code."""
ROOT = Path(__file__).resolve().parents[2]
_MOST_SOURCES = 8
_LEAST_IMPORTANT = ("GPU h", "CPU h", "tokens")
"""Columns that go until the table fits a terminal, in order."""


@dataclass(frozen=True)
class PlannedRun:
    """A run, and the resources that it asks for."""

    name: str
    plan: Plan
    asked: Ask
    state: str | None
    """State of the run if it exists already, else None."""

    @property
    def is_there(self) -> bool:
        return self.state in THERE

    @property
    def python(self) -> str:
        """Python that its job runs, and what chose it."""
        return python_of(settle(self.plan.config).slurm)

    @property
    def seconds(self) -> tuple[float | None, bool]:
        """Seconds that it takes, and whether that is only its limit; for a run of an ensemble its share."""
        expected, limit = self.asked.expected_s, self.asked.limit_s
        if expected is not None:
            return expected / self.plan.together, False
        return None if limit is None else limit / self.plan.together, True

    def to_json(self) -> dict[str, Any]:
        hours = None if self.asked.expected_s is None else self.asked.expected_s / 3600
        return {
            **self.plan.to_json(),
            "state": self.state,
            "slurm": {
                "options": self.asked.options,
                "setup": list(self.asked.setup),
                "python": self.python,
                "mem_bytes": self.asked.mem_bytes,
                "mem_from": self.asked.how_mem,
                "time_limit_s": self.asked.limit_s,
                "time_from": self.asked.how_time,
                "expected_s": self.asked.expected_s,
                "gpu_hours": None if hours is None else hours * self.asked.gpus,
                "cpu_hours": None if hours is None else hours * self.asked.cpus,
            },
        }


@dataclass(frozen=True)
class ClusterPlan:
    """Plan of all runs of a command."""

    cluster: Cluster
    runs: list[PlannedRun]
    """Each once, in order."""
    refused: list[Problem]
    warnings: list[str]
    scripts: list[tuple[int, str]]
    """Number of runs and text of each array that would be sent."""

    @property
    def missing(self) -> list[PlannedRun]:
        """Runs that would be submitted."""
        return [run for run in self.runs if not run.is_there]

    def to_json(self) -> dict[str, Any]:
        return {
            "runs": [run.to_json() for run in self.runs],
            "sum": {
                "runs": len(self.runs),
                "there_already": len(self.runs) - len(self.missing),
                "tokens": sum(run.plan.budget.tokens for run in self.missing),
                "flops": sum(run.plan.total_flops for run in self.missing),
                "gpu_hours": _hours(self.missing, "gpus")[0],
                "cpu_hours": _hours(self.missing, "cpus")[0],
                "hours_are_limits": _hours(self.missing, "cpus")[1],
            },
            "refused": [str(problem) for problem in self.refused],
            "warnings": self.warnings,
            "scripts": [{"runs": count, "text": text} for count, text in self.scripts],
            "cluster": self.cluster.to_json(),
        }


def plan_for_cluster(
    configs: Sequence[Config], *, is_open: bool = False, cluster: Cluster | None = None
) -> ClusterPlan:
    """Plan of the runs, without submitting any.

    Args:
        is_open: Whether the sweeper chooses more runs by their results.
        cluster: None: the cluster of this machine.

    Raises:
        UserError: a configuration is wrong in view of its data.
    """
    cluster = cluster or read_cluster()
    also = partial(refusals, cluster=cluster)
    programs = Programs(configs)
    plans = plan_all(programs.runs, tokenize=False, place=programs.place(planned_for(cluster)), also=also)
    speeds = Speeds()
    keys = [str(plan.folder or f"run{n}") for n, plan in enumerate(plans)]
    in_queue = _states(plans, cluster)
    runs: dict[str, PlannedRun] = {}
    every: list[PlannedRun] = []  # a run that is there twice with other resources is checked twice
    for key, plan in zip(keys, plans, strict=True):
        state = in_queue.get(key, None if plan.state == "done" and plan.config.again else plan.state)
        name = run_name(plan.config, plan.identity or "?")
        run = PlannedRun(name, plan, ask(plan.config, plan, cluster, speeds), state)
        runs.setdefault(key, run)
        every += [] if run.is_there else [run]
    missing = {key: run for key, run in runs.items() if not run.is_there}
    of_missing = [run.plan for run in missing.values()]
    refused, notes = _ask_sbatch(every, cluster)
    to_send = _to_send(missing, cluster, programs.names(keys))
    return ClusterPlan(
        cluster=cluster,
        runs=list(runs.values()),
        refused=[
            *check_request(configs, Launcher(SLURM_LAUNCHER), is_open=is_open),
            *conflicts(run.plan.config for run in every),
            *refused,
            *unreachable(of_missing),
            *check_clean(configs, ROOT),
        ],
        warnings=[
            *notes,
            *(f"{study.name}: {one.note}" for study, one in to_send if one.note is not None),
            *(warnings_of(of_missing, cluster, ROOT) if cluster.is_here else ()),
            *_of_gpu_memory(of_missing),
            *_of_idle_gpus(of_missing),
        ],
        scripts=[
            (sum(map(len, one.array.tasks)), script(_submission(study, one), one.array, one.setup))
            for study, one in to_send
        ],
    )


def _ask_sbatch(runs: Sequence[PlannedRun], cluster: Cluster) -> tuple[list[Problem], list[str]]:
    """Refusals of `sbatch --test-only`, and notes."""
    if not cluster.is_here:
        return [], []
    try:
        return check_with_sbatch([(run.name, run.asked.options) for run in runs], cluster)
    except NoAnswer as error:
        return [], [str(error)]


def _states(plans: Sequence[Plan], cluster: Cluster) -> dict[str, str]:
    """States of the runs that are in the queue now, by folder; none if the cluster does not answer."""
    found: dict[str, str] = {}
    folders = {plan.folder for plan in plans if plan.folder is not None and plan.folder.is_dir()}
    if cluster.is_here:
        for study in {folder.parent for folder in folders}:
            names = [folder.name for folder in folders if folder.parent == study]
            with suppress(UserError):
                found |= {str(study / name): word for name, word in in_flight(study, names).items()}
    return found


def _to_send(
    runs: Mapping[str, PlannedRun], cluster: Cluster, ensembles: Mapping[str, str]
) -> list[tuple[Path, ToSend]]:
    """Study of each array, and the array as it would be sent. ensembles: by run, if it is in one."""
    studies: dict[Path, list[Asked]] = {}
    for key, run in runs.items():
        config = run.plan.config
        study = Path(config.runs_dir) / (config.study.name or "default")
        studies.setdefault(study, []).append(_asked(key, run, ensembles))
    most = most_tasks(cluster)
    return [(study, one) for study, asked in studies.items() for one in arrays_of(asked, study, ID, most)]


def _asked(key: str, run: PlannedRun, ensembles: Mapping[str, str]) -> Asked:
    slurm = settle(run.plan.config).slurm
    shared = slurm.parallel, slurm.pack, slurm.workers
    return Asked(key, run.asked.options, run.asked.setup, *shared, ensemble=ensembles.get(key))


def _of_gpu_memory(plans: Sequence[Plan]) -> Iterator[str]:
    """Warning that the memory of GPUs is not known, so that runs that are too large are not refused."""
    unknown = [
        plan.memory.estimate.gpu_bytes
        for plan in plans
        if plan.memory.estimate.gpu_bytes and plan.memory.room.gpu_total_bytes is None
    ]
    if unknown:
        yield (
            "the memory of the GPUs is not known, so whether runs fit is not checked. They need up to "
            f"{format_bytes(max(unknown))}: say what a GPU has (slurm.gpu_mem=80GB)"
        )


def _of_idle_gpus(plans: Sequence[Plan]) -> Iterator[str]:
    """Warning of jobs with more GPUs than runs at a time, each of which uses one."""
    every = [settle(plan.config).slurm for plan in plans]
    sizes = {(one.gpus_per_node, one.pack) for one in every if shares_a_job(one)}
    for gpus, runs in sorted(sizes):
        if gpus > runs:
            idle, at_a_time = counted(gpus - runs, "GPU"), counted(runs, "run")
            yield f"slurm.gpus_per_node={gpus}: {at_a_time} at a time, with one GPU each: {idle} stay idle"


def _submission(study: Path, to_send: ToSend) -> Submission:
    return Submission(
        id=ID,
        study=study,
        launcher=SLURM,
        created_s=0.0,
        user=this_user(),
        host=socket.gethostname(),
        cwd=str(Path.cwd()),
        command="",
        arrays=[to_send.array],
        snapshot=SNAPSHOT,
    )


def render(found: ClusterPlan) -> str:
    """Text for a terminal: the table, its sum, refusals, and each sbatch script."""
    lines = [*_table(found.runs), _sum(found), ""]
    sources = list(dict.fromkeys(line for run in found.missing for line in _sources(run.asked)))
    lines += sources[:_MOST_SOURCES] + ["..."] * (len(sources) > _MOST_SOURCES)
    lines += dict.fromkeys(f"Python of the jobs: {run.python}" for run in found.missing)
    for count, text in found.scripts:
        lines += ["", f"sbatch, for {counted(count, 'run')}:", *(f"    {line}" for line in text.splitlines())]
    if found.scripts:
        lines += ["", f"{ID} and {SNAPSHOT} are named when it is submitted."]
    lines += [f"note: {note}" for note in found.cluster.notes]
    if not found.cluster.is_here:
        lines.append("note: no cluster answered, so its limits were not checked")
    lines += [f"warning: {warning}" for warning in found.warnings]
    lines += dict.fromkeys(need for run in found.missing for need in run.plan.needs)
    lines += [f"It would be refused: {problem}" for problem in found.refused]
    return "\n".join(lines)


def _sources(asked: Ask) -> Iterator[str]:
    """Lines that say where --mem and the time limit come from."""
    for name, how in (("--mem", asked.how_mem), ("time", asked.how_time)):
        amount = _mem(asked) if name == "--mem" else asked.options.get("time", "")
        yield f"{name} {amount}".strip() + f": {how}"


def _mem(asked: Ask) -> str:
    return str(asked.options.get("mem", "")) if asked.mem_bytes is None else format_bytes(asked.mem_bytes)


def _table(runs: Sequence[PlannedRun]) -> list[str]:
    settings = varying_settings([run.plan.config for run in runs])
    titles = ("run", *settings, "tokens", "--mem", "time", "GPU h", "CPU h", "state")
    values = zip(*settings.values(), strict=True) if settings else [()] * len(runs)
    rows = [_row(run, cells) for run, cells in zip(runs, values, strict=True)]
    return table(titles, rows, right=range(len(titles) - 6, len(titles) - 1), least=_LEAST_IMPORTANT)


def _row(run: PlannedRun, settings: Sequence[str]) -> tuple[str, ...]:
    seconds, is_limit = run.seconds
    limit = run.asked.options.get("time")
    if not limit:
        limit = "default" if run.asked.limit_s is None else f"default {format_duration(run.asked.limit_s)}"
    hours = [
        "-" if not amount else "?" if seconds is None else "<" * is_limit + _amount(amount * seconds)
        for amount in (run.asked.gpus, run.asked.cpus)
    ]
    tokens = format_count(run.plan.budget.tokens)
    return (run.name, *settings, tokens, _mem(run.asked) or "-", str(limit), *hours, run.state or "-")


def _amount(seconds: float) -> str:
    """Hours as text: `0.02`, `1.4`, `120`."""
    hours = seconds / 3600
    return f"{hours:.2g}" if hours < 10 else f"{hours:,.0f}"


def _hours(runs: Sequence[PlannedRun], of: str) -> tuple[float | None, bool]:
    """Hours of all runs, None if not known, and whether limits were used for times that are not known."""
    total, is_limit = 0.0, False
    for run in runs:
        amount = getattr(run.asked, of)
        if not amount:
            continue
        seconds, limit = run.seconds
        if seconds is None:
            return None, True
        total, is_limit = total + seconds * amount / 3600, is_limit or limit
    return total, is_limit


def _sum(found: ClusterPlan) -> str:
    missing = found.missing
    tokens = sum(run.plan.budget.tokens for run in missing)
    flops = sum(run.plan.total_flops for run in missing)
    parts = [
        counted(len(missing), "run") + " to submit",
        f"{format_count(tokens)} tokens",
        f"{flops:.3g} FLOPs",
    ]
    for name, of in (("GPU hours", "gpus"), ("CPU hours", "cpus")):
        hours, is_limit = _hours(missing, of)
        if hours is None:
            parts.append("hours not known: no run like some of these has been measured")
            break
        if hours:
            parts.append(f"{'at most ' if is_limit else ''}{_amount(hours * 3600)} {name}")
    there = [run.state for run in found.runs if run.is_there]
    listed = ", ".join(f"{there.count(state)} {state}" for state in dict.fromkeys(there))
    texts = sorted({run.plan.text for run in missing if run.plan.text is not None})
    tokenized = f"; not tokenized yet: {', '.join(texts)} (identities after tokenizing)" if texts else ""
    return ", ".join(parts) + (f"; there already: {listed}" if listed else "") + tokenized
