"""Whether one way of training is better than another: the same budget, paired seeds, an interval and a p.

Runs of a group are alike but for what varies within both groups, seeds mostly: that pairs them. Student's t
of the paired differences; where seeds do not pair, that of the two means without assuming that both groups
scatter alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from analysis.columns import varying_columns
from analysis.reading.fair import SAME_TOKENS
from analysis.reading.study import Run
from analysis.setups import BUDGETS, SEEDS
from experiment_utils.errors import UserError
from experiment_utils.json_values import is_number

LEVEL = 0.95


@dataclass(frozen=True)
class Group:
    """Runs that are one way of training. name: as the user gave it, or what sets it apart."""

    name: str
    runs: tuple[Run, ...]

    def losses(self, y: str) -> list[float]:
        return [run.number(y) or 0.0 for run in self.runs]


@dataclass(frozen=True)
class Pair:
    """Two runs and the values that they share (`seed 1`)."""

    what: str
    a: float
    b: float


@dataclass(frozen=True)
class Comparison:
    """difference: mean of b less that of a; low, high, p: None where no test is possible, and `why_not`.
    p: of several comparisons after Holm's correction. alone: names of runs without a partner, which are not
    in the difference.
    """

    a: str
    b: str
    difference: float
    low: float | None
    high: float | None
    p: float | None
    paired: bool
    pairs: tuple[Pair, ...]
    counts: tuple[int, int]
    why_not: str | None = None
    alone: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """In words."""
        if self.p is None or self.low is None or self.high is None:
            return f"{self.why_not}"
        if self.low <= 0 <= self.high:
            reach = (self.high - self.low) / 2
            return f"no difference that so few runs can show: it would have to be above {reach:.4f}"
        if self.p > 1 - LEVEL:
            return "alone this would be a difference; with several comparisons, one can look so by chance"
        lower = self.b if self.difference < 0 else self.a
        return f"{lower} is lower"


def differing(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Columns and config paths whose values are not the same in all groups, to these values: of each group
    all that it has. Seeds only where each group has one.
    """
    names = varying_columns([run for group in groups for run in group.runs])
    found = {}
    for name in names:
        values = [_values(group, name) for group in groups]
        if len({frozenset(one) for one in values}) > 1 and not (name in SEEDS and max(map(len, values)) > 1):
            found[name] = [", ".join(one) for one in values]
    return {name: values for name, values in found.items() if name not in BUDGETS}


def _values(group: Group, name: str) -> list[str]:
    values = {repr(run.value(name)): run.value(name) for run in group.runs}.values()
    return [_shown(value) for value in sorted(values, key=_rank)]


def _rank(value: Any) -> tuple[bool, float, str]:
    return not is_number(value), float(value) if is_number(value) else 0.0, str(value)


def _differing_names(groups: Sequence[Group]) -> set[str]:
    """Columns of one value in each group that are not the same in all: what is compared."""
    names = varying_columns([run for group in groups for run in group.runs])
    values = {name: [{repr(run.value(name)) for run in group.runs} for group in groups] for name in names}
    return {
        name
        for name, each in values.items()
        if all(len(one) == 1 for one in each) and len({frozenset(one) for one in each}) > 1
    }


def check_budgets(groups: Sequence[Group], *, is_common: bool = False) -> None:
    """Whether all read as many tokens, where they tell. is_common: these are runs where all have been.

    Raises:
        UserError: they did not.
    """
    tokens = {
        group.name: {run.number("tokens") for run in group.runs if run.number("tokens")} for group in groups
    }
    every = [count for counts in tokens.values() for count in counts if count]
    if every and max(every) > min(every) * (1 + SAME_TOKENS):
        tokens_text = "; ".join(
            f"{name}: {', '.join(f'{count:,.0f}' for count in sorted(c for c in counts if c))}"
            for name, counts in tokens.items()
        )
        instead = "Compare them where all have been with --at-tokens common, or go"
        if is_common:
            instead = "They were evaluated at no common number of tokens. Go"
        raise UserError(
            f"these runs did not read the same tokens ({tokens_text}): a longer run is lower for that alone. "
            f"{instead} on all the same with --any-data"
        )


def compare(groups: Sequence[Group], y: str) -> list[Comparison]:
    """Each group but the first with the first."""
    first, *others = groups
    apart = _differing_names(groups)
    return _corrected([_compare(first, other, y, apart) for other in others])


