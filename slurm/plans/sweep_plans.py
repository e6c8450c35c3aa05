"""The plans of all runs of a sweep: made together, shown as one table."""

from __future__ import annotations

import glob
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from conf import AUTO, Config
from conf.between_keys.ensembles import members_of
from conf.composing.run_identity import run_name, varying_settings
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_count
from memory import format_bytes
from training.attempt.run_files import read_run, state_of

if TYPE_CHECKING:
    from conf.schema import Dataset, Tokenizer
    from data_loading import Data, MixedData
    from slurm.plans.gpu_slots import GpuSlot
    from training.plan.memory_plan import MemoryPlan
    from training.plan.run_plan import Plan

log = logging.getLogger("slurm")


def plan_all(
    configs: Iterable[Config],
    *,
    tokenize: bool,
    place: Callable[[Config], dict[str, Any]] = lambda config: {},
    also: Callable[[Sequence[tuple[Config, Plan | None]]], Iterable[Problem]] = lambda plans: (),
) -> list[Plan]:
    """The plan of each configuration, in order. tokenize: they are to be run, not only looked at.

    place: where they are to run, if not here: further arguments of make_plan (`slurm.cluster.place`).
    also: asked where something is wrong: what else is, so that all of it is told at once. It gets each
    configuration with its plan, None where that could not be made.

    Where more was appended to the data since, a run of it that was begun before and is not done is gone on
    with, on the data that it began with.

    Raises:
        UserError: the problems of all of them, each once.
    """
    from data_loading import prepare_run
    from training.plan.run_plan import make_plan

    prepare = _once(prepare_run)
    plans: list[tuple[Config, Plan | None]] = []
    problems: dict[Problem, None] = {}
    for config in configs:
        plan: Plan | None = None
        try:
            plan = make_plan(config, tokenize=tokenize, log=log.info, prepare=prepare, **place(config))
            plan = _begun_before(plan, config, prepare, place(config)) or plan
            if tokenize and (plan.state != "done" or config.again):
                plan.memory.check(refuse=config.memory.refuse)  # the run itself tells what to be warned of
        except UserError as error:
            problems |= dict.fromkeys(error.problems)
        plans.append((config, plan))
    if problems:
        raise UserError(*(problems | dict.fromkeys(also(plans))))
    return [plan for _, plan in plans if plan is not None]


@dataclass(frozen=True)
class EnsemblePlan:
    """Plans of the runs of an ensemble."""

    plans: list[Plan]
    words: str
    """Number that run at a time here, as text."""
    together: int
    memory: MemoryPlan
    """Memory of the process that runs these together, and of its probe."""

    def to_json(self) -> list[dict[str, Any]]:
        """The plan of each run, with the memory of the process that it is a part of."""
        names = [plan.folder.name if plan.folder else None for plan in self.plans]
        ensemble = {"members": names, "together": self.together}
        memory = self.memory.to_json()
        return [{**plan.to_json(), "ensemble": ensemble, "memory": memory} for plan in self.plans]

    def render(self) -> str:
        return f"{render_plans(self.plans)}\n{self.words}\nmemory {self.memory.summary()}"


def plan_ensembles(configs: Iterable[Config]) -> list[EnsemblePlan]:
    """The plan of each ensemble; how many go together is measured here, in a few steps.

    Raises:
        UserError: as `plan_all`.
    """
    from training.ensemble.probe import Choice, probe
    from training.plan.run_plan import make_plan

    found = []
    for config in configs:
        members = members_of(config)
        plans = plan_all(members, tokenize=False)
        asked = config.ensemble.together
        choice = (
            probe(members[0], len(members)) if asked == AUTO else Choice(min(int(asked), len(members)), {})
        )
        held = max([choice.together, *choice.speedups])  # the run probes again, and holds the largest size
        memory = make_plan(members[0], tokenize=False, together=held).memory
        found.append(EnsemblePlan(plans, choice.words(len(members)), choice.together, memory))
    return found


def check_side_by_side(plans: Sequence[Plan], jobs: int, gpus: Sequence[GpuSlot] = ()) -> None:
    """Check that `jobs` of these runs in parallel fit into the memory of the host and of their GPUs.

    Args:
        gpus: GPU of each slot (`slurm.plans.gpu_slots.gpu_slots`).

    Raises:
        UserError: they do not; it says how many do.
    """
    if (problem := too_many(plans, jobs, gpus)) is not None:
        raise UserError(problem)


