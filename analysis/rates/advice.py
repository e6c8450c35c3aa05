"""What a sweep of learning rates lacks, and the commands that add it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.next_steps import again, larger_size
from analysis.rates.best import Best, Noise
from analysis.rates.law import RateLaw
from analysis.reading.study import Run, Study
from analysis.run_folder import RunFolder

_BEYOND = 2
"""How many rates are added where the edge is the best."""


@dataclass(frozen=True)
class Advice:
    """what: a sentence. command: None where runs are not ours to start."""

    size: str | None
    what: str
    command: str | None = None


def advice(study: Study, found: Sequence[Best], noise: Noise | None, law: RateLaw | None) -> list[Advice]:
    """In the order in which it should be followed."""
    told = [*_edges(study, found), *_missing(study, found), *_died(study), *_seeds(found, noise, study)]
    if law is None and study.is_ours:
        inside = sum(best.is_inside for best in found)
        told.append(Advice(None, f"a law over width needs >= 3 sizes with their best inside, has {inside}"))
    if law is not None and not told:
        told += _larger(study, found, law)
    return told


def _edges(study: Study, found: Sequence[Best]) -> list[Advice]:
    told = []
    for best in found:
        if best.edge is None:
            if best.lr is None:
                told.append(Advice(best.size.name, best.why_not or "", None))
            continue
        rates = [rate.lr for rate in best.size.good]
        step = rates[1] / rates[0] if best.edge == "low" else rates[-1] / rates[-2]
        beyond = [
            rates[0] / step**count if best.edge == "low" else rates[-1] * step**count
            for count in range(1, _BEYOND + 1)
        ]
        which = "smallest" if best.edge == "low" else "largest"
        told.append(
            Advice(
                best.size.name,
                f"the {which} rate is the best: the lowest point lies outside the grid",
                _command(study, best.size.runs, sorted(beyond)),
            )
        )
    return told


def _missing(study: Study, found: Sequence[Best]) -> list[Advice]:
    """Rates that other sizes have between the outermost that bracket a best."""
    every = sorted({f"{rate.lr:.6g}": rate.lr for best in found for rate in best.size.rates}.values())
    told = []
    for best in found:
        own = [rate.lr for rate in best.size.rates]
        absent = [lr for lr in every if not any(math.isclose(lr, one, rel_tol=1e-3) for one in own)]
        top = min((rate.lr for rate in best.size.rates if rate.has_diverged), default=math.inf)
        absent = [lr for lr in absent if lr < top]
        if absent:
            shown = ", ".join(f"{lr:.3g}" for lr in absent)
            told.append(
                Advice(
                    best.size.name,
                    f"lacks {len(absent)} rate{'s' * (len(absent) > 1)} that other sizes have: {shown}",
                    _command(study, best.size.runs, absent),
                )
            )
    return told


def _died(study: Study) -> list[Advice]:
    died = [run for run in study.once() if run.state not in ("done", None) and not run.has_diverged]
    if not died:
        return []
    return [
        Advice(
            None,
            f"{len(died)} run{'s' * (len(died) > 1)} did not come to their end and are left out",
            f"python -m slurm resubmit {died[0].folder.parent}",
        )
    ]


def _seeds(found: Sequence[Best], noise: Noise | None, study: Study) -> list[Advice]:
    """Sizes whose best rate differs from its neighbours by less than seeds of one rate do."""
    if noise is None or not noise.from_seeds:
        return []
    told = []
    for best in found:
        if not best.is_inside:
            continue
        y = best.size.y
        place = int(y.argmin())
        if not 0 < place < len(y) - 1:
            continue
        between = float(max(y[place - 1], y[place + 1]) - y[place])
        count = len(best.size.good[place].losses)
        if noise.deviation > between:
            told.append(
                Advice(
                    best.size.name,
                    f"seeds differ by more (s.d. {noise.deviation:.4f}) than the rates round the best "
                    f"({between:.4f}): take more seeds than {count}",
                    _more_seeds(study, best),
                )
            )
    return told


def _more_seeds(study: Study, best: Best) -> str | None:
    if not study.is_ours:
        return None
    place = int(best.size.y.argmin())
    rates = [rate.lr for rate in best.size.good[place - 1 : place + 2]]
    last = max(int(run.number("seed") or 0) for run in best.size.runs)
    run = RunFolder(best.size.runs[0].folder)
    return again(run, {"optimizer.lr": _typed(rates), "seed": f"{last + 1},{last + 2}"})


def _larger(study: Study, found: Sequence[Best], law: RateLaw) -> list[Advice]:
    """The next size, at the rate that the law foretells and one on each side."""
    if not study.is_ours:
        return []
    widest = max(found, key=lambda best: best.size.width or 0.0)
    run = RunFolder(widest.size.runs[0].folder)
    name = larger_size(run, 2)
    if name is None or not name.removesuffix("d").isdigit():
        return []
    rate = law.at(float(name.removesuffix("d")))
    rates = [float(f"{rate * factor:.2g}") for factor in (10**-0.25, 1, 10**0.25)]
    told = f"the law foretells {rate:.3g} at {name}: try it, and a rate on each side"
    return [Advice(None, told, again(run, {"optimizer.lr": _typed(rates)}, model=name))]


def _command(study: Study, runs: Sequence[Run], rates: Sequence[float]) -> str | None:
    if not study.is_ours:
        return None
    return again(RunFolder(runs[0].folder), {"optimizer.lr": _typed(rates)})


def _typed(rates: Sequence[float]) -> str:
    return ",".join(f"{rate:.4g}" for rate in rates)
