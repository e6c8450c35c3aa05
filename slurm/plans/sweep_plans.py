"""The plans of all runs of a sweep: made together, shown as one table."""

from __future__ import annotations

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conf import AUTO, Config
from conf.between_keys.ensembles import members_of
from conf.composing.differences import changes
from conf.composing.overrides import typed_at
from conf.composing.run_identity import makes_another_run, run_name, varying_settings
from experiment_utils.display import table
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_count
from memory import format_bytes
from training.attempt.run_files import read_run, state_of

if TYPE_CHECKING:
    from conf.schema import Dataset, Tokenizer
    from data_loading import Data, MixedData
    from slurm.plans.ensembles import Place
    from slurm.plans.gpu_slots import GpuSlot
    from training.plan.memory_plan import MemoryPlan
    from training.plan.run_plan import Plan, RunCost

log = logging.getLogger("slurm")


def plan_all(
    configs: Iterable[Config],
    *,
    tokenize: bool,
    place: Place = lambda config: {},
    also: Callable[[Sequence[tuple[Config, Plan | None]]], Iterable[Problem]] = lambda plans: (),
) -> list[Plan]:
    """Plan each configuration, in order.

    A run of the same command that is not done keeps the data that it began with, also if they have grown.

    Args:
        tokenize: They are to be run; False: the plans are only shown.
        place: Where each of them runs, if not here (`slurm.cluster.place`).
        also: Asked for further problems if there are some. It gets each configuration with its plan, None
            if that could not be made.

    Raises:
        UserError: The problems of all of them, each once.
    """
    from training.plan.run_plan import make_plan

    shared = _SharedFacts()
    plans: list[tuple[Config, Plan | None]] = []
    problems: dict[Problem, None] = {}
    for config in configs:
        plan: Plan | None = None
        make = partial(make_plan, config, cost=shared.cost, **place(config))
        try:
            plan = make(tokenize=tokenize, log=log.info, prepare=shared.prepare)
            plan = _begun_before(plan, make, shared) or plan
            if tokenize and (plan.state != "done" or config.again):
                plan.memory.check(refuse=config.memory.refuse)  # the run itself logs the warnings
        except UserError as error:
            problems |= dict.fromkeys(error.problems)
        plans.append((config, plan))
    made = [plan for _, plan in plans if plan is not None]
    problems |= dict.fromkeys(_different_settings(made))
    if problems:
        raise UserError(*(problems | dict.fromkeys(also(plans))))
    return made