def _compare(a: Group, b: Group, y: str, apart: set[str]) -> Comparison:
    import numpy as np
    from scipy import stats

    pairs, alone = _pairs(a, b, y, apart)
    counts = (len(a.runs), len(b.runs))
    if pairs and (len(pairs) == min(counts) or (len(pairs) > 1 and not _are_seeds(alone, a, b, apart))):
        return replace(_of_pairs(a, b, pairs, counts), alone=tuple(run.name for run in alone))
    first, second = np.array(a.losses(y)), np.array(b.losses(y))
    difference = float(second.mean() - first.mean())
    if min(counts) < 2 or float(np.ptp(first)) + float(np.ptp(second)) < 1e-12:
        why = "their seeds do not pair, and a group has one run: run the same seeds of both"
        return Comparison(a.name, b.name, difference, None, None, None, False, (), counts, why)
    error = math.hypot(stats.sem(first), stats.sem(second))
    # Welch's degrees of freedom are estimated: with skewed noise their 95% intervals hold 87% of the time
    freedom = min(counts) - 1
    reach = error * float(stats.t.ppf((1 + LEVEL) / 2, freedom))
    p = 2 * float(stats.t.sf(abs(difference) / error, freedom))
    return Comparison(
        a.name, b.name, difference, difference - reach, difference + reach, p, False, (), counts
    )  # fmt: skip


def _of_pairs(a: Group, b: Group, pairs: Sequence[Pair], counts: tuple[int, int]) -> Comparison:
    import numpy as np
    from scipy import stats

    first, second = np.array([one.a for one in pairs]), np.array([one.b for one in pairs])
    difference = float((second - first).mean())
    why = None
    if len(pairs) < 2:
        why = "one pair of runs: run more seeds (seed=1,2,3) to learn whether it is chance"
    elif float(np.ptp(second - first)) < 1e-12:
        why = "all pairs differ by the same: are they one run each?"
    if why is not None:
        return Comparison(a.name, b.name, difference, None, None, None, True, tuple(pairs), counts, why)
    found = stats.ttest_rel(second, first)
    low, high = map(float, found.confidence_interval(LEVEL))
    return Comparison(
        a.name, b.name, difference, low, high, float(found.pvalue), True, tuple(pairs), counts
    )  # fmt: skip


def _are_seeds(alone: Sequence[Run], a: Group, b: Group, apart: set[str]) -> bool:
    """Whether runs without a partner differ from the others in their seeds alone: then all of them count."""
    names = {*varying_columns([*a.runs, *b.runs])} - {*apart, *SEEDS, *BUDGETS}
    settings = [{tuple(repr(run.value(name)) for name in names) for run in group.runs} for group in (a, b)]
    return bool(alone) and len(settings[0] | settings[1]) == 1


def _pairs(a: Group, b: Group, y: str, apart: set[str]) -> tuple[list[Pair], list[Run]]:
    """(by what varies within the groups, none where that does not tell runs of a group apart; runs alone)."""
    names = [name for name in varying_columns([*a.runs, *b.runs]) if name not in {*apart, *BUDGETS}]
    if not names:
        one = len(a.runs) == len(b.runs) == 1
        return ([Pair("-", a.losses(y)[0], b.losses(y)[0])] if one else []), []
    keys = [{tuple(repr(run.value(name)) for name in names): run for run in group.runs} for group in (a, b)]
    if len(keys[0]) < len(a.runs) or len(keys[1]) < len(b.runs):
        return [], []
    common = [key for key in keys[0] if key in keys[1]]
    alone = [run for each in keys for key, run in each.items() if key not in common]
    return [
        Pair(
            ", ".join(f"{name} {_shown(keys[0][key].value(name))}" for name in names),
            keys[0][key].number(y) or 0.0,
            keys[1][key].number(y) or 0.0,
        )
        for key in common
    ], alone


def _corrected(found: list[Comparison]) -> list[Comparison]:
    """Holm's: the smallest of k p-values times k, the next times k - 1, never below the one before."""
    tested = sorted((one for one in found if one.p is not None), key=lambda one: one.p or 0.0)
    so_far, by_id = 0.0, {}
    for place, one in enumerate(tested):
        so_far = max(so_far, min(1.0, (one.p or 0.0) * (len(tested) - place)))
        by_id[id(one)] = so_far
    return [replace(one, p=by_id[id(one)]) if id(one) in by_id else one for one in found]


def _shown(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return "null" if value is None else str(value)
