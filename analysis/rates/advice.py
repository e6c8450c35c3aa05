"""Rates and seeds that a sweep of learning rates lacks, and the commands that add them."""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.next_steps import again, larger_size
from analysis.rates.best import Best, Noise
from analysis.rates.grid import is_same_rate
from analysis.rates.law import RateLaw
from analysis.reading.study import GOING_ON, Run, Study
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from experiment_utils.run_folder import RunFolder

_BEYOND = 2
"""Number of rates that are added beyond an edge that is the best."""
_HOLE = 1.5
"""Steps of the grid, in logs: a wider one lacks a rate."""
_FIRST_STEP = 10**0.5
"""From one rate to the next, where only one is known."""


@dataclass(frozen=True)
class Advice:
    """A sentence and a command; the command is None for runs of other programs."""

    size: str | None
    what: str
    command: str | None = None


def advice(
    study: Study,
    found: Sequence[Best],
    noise: Noise | None,
    laws: Mapping[str, RateLaw],
    *,
    asks_for_seeds: bool = True,
) -> list[Advice]:
    """In the order in which it should be followed. laws: by setup. asks_for_seeds: the noise is unknown."""
    items = [*_edges(study, found), *_missing(study, found), *_died(study), *_seeds(found, noise, study)]
    setups = list(dict.fromkeys(best.size.setup for best in found))
    for setup in setups:
        own = [best for best in found if best.size.setup == setup]
        if setup in laws:
            if not items:
                items += _larger(study, own, laws[setup])
        elif study.is_ours:
            inside = sum(best.is_inside for best in own)
            words = f"a law over width needs >= 3 sizes with their best inside, has {inside}"
            items.append(Advice(None, f"{setup}: {words}" if setup else words))
    return items + (_second_seed(found, noise, study) if asks_for_seeds else [])


def what_lacks(study: Study, tried: Sequence[float], pending: Sequence[Run]) -> str:
    """The next step for fewer than three rates: wait for runs, or the command that adds rates."""
    if pending and study.is_ours:
        place = " ".join(dict.fromkeys(shlex.quote(str(run.folder.parent)) for run in pending))
        return f"; {counted(len(pending), 'run')} {_are(pending)} not done: python -m slurm status {place}"
    rates = sorted(tried)
    if not study.is_ours or not rates:
        return ""
    run = next((run for one in study.runs if (run := RunFolder(one.folder)).config), None)
    if run is None:
        return ""
    step = rates[-1] / rates[0] if len(rates) > 1 else _FIRST_STEP
    more = [rates[0] / step, *(rates[-1] * step**count for count in range(1, 4 - len(rates)))]
    try:
        return f"; run more: {again(run, {'optimizer.lr': _typed(more)})}"
    except UserError:  # a configuration of another version
        return ""


def _edges(study: Study, found: Sequence[Best]) -> list[Advice]:
    items = []
    for best in found:
        if best.edge is None:
            if best.lr is None:
                below = _below(best)
                command = _command(study, best.size.runs, below) if below else None
                items.append(Advice(best.size.name, best.why_not or "", command))
            continue
        if best.awaited:  # in the hole that they leave the best may well lie
            items.append(Advice(best.size.name, best.edge_words))
            continue
        rates, step = [rate.lr for rate in best.size.good], _step(found, best)
        beyond = [
            rates[0] / step**count if best.edge == "low" else rates[-1] * step**count
            for count in range(1, _BEYOND + 1)
        ]
        items.append(Advice(best.size.name, best.edge_words, _command(study, best.size.runs, sorted(beyond))))
    return items


def _below(best: Best) -> list[float]:
    """Smaller rates for a size that has too few, since larger ones diverged: so that four are done."""
    rates = [rate.lr for rate in best.size.good]
    if not rates or not any(rate.has_diverged and rate.lr > rates[-1] for rate in best.size.rates):
        return []
    step = rates[1] / rates[0] if len(rates) > 1 else _FIRST_STEP
    return [rates[0] / step**count for count in range(4 - len(rates), 0, -1)]


def _step(found: Sequence[Best], best: Best) -> float:
    """From one rate of the grid to the next at its end; the least there is where that is a hole."""
    rates = sorted({*_tried(found, best), *best.size.pending})
    ratios = [high / low for low, high in itertools.pairwise(rates) if not is_same_rate(high, low)]
    own = [rate.lr for rate in best.size.good]
    last = own[1] / own[0] if best.edge == "low" else own[-1] / own[-2]
    return last if last < min(ratios) ** _HOLE else min(ratios)