class _SharedFacts:
    """Facts that runs of a sweep share: those of each dataset, and the cost of each shape."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._runs: dict[Path, dict[str, list[Path]]] = {}

    def prepare(self, dataset: Dataset, tokenizer: Tokenizer, **how: Any) -> Data | MixedData:
        """`data_loading.prepare_run`, once for each dataset, tokenizer and version of it."""
        from data_loading import prepare_run

        key = repr((dataset, tokenizer, how.get("versions")))
        found: Data | MixedData = self._once(key, partial(prepare_run, dataset, tokenizer, **how))
        return found

    def cost(self, shape: Config, data: Data | MixedData | None, missing: Any, **place: Any) -> RunCost:
        """`training.plan.run_plan.run_cost`, once for each shape, data and place."""
        from training.plan.run_plan import run_cost

        room = place.get("room")
        if room is not None:  # `raised` follows from the configuration
            room = dataclasses.replace(room, raised=None)
        key = repr((shape, id(data), {**place, "room": room}))
        found: RunCost = self._once(key, partial(run_cost, shape, data, missing, **place))
        return found

    def runs_named(self, study: Path, name: str) -> list[Path]:
        """Run folders of a study with this name before their identity, the newest status first."""
        if study not in self._runs:
            self._runs[study] = defaultdict(list)
            for status in study.glob("*/status.json"):
                self._runs[study][f"{status.parent.name.rpartition('-')[0]}-"].append(status)
        found = self._runs[study].get(name, [])
        return [status.parent for status in sorted(found, key=lambda path: -path.stat().st_mtime)]

    def _once(self, key: str, compute: Callable[[], Any]) -> Any:
        if key not in self._known:
            try:
                self._known[key] = compute()
            except UserError as error:
                self._known[key] = error
        if isinstance(self._known[key], UserError):
            raise self._known[key]
        return self._known[key]


def _different_settings(plans: Sequence[Plan]) -> Iterable[Problem]:
    """Problems of runs in one folder with different settings, of which one would be lost."""
    from conf.composing.check import to_plain

    first: dict[Any, Plan] = {}
    for plan in plans:
        other = first.setdefault(plan.folder or id(plan), plan)
        if other.config == plan.config:
            continue
        differing = changes(to_plain(other.config), to_plain(plan.config), _is_setting)
        for key, values in differing.items():
            one, two = (typed_at(key, value) for value in values)
            yield Problem(
                key,
                f"cannot be swept: {one} and {two} make one and the same run. Give one value",
                code="different-settings-of-a-run",
            )


def _is_setting(path: str) -> bool:
    return not makes_another_run(path)


def _begun_before(plan: Plan, make: Callable[..., Plan], shared: _SharedFacts) -> Plan | None:
    """The plan of a run of the same command, not done, that began on an earlier version of its data."""
    if plan.identity is None or plan.folder is None or plan.data is None or plan.state is not None:
        return None
    for folder in shared.runs_named(plan.folder.parent, run_name(plan.config, "")):
        if state_of(folder) == "done":
            continue
        try:
            data = read_run(folder).get("data") or {}
            versions = tuple(data.get("sets") or ())
            is_other = any(data.get(key) != plan.data[key] for key in ("path", "val_path"))
            if is_other or not versions or versions == tuple(plan.data["sets"]):
                continue
            earlier = make(tokenize=False, prepare=partial(shared.prepare, versions=versions))
        except (KeyError, UserError):  # damaged, or its data no longer exist
            continue
        if earlier.folder == folder:
            log.info(
                "%s has changed; %s is not done and keeps the version that it began with. For a new run on "
                "the present one: study.name=NAME",
                data["path"],
                folder.name,
            )
            return earlier
    return None


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
    """Plan each ensemble; a probe of a few steps measures how many runs go together here.

    Raises:
        UserError: as `plan_all`.
    """
    from training.ensemble.probe import Choice, probe
    from training.plan.run_plan import make_plan

    found = []
    for config in configs:
        members, wanted = members_of(config), config.ensemble.together
        plans = plan_all(members, tokenize=False)
        if wanted == AUTO:
            choice = probe(members[0], len(members))
        else:
            choice = Choice(min(int(wanted), len(members)), {})
        held = max([choice.together, *choice.speedups])  # the run probes again, and holds the largest size
        memory = make_plan(members[0], tokenize=False, together=held).memory
        found.append(EnsemblePlan(plans, choice.words(len(members)), choice.together, memory))
    return found


def check_side_by_side(plans: Sequence[Plan], jobs: int, gpus: Sequence[GpuSlot] = ()) -> None:
    """Check that `jobs` of these runs in parallel fit into the memory of the host and of their GPUs.

    Args:
        gpus: GPU of each slot (`slurm.plans.gpu_slots.gpu_slots`).

    Raises:
        UserError: they do not; it has the number that does.
    """
    if (problem := too_many(plans, jobs, gpus)) is not None:
        raise UserError(problem)


def too_many(plans: Sequence[Plan], jobs: int, gpus: Sequence[GpuSlot] = ()) -> Problem | None:
    """The problem that `jobs` runs in parallel do not fit, with the number that does; None: they fit.

    Slots are taken in any order, so the runs that need most can be in parallel, and on one GPU.
    """
    waiting = [plan for plan in _different(plans) if plan.state != "done" or plan.config.again]
    refused = [plan.memory for plan in waiting if plan.config.memory.refuse]
    if jobs < 2 or not refused:
        return None
    on_host = sorted((memory.estimate.host_bytes for memory in refused), reverse=True)
    on_gpu = sorted((memory.estimate.gpu_bytes for memory in refused), reverse=True)
    gpu_free = min((gpu.free_bytes for gpu in gpus if gpu.free_bytes is not None), default=None)

    def excess(runs: int) -> str | None:
        """Needed and free memory, if these runs do not fit."""
        sharing = -(-min(runs, len(waiting)) // max(1, len({gpu.name for gpu in gpus})))
        whose = f" of a GPU that {sharing} of them share" if sharing > 1 else " of a GPU"
        needs = ((sum(on_host[:runs]), refused[0].room.free_bytes, ""),
                 (sum(on_gpu[:sharing]), gpu_free, whose))  # fmt: skip
        for needed, free, where in needs:
            if free is not None and needed > free:
                return f"{format_bytes(needed)}{where}, {format_bytes(free)} are free"
        return None

    if (too_much := excess(jobs)) is None:
        return None
    fitting = max((runs for runs in range(1, jobs) if excess(runs) is None), default=1)
    return Problem(
        "hydra.launcher.jobs",
        f"{jobs} in parallel need {too_much}. What fits: hydra.launcher.jobs={fitting}. To start all {jobs} "
        "without this check: memory.refuse=false",
        code="too-many-jobs",
    )


def _different(plans: Sequence[Plan]) -> list[Plan]:
    """The plans, each run once."""
    return list({plan.folder or id(plan): plan for plan in plans}.values())


def render_plans(plans: Sequence[Plan]) -> str:
    """One plan as a page, several as a table with their sum."""
    if len(plans) == 1:
        return plans[0].render()
    settings = varying_settings([plan.config for plan in plans])
    columns: dict[str, list[str]] = {}
    if len({(plan.config.runs_dir, plan.config.study.name) for plan in plans}) > 1:
        columns["study"] = [plan.config.study.name or "default" for plan in plans]
    columns |= {"run": [run_name(plan.config, plan.identity or "?") for plan in plans], **settings}
    columns["parameters"] = [f"{plan.parameters:,}" for plan in plans]
    columns["tokens"] = [format_count(plan.budget.tokens) for plan in plans]
    columns["steps"] = [f"{plan.budget.steps:,}" for plan in plans]
    columns["FLOPs"] = [f"{plan.total_flops:.3g}" for plan in plans]
    columns["memory"] = [
        format_bytes(plan.memory.estimate.host_bytes) + ("" if plan.memory.fits else " !") for plan in plans
    ]
    columns["state"] = [plan.state or "-" for plan in plans]
    numbers = range(len(columns) - 6, len(columns) - 1)
    rows = list(zip(*columns.values(), strict=True))
    advice = dict.fromkeys(f"advice: {line}" for plan in plans for line in plan.memory.advice)
    return "\n".join([*table(list(columns), rows, right=numbers), _total(plans), *advice])


def _total(plans: Sequence[Plan]) -> str:
    """Runs, tokens and FLOPs of all of them, each run counted once."""
    different = _different(plans)
    tokens = sum(plan.budget.tokens for plan in different)
    flops = sum(plan.total_flops for plan in different)
    done = sum(plan.state == "done" for plan in different)
    most = max((plan.memory for plan in different), key=lambda found: found.estimate.host_bytes)
    total = (
        f"{counted(len(different), 'run')}, {format_count(tokens)} tokens, {flops:.3g} FLOPs, up to "
        f"{format_bytes(most.estimate.host_bytes)} each of memory{most.free_words()}"
    )
    if len(different) < len(plans):
        total += f"; {len(plans) - len(different)} asked for twice run once"
    if done:
        total += f"; {done} done already"
    texts = sorted({plan.text for plan in plans if plan.text is not None})
    if texts:
        total += f"; not tokenized yet: {', '.join(texts)} (identities after tokenizing)"
    return total
