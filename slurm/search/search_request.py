"""A search as it was asked for, read from the request and checked whole before the first run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
"""Schedules whose runs are the beginning of the same run with a larger budget."""


@dataclass(frozen=True)
class Search:
    """candidates: the values of each that the first rung has. budget: the key, and the whole of it, which the
    last rung has. goes_on: whether a run of a later rung begins where that of the rung before has ended.
    """

    candidates: Sequence[Mapping[str, Value]]
    rungs: Sequence[Rung]
    budget: tuple[str, float]
    goes_on: bool
    fixed: Mapping[str, Value]

    def arguments(self, candidate: Mapping[str, Value], rung: Rung, trunk: str | None = None) -> list[str]:
        """What Hydra's launcher is told of one run. trunk: the folder of the run that it goes on from."""
        key, _ = self.budget
        amount = self.amount(rung)
        values = {**self.fixed, **candidate, key: Value(amount, str(amount))}
        if trunk is not None:
            values |= {"restore.from": Value(trunk, quoted(trunk)), "restore.what": Value("run", "run")}
        return arguments_of(values)

    def amount(self, rung: Rung) -> int | float:
        """Of the budget's key, that each run of the rung has."""
        key, whole = self.budget
        part = whole * rung.share
        return float(f"{part:.6g}") if key == BUDGETS[2] else max(1, round(part))

    def render(self) -> str:
        """For people: rung by rung, and what all of it costs beside the same candidates without halving."""
        key = self.budget[0].partition(".")[2]
        unit = {"max_tokens": "tokens", "max_steps": "steps", "tokens_per_param": "tokens a parameter"}[key]
        lines, whole = [], 0.0
        before: float = 0
        for rung in self.rungs:
            amount = self.amount(rung)
            whole += rung.count * (amount - before)
            goes_on = f", from {_count(before)} on" if before else ""
            lines.append(
                f"rung {rung.number}: {counted(rung.count, 'run')} of {_count(amount)} {unit}{goes_on}"
            )
            before = amount if self.goes_on else 0
        first, last = self.rungs[0].count, self.amount(self.rungs[-1])
        saved = f"all {first} to the end: {_count(first * last)}"
        return "\n".join([*lines, f"together {_count(whole)} {unit}; {saved}"])

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget[0],
            "rungs": [
                {"rung": rung.number, "runs": rung.count, "budget": self.amount(rung)} for rung in self.rungs
            ],
            "goes_on": self.goes_on,
            "candidates": [{key: value.value for key, value in one.items()} for one in self.candidates],
        }


def read_search(request: Request) -> Search:
    """What `hydra/sweeper=halving` is to do.

    Raises:
        UserError: everything that is wrong with it.
    """
    asked, problems = request.sweeper, list[Problem]()
    for name, least in (("samples", 1), ("eta", 2), ("rungs", 1), ("seed", 0)):
        value = asked.get(name)
        is_left = value is None and name in ("samples", "rungs")
        if not is_left and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            what = f"expected a whole number from {least} on, got {value}"
            problems.append(Problem(f"hydra.sweeper.{name}", what))
    how = asked.get("sampling")
    if how not in (SOBOL, RANDOM):
        problems.append(Problem("hydra.sweeper.sampling", no_such("way", str(how), [SOBOL, RANDOM])))
    dimensions, wrong = dimensions_of(request.settings)
    problems += wrong
    budget, wrong = _budget(request.runs[0].config, list(dimensions))
    problems += wrong
    if not dimensions:
        what = (
            "nothing is searched: give a key several values, or 'optimizer.lr=tag(log,interval(1e-4,1e-1))'"
        )
        problems.append(Problem("hydra/sweeper", f"halving: {what}"))
    intervals = [key for key, one in dimensions.items() if isinstance(one, Interval)]
    samples, count = asked.get("samples"), asked.get("rungs")
    if samples is None and intervals:
        what = f"how many candidates are to be drawn from {', '.join(intervals)}? hydra.sweeper.samples=16"
        problems.append(Problem("hydra.sweeper.samples", what))
    if problems:
        raise UserError(*problems)
    eta = int(asked["eta"])
    candidates = every(dimensions) if samples is None else drawn(dimensions, samples, str(how), asked["seed"])
    most = most_rungs(len(candidates), eta)
    if count is not None and count > most:
        what = (
            f"{len(candidates)} candidates, of which 1 in {eta} goes on, make {counted(most, 'rung')} at "
            f"most, got {count}: hydra.sweeper.samples={eta ** (count - 1)}"
        )
        raise UserError(Problem("hydra.sweeper.rungs", what))
    swept = {key: setting.values[0] for key, setting in request.settings.items() if key not in dimensions}
    rungs = rungs_of(len(candidates), eta, count or most)
    return Search(candidates, rungs, budget, _goes_on(request, list(dimensions)), swept)


def _budget(config: Config, searched: Sequence[str]) -> tuple[tuple[str, float], list[Problem]]:
    """The key of the budget and its value, which the last rung has."""
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
        what = "how long does a run of the last rung go? training.max_tokens=10M"
        problems.append(Problem(BUDGETS[0], what))
    return (BUDGETS[0], 0), problems


def _goes_on(request: Request, searched: Sequence[str]) -> bool:
    """Whether a run with a larger budget is the one before, continued, for whatever is drawn."""
    if any(key == "schedule" or key.startswith("schedule.") for key in searched):
        return False
    config = request.runs[0].config
    schedule, training = config.schedule, config.training
    is_absolute = (schedule.warmup_steps, schedule.warmup_tokens) != (None, None)
    is_trunk = schedule.name in _TRUNKS and (is_absolute or not schedule.warmup_fraction)
    is_whole = training.patience is None and training.max_time is None and training.on_spike != "rollback"
    return is_trunk and is_whole and config.restore.from_ is None and not is_ensemble(config)


def _count(amount: float) -> str:
    return format_count(round(amount)) if amount >= 100 else f"{amount:g}"
