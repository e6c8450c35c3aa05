"""A search, read from a request and checked before its first run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conf import Config
from conf.between_keys.ensembles import is_ensemble
from conf.command_line.request import Request, arguments_of
from conf.composing.overrides import Value, quoted
from conf.suggestions import no_such
from experiment_utils.errors import Problem, UserError
from experiment_utils.quantities import counted, format_count
from slurm.search.rungs import Rung, most_rungs, rungs_of
from slurm.search.space import RANDOM, SOBOL, Interval, dimensions_of, drawn, every

BUDGETS = ("training.max_tokens", "training.max_steps", "training.tokens_per_param")
_TRUNKS = ("constant", "stable")
"""Schedules with which a run is the beginning of the same run with a larger budget."""
_UNITS = {"max_tokens": "tokens", "max_steps": "steps", "tokens_per_param": "tokens a parameter"}


@dataclass(frozen=True)
class Search:
    """Candidates of a search, and its rungs."""

    candidates: Sequence[Mapping[str, Value]]
    """Values of each candidate of the first rung."""
    rungs: Sequence[Rung]
    budget: tuple[str, float]
    """Key of the budget, and its value in the last rung."""
    continues: bool
    """Whether a run of a later rung begins with the checkpoint of the rung before."""
    fixed: Mapping[str, Value]
    """Values that all runs have."""

    def arguments(self, candidate: Mapping[str, Value], rung: Rung, trunk: str | None = None) -> list[str]:
        """Overrides of one run. trunk: folder of the run that it continues."""
        amount = self.amount(rung)
        values = {**self.fixed, **candidate, self.budget[0]: Value(amount, str(amount))}
        if trunk is not None:
            values |= {"restore.from": Value(trunk, quoted(trunk)), "restore.what": Value("run", "run")}
        return arguments_of(values)

    def amount(self, rung: Rung) -> int | float:
        """Budget of each run of the rung."""
        key, whole = self.budget
        part = whole * rung.share
        return float(f"{part:.6g}") if key == BUDGETS[2] else max(1, round(part))

    def render(self) -> str:
        """The rungs for a terminal, and what they cost next to the same candidates without halving."""
        unit = _UNITS[self.budget[0].partition(".")[2]]
        lines, whole, before = list[str](), 0.0, 0.0
        for rung in self.rungs:
            amount = self.amount(rung)
            whole += rung.count * (amount - before)
            start = f", from {_count(before)} on" if before else ""
            lines.append(
                f"rung {rung.number}: {counted(rung.count, 'run')} of {_count(amount)} {unit}{start}"
            )
            before = amount if self.continues else 0.0
        first, last = self.rungs[0].count, self.amount(self.rungs[-1])
        saved = f"all {first} to the end: {_count(first * last)}"
        return "\n".join([*lines, f"together {_count(whole)} {unit}; {saved}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget[0],
            "rungs": [
                {"rung": rung.number, "runs": rung.count, "budget": self.amount(rung)} for rung in self.rungs
            ],
            "goes_on": self.continues,
            "candidates": [{key: value.value for key, value in one.items()} for one in self.candidates],
        }


def read_search(request: Request) -> Search:
    """Read and check a request with `hydra/sweeper=halving`.

    Raises:
        UserError: everything that is wrong with it.
    """
    asked, problems = request.sweeper, list(_problems_with_numbers(request.sweeper))
    dimensions, wrong = dimensions_of(request.settings)
    problems += wrong
    budget, wrong = _budget(request.runs[0].config, dimensions)
    problems += wrong
    if not dimensions:
        what = "give a key several values, or 'optimizer.lr=tag(log,interval(1e-4,1e-1))'"
        problems.append(Problem("hydra/sweeper", f"halving: nothing is searched: {what}"))
    intervals = [key for key, one in dimensions.items() if isinstance(one, Interval)]
    samples, count = asked.get("samples"), asked.get("rungs")
    if samples is None and intervals:
        what = f"how many candidates are to be drawn from {', '.join(intervals)}? hydra.sweeper.samples=16"
        problems.append(Problem("hydra.sweeper.samples", what))
    if problems:
        raise UserError(*problems)
    eta, how = int(asked["eta"]), str(asked["sampling"])
    candidates = every(dimensions) if samples is None else drawn(dimensions, samples, how, asked["seed"])
    most = most_rungs(len(candidates), eta)
    if count is not None and count > most:
        what = (
            f"{len(candidates)} candidates, of which 1 in {eta} continues, make {counted(most, 'rung')} at "
            f"most, got {count}: hydra.sweeper.samples={eta ** (count - 1)}"
        )
        raise UserError(Problem("hydra.sweeper.rungs", what))
    fixed = {key: setting.values[0] for key, setting in request.settings.items() if key not in dimensions}
    rungs = rungs_of(len(candidates), eta, count or most)
    return Search(candidates, rungs, budget, _continues(request.runs[0].config, dimensions), fixed)


def _problems_with_numbers(asked: Mapping[str, Any]) -> Iterator[Problem]:
    for name, least in (("samples", 1), ("eta", 2), ("rungs", 1), ("seed", 0)):
        value = asked.get(name)
        is_left = value is None and name in ("samples", "rungs")
        if not is_left and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            yield Problem(f"hydra.sweeper.{name}", f"expected a whole number from {least} on, got {value}")
    if asked.get("sampling") not in (SOBOL, RANDOM):
        what = no_such("way", str(asked.get("sampling")), [SOBOL, RANDOM])
        yield Problem("hydra.sweeper.sampling", what)


def _budget(config: Config, searched: Collection[str]) -> tuple[tuple[str, float], list[Problem]]:
    """The key of the budget with its value in the last rung, and what is wrong with it."""
    problems = [
        Problem(key, "the rungs say how long a run goes: give one value, that of the last rung")
        for key in searched
        if key in BUDGETS
    ]
    for key in BUDGETS:
        value = getattr(config.training, key.partition(".")[2])
        if value is not None:
            return (key, value), problems
    if not problems:
        problems.append(
            Problem(BUDGETS[0], "how long does a run of the last rung go? training.max_tokens=10M")
        )
    return (BUDGETS[0], 0), problems


def _continues(config: Config, searched: Collection[str]) -> bool:
    """Whether a run with a larger budget is the one before, continued, for all values that are searched."""
    if any(key == "schedule" or key.startswith("schedule.") for key in searched):
        return False
    schedule, training = config.schedule, config.training
    is_absolute = (schedule.warmup_steps, schedule.warmup_tokens) != (None, None)
    is_trunk = schedule.name in _TRUNKS and (is_absolute or not schedule.warmup_fraction)
    is_whole = training.patience is None and training.max_time is None and training.on_spike != "rollback"
    return is_trunk and is_whole and config.restore.from_ is None and not is_ensemble(config)


def _count(amount: float) -> str:
    return format_count(round(amount)) if amount >= 100 else f"{amount:g}"