def too_many(plans: Sequence[Plan], jobs: int, gpus: Sequence[GpuSlot] = ()) -> Problem | None:
    """The problem that `jobs` runs in parallel do not fit, with the number that does; None: they fit.

    The runs that need most are taken to be in parallel, and on one GPU, as slots are taken in any order.
    """
    to_run = (plan for plan in plans if plan.state != "done" or plan.config.again)
    waiting = {plan.folder or id(plan): plan for plan in to_run}.values()
    refused = [plan.memory for plan in waiting if plan.config.memory.refuse]
    if jobs < 2 or not refused:
        return None
    on_host = sorted((memory.estimate.host_bytes for memory in refused), reverse=True)
    on_gpu = sorted((memory.estimate.gpu_bytes for memory in refused), reverse=True)
    free, count = refused[0].room.free_bytes, len({gpu.name for gpu in gpus})
    gpu_free = min((gpu.free_bytes for gpu in gpus if gpu.free_bytes is not None), default=None)

    def excess(runs: int) -> tuple[int, int, str] | None:
        """Needed and free bytes, and of what, where they do not fit."""
        sharing = -(-min(runs, len(waiting)) // max(1, count))
        if free is not None and sum(on_host[:runs]) > free:
            return sum(on_host[:runs]), free, ""
        if gpu_free is not None and sum(on_gpu[:sharing]) > gpu_free:
            on = f" of a GPU that {sharing} of them share" if sharing > 1 else " of a GPU"
            return sum(on_gpu[:sharing]), gpu_free, on
        return None

    if (too_much := excess(jobs)) is None:
        return None
    needed, available, where = too_much
    fitting = max((runs for runs in range(1, jobs) if excess(runs) is None), default=1)
    return Problem(
        "hydra.launcher.jobs",
        f"{jobs} side by side need {format_bytes(needed)}{where}, {format_bytes(available)} are free. "
        f"What fits: hydra.launcher.jobs={fitting}. To start them all the same: memory.refuse=false",
        code="too-many-jobs",
    )


def _begun_before(
    plan: Plan, config: Config, prepare: Callable[..., Data | MixedData], place: dict[str, Any]
) -> Plan | None:
    """The plan of a run of the same command, not done, that began on less of the same data."""
    from training.plan.run_plan import make_plan

    if plan.identity is None or plan.folder is None or plan.state is not None:
        return None
    begun = plan.folder.parent.glob(f"{glob.escape(run_name(plan.config, ''))}*/status.json")
    for status in sorted(begun, key=lambda path: path.stat().st_mtime, reverse=True):
        if state_of(status.parent) == "done":
            continue
        try:
            data = read_run(status.parent).get("data") or {}
            if plan.data is None or any(data.get(key) != plan.data[key] for key in ("path", "val_path")):
                continue
            versions = tuple(data["sets"])
            if versions == tuple(plan.data["sets"]):
                continue
            again = partial(prepare, versions=versions)
            earlier = make_plan(config, tokenize=False, prepare=again, **place)
        except (KeyError, UserError):  # damaged, or what it read is no longer there
            continue
        if earlier.folder == status.parent:
            tokens = earlier.data["tokens"] if earlier.data else 0
            log.info(
                "%s has %s; %s is not done and goes on with the %s that it began with. For a new run on all "
                "of it: study.name=NAME",
                data["path"],
                "changed" if tokens is None else "grown",
                earlier.folder.name,
                f"commit {versions[0][:12]}" if tokens is None else f"{format_count(tokens)} tokens",
            )
            return earlier
    return None


def _once(prepare_run: Callable[..., Data | MixedData]) -> Callable[..., Data | MixedData]:
    """The same, asked once for each dataset and tokenizer: the runs of a sweep mostly share theirs."""
    asked: dict[str, Data | MixedData | UserError] = {}

    def prepare(dataset: Dataset, tokenizer: Tokenizer, **how: Any) -> Data | MixedData:
        key = repr((dataset, tokenizer, how.get("versions")))
        if key not in asked:
            try:
                asked[key] = prepare_run(dataset, tokenizer, **how)
            except UserError as error:
                asked[key] = error
        answer = asked[key]
        if isinstance(answer, UserError):
            raise answer
        return answer

    return prepare


def render_plans(plans: Sequence[Plan]) -> str:
    """One plan as a page, several as a table with their sum."""
    if len(plans) == 1:
        return plans[0].render()
    settings = varying_settings([plan.config for plan in plans])
    header = ("run", *settings, "parameters", "tokens", "steps", "FLOPs", "memory", "state")
    told = zip(*settings.values(), strict=True) if settings else [()] * len(plans)
    rows = [header, *(_row(plan, cells) for plan, cells in zip(plans, told, strict=True))]
    if len({(plan.config.runs_dir, plan.config.study.name) for plan in plans}) > 1:
        studies = ["study", *(plan.config.study.name or "default" for plan in plans)]
        rows = [(study, *row) for study, row in zip(studies, rows, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<"] * (len(rows[0]) - 6) + [">"] * 5 + ["<"]
    lines = [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
    different = list({plan.folder or id(plan): plan for plan in plans}.values())
    tokens = sum(plan.budget.tokens for plan in different)
    flops = sum(plan.total_flops for plan in different)
    there = sum(plan.state == "done" for plan in different)
    most = max((plan.memory for plan in different), key=lambda found: found.estimate.host_bytes)
    total = (
        f"{counted(len(different), 'run')}, {format_count(tokens)} tokens, {flops:.3g} FLOPs, up to "
        f"{format_bytes(most.estimate.host_bytes)} each of memory{most.free_words()}"
    )
    if len(different) < len(plans):
        total += f"; {len(plans) - len(different)} asked for twice run once"
    if there:
        total += f"; {there} done already"
    texts = sorted({plan.text for plan in plans if plan.text is not None})
    if texts:
        total += f"; not tokenized yet: {', '.join(texts)} (identities after tokenizing)"
    advice = dict.fromkeys(f"advice: {line}" for plan in plans for line in plan.memory.advice)
    return "\n".join([*lines, total, *advice])


def _row(plan: Plan, settings: Iterable[str]) -> tuple[str, ...]:
    return (
        run_name(plan.config, plan.identity or "?"),
        *settings,
        f"{plan.parameters:,}",
        format_count(plan.budget.tokens),
        f"{plan.budget.steps:,}",
        f"{plan.total_flops:.3g}",
        format_bytes(plan.memory.estimate.host_bytes) + ("" if plan.memory.fits else " !"),
        plan.state or "-",
    )