def _tried(found: Sequence[Best], best: Best) -> list[float]:
    """Rates of all sizes of its setup."""
    same = [one.size for one in found if one.size.setup == best.size.setup]
    rates: list[float] = []
    for rate in sorted(rate.lr for size in same for rate in size.rates):
        if not rates or not is_same_rate(rates[-1], rate):
            rates.append(rate)
    return rates


def _missing(study: Study, found: Sequence[Best]) -> list[Advice]:
    """Rates that other sizes have between the outermost that bracket a best."""
    items = []
    for best in found:
        own = [*(rate.lr for rate in best.size.rates), *best.size.pending]
        every = _tried(found, best)
        absent = [lr for lr in every if not any(is_same_rate(lr, one) for one in own)]
        top = min((rate.lr for rate in best.size.rates if rate.has_diverged), default=math.inf)
        absent = [lr for lr in absent if lr < top]
        if absent:
            shown = ", ".join(f"{lr:.3g}" for lr in absent)
            items.append(
                Advice(
                    best.size.name,
                    f"lacks {len(absent)} rate{'s' * (len(absent) > 1)} that other sizes have: {shown}",
                    _command(study, best.size.runs, absent),
                )
            )
    return items


def _died(study: Study) -> list[Advice]:
    if not study.is_ours:
        return []
    others = [run for run in study.once() if run.state not in ("done", None) and not run.has_diverged]
    going = [run for run in others if run.state in GOING_ON]
    died = [run for run in others if run.state not in GOING_ON]
    items = []
    if died:
        items.append(
            Advice(
                None,
                f"{counted(len(died), 'run')} died on the way and {_are(died)} left out",
                f"python -m slurm resubmit {shlex.quote(str(died[0].folder.parent))}",
            )
        )
    if going:
        items.append(Advice(None, f"{counted(len(going), 'run')} {_are(going)} not done yet: ask again then"))
    return items


def _are(runs: Sequence[Run]) -> str:
    return "is" if len(runs) == 1 else "are"


def _seeds(found: Sequence[Best], noise: Noise | None, study: Study) -> list[Advice]:
    """Sizes whose best rate differs from its neighbours by less than seeds of one rate do."""
    if noise is None:
        return []
    items = []
    for best in found:
        if best.lr is None:
            continue
        y = best.size.y
        place = int(y.argmin())
        around = [y[at] for at in (place - 1, place + 1) if 0 <= at < len(y)]
        between = float(max(around) - y[place])
        count = len(best.size.good[place].losses)
        if noise.deviation > between:
            items.append(
                Advice(
                    best.size.name,
                    f"seeds differ by more (s.d. {noise.deviation:.4f}) than the rates round the best "
                    f"({between:.4f}): take more seeds than {count}",
                    _more_seeds(study, best),
                )
            )
    return items


def _second_seed(found: Sequence[Best], noise: Noise | None, study: Study) -> list[Advice]:
    """Seeds at the best rates of one size, which make the noise known: it is pooled over sizes."""
    best = next((best for best in found if best.is_inside), None)
    if noise is not None or best is None or not study.is_ours:
        return []
    words = "no rate near the best has two seeds: add them, so that the interval knows how much seeds differ"
    return [Advice(best.size.name, words, _more_seeds(study, best))]


def _more_seeds(study: Study, best: Best) -> str | None:
    if not study.is_ours:
        return None
    place = int(best.size.y.argmin())
    rates = [rate.lr for rate in best.size.good[max(0, place - 1) : place + 2]]
    last = max(int(run.number("seed") or 0) for run in best.size.runs)
    run = RunFolder(best.size.runs[0].folder)
    return again(run, {"optimizer.lr": _typed(rates), "seed": f"{last + 1},{last + 2}"})


def _larger(study: Study, found: Sequence[Best], law: RateLaw) -> list[Advice]:
    """The next size, at the rate that the law predicts and one on each side."""
    if not study.is_ours:
        return []
    widest = max(found, key=lambda best: best.size.width or 0.0)
    run = RunFolder(widest.size.runs[0].folder)
    name = larger_size(run, 2)
    if name is None or not name.removesuffix("d").isdigit():
        return []
    rate = law.at(float(name.removesuffix("d")))
    rates = [float(f"{rate * factor:.2g}") for factor in (10**-0.25, 1, 10**0.25)]
    words = f"the law predicts {rate:.3g} at {name}: try it, and a rate on each side"
    return [Advice(None, words, again(run, {"optimizer.lr": _typed(rates)}, model=name))]


def _command(study: Study, runs: Sequence[Run], rates: Sequence[float]) -> str | None:
    if not study.is_ours:
        return None
    return again(RunFolder(runs[0].folder), {"optimizer.lr": _typed(rates)})


def _typed(rates: Sequence[float]) -> str:
    return ",".join(f"{rate:.4g}" for rate in rates)
