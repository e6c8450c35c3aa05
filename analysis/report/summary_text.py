"""The summary of a study in words: did it run, what died, which is best, can it be trusted, what next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from analysis.memory_use import Use
from analysis.reading import Run, Study
from analysis.reading.fair import budgets_note
from analysis.report.failures import Failure, going_on
from analysis.report.families import Families, Family
from analysis.report.learning_rates import edge_words
from analysis.report.memory_section import highest
from experiment_utils.quantities import counted, format_bytes, format_count, format_duration

if TYPE_CHECKING:
    from analysis.rates.best import Noise

_SHOWN = 4
_SETUPS = 12


@dataclass(frozen=True)
class Found:
    """Results of the sections. best: None where losses do not compare or none is done: `no_best` says why."""

    study: Study
    y: str
    best: Run | None
    no_best: str | None
    families: Families | None = None
    failures: Sequence[Failure] = ()
    uses: Sequence[Use] = ()
    laws: Sequence[str] = ()
    wall_s: float = 0.0
    notes: Sequence[str] = field(default_factory=list)


def best_run(study: Study, y: str) -> tuple[Run | None, str | None]:
    """(the run that came to its end with the lowest loss, None), or (None, why there is none)."""
    whole = _whole(study, y)
    if not whole:
        return None, f"no run has come to its end with a {y}"
    kinds = kinds_of_data(study, y)
    if kinds > 1:
        return None, f"runs were evaluated on {kinds} different kinds of data: their losses do not compare"
    return min(whole, key=lambda run: run.number(y) or 0.0), None


def kinds_of_data(study: Study, y: str) -> int:
    """Number of different data that runs of ours were evaluated on; losses of several do not compare."""
    names = ("data", "seq_len", "eval_tokens")
    return len({tuple(str(run.value(name)) for name in names) for run in _whole(study, y) if run.is_ours})


def budgets_of_best(study: Study, y: str) -> str | None:
    """A note next to the best run if its budget is not that of all runs."""
    return budgets_note(run.number("tokens") for run in _whole(study, y))


def _whole(study: Study, y: str) -> list[Run]:
    return [run for run in study.once() if run.counts and math.isfinite(run.number(y) or math.nan)]


QUESTIONS = {
    "runs": "Did it run?",
    "failures": "What died?",
    "best": "Best run",
    "rates": "Learning rate",
    "scaling": "Scaling",
    "memory": "Memory",
    "trust": "Trust",
}


def words(found: Found) -> list[tuple[str, list[str]]]:
    """(question, lines that answer it); questions without an answer in this study are left out."""
    answers = {
        "runs": _ran(found),
        "failures": _died(found.failures),
        "best": _best(found),
        "rates": _rates(found.families) if found.families is not None else [],
        "scaling": list(found.laws),
        "memory": _memory(found.uses),
        "trust": _trust(found),
    }
    return [(QUESTIONS[key], lines) for key, lines in answers.items() if lines]


def states(study: Study) -> str:
    """`46 done, 1 oom`."""
    counts = Counter(run.state for run in study.runs if run.state)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


def _ran(found: Found) -> list[str]:
    runs = found.study.runs
    if not found.study.is_ours:
        return [f"{counted(len(runs), found.study.noun)} of another program: the last values are shown"]
    done = sum(run.state == "done" for run in runs)
    others = Counter(run.state for run in runs if run.state not in ("done", None))
    others_text = ", ".join(f"{count:,} {state}" for state, count in others.most_common())
    lines = [f"{done:,} of {counted(len(runs), 'run')} done" + (f" ({others_text})" if others_text else "")]
    tokens = sum(run.number("tokens") or 0 for run in runs)
    seconds = sum(_finite(run.number("seconds")) for run in runs)
    lines[0] += f"; {format_count(tokens)} tokens in {format_duration(seconds)} of training"
    if going_on(found.study):
        lines.append(f"It is not over: {counted(len(going_on(found.study)), 'run')} wait or go on")
    return lines


def _died(failures: Sequence[Failure]) -> list[str]:
    lines = [f"{len(one.runs):,} {one.state}: {one.reason}" for one in failures[:_SHOWN]]
    return lines + ([f"and {len(failures) - _SHOWN} other reasons, below"] if len(failures) > _SHOWN else [])


def _best(found: Found) -> list[str]:
    if found.best is None:
        return [f"None: {found.no_best}"] if found.no_best else []
    run, loss = found.best, found.best.number(found.y) or math.nan
    bits = run.number("bits_per_byte")
    line = f"{run.name}, {found.y} {loss:.4f}" + (f" ({bits:.4f} bits a byte)" if bits else "")
    note = budgets_of_best(found.study, found.y)
    return [line, *([note[0].upper() + note[1:]] if note else [])]


def _rates(families: Families) -> list[str]:
    lines = [_rate(family) for family in families.with_rates]
    if len(lines) > _SETUPS:
        lines = [*lines[:_SETUPS], f"and {len(lines) - _SETUPS} more, below"]
    return lines + [
        f"The law over width{f' of {setup}' if setup else ''}: {law.words}"
        for setup, law in families.laws.items()
    ]


def _rate(family: Family) -> str:
    best = family.best
    assert best is not None
    lost = f"; diverged: {', '.join(family.size.diverged_at)}" if family.size.diverged_at else ""
    if best.lr is None or best.edge is not None:
        at = "" if best.lr is None else f"{best.lr:.4g}, but "
        return f"{family.label}: {at}{edge_words(family)}{lost}"
    return f"{family.label}: {best.lr:.4g} ({best.interval}), of {len(family.size.rates)} rates tried{lost}"


def _memory(uses: Sequence[Use]) -> list[str]:
    if not uses:
        return []
    most = highest(uses)
    of = f", {100 * (most.share or 0):.0f}% of its limit of {format_bytes(most.limit)}" if most.limit else ""
    lines = [f"The nearest to its limit came to {format_bytes(most.peak)}{of}: {most.run.name}"]
    if not most.limit:
        lines = [f"The highest was {format_bytes(most.peak)}: {most.run.name}"]
    ratios = sorted(use.peak / use.estimate for use in uses if use.estimate and use.run.counts)
    if ratios:
        lines.append(
            f"Of runs that are done, {ratios[0]:.2f} to {ratios[-1]:.2f} times the estimate was used"
        )
    return lines


def _trust(found: Found) -> list[str]:
    lines = []
    noise = found.families.noise if found.families is not None else None
    if noise is not None:
        lines.append(
            f"Seeds near the best rates differ by {noise.deviation:.4f} (standard deviation, {noise.freedom} "
            f"degrees of freedom): differences of two runs below {_luck(noise):.4f} may be luck"
        )
    elif found.families is not None and found.study.is_ours and len(found.study.runs) > 1:
        lines.append("No rate near the best has two seeds: small differences may be luck")
    return lines + [note[0].upper() + note[1:] for note in found.study.notes()]


def _luck(noise: Noise) -> float:
    """Two runs that differ in their seed alone are so near in 95 of 100 cases: each has the deviation."""
    from scipy.special import stdtrit

    return float(stdtrit(noise.freedom, 0.975)) * math.sqrt(2) * noise.deviation


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
