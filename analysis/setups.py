"""Settings in which runs differ besides their seed, learning rate and size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from analysis.columns import cell, varying_columns
from analysis.reading.study import Run, Study

SEEDS = ("seed", "seed_init", "seed_data")
RATES = ("lr", "log10_lr", "optimizer.lr")
BUDGETS = ("training.max_tokens", "training.max_steps", "training.tokens_per_param")


def settings_of(study: Study, runs: Sequence[Run]) -> list[str]:
    """Columns in which these runs differ and that make another run; no seeds."""
    names = varying_columns(runs) if study.is_ours else _facts(study, runs)
    return [name for name in names if name not in SEEDS]


def setup_columns(study: Study, runs: Sequence[Run], size: str, lr: str) -> list[str]:
    """Columns in which runs of one size differ at any rate, such as the optimizer.

    What goes with the size (a schedule for each), or with the rate (a decay for each), sets no two apart.
    """
    names = [name for name in settings_of(study, runs) if name not in {*RATES, *BUDGETS, "model", size, lr}]
    groups: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[str(run.value(size))].append(run)
    return [name for name in names if any(_apart(group, name, lr) for group in groups.values())]


def setup_of(run: Run, columns: Sequence[str]) -> str:
    """In words: `muon, weight_decay 0.1`; nothing where no column sets runs apart."""
    return ", ".join(_shown(name, run) for name in columns)


def of_best_setup(
    runs: Iterable[Run], size: Callable[[Run], Hashable], columns: Sequence[str], y: str
) -> tuple[list[Run], list[Run]]:
    """(runs of the setting with the lowest mean loss of each size, all other runs).

    columns: as of `settings_of`; where they are none, all runs of a size are its seeds.
    """
    sizes: dict[Hashable, dict[tuple[str, ...], list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        sizes[size(run)][tuple(repr(run.value(name)) for name in columns)].append(run)
    kept, others = [], []
    for settings in sizes.values():
        best = min(settings.values(), key=lambda same: sum(run.number(y) or 0.0 for run in same) / len(same))
        kept += best
        others += [run for same in settings.values() if same is not best for run in same]
    return kept, others


def _facts(study: Study, runs: Sequence[Run]) -> list[str]:
    """Facts of the names of foreign files that vary."""
    return [name for name in sorted(study.named_facts) if len({repr(run.value(name)) for run in runs}) > 1]


def _apart(runs: Sequence[Run], name: str, lr: str) -> bool:
    """Whether it differs in runs of one size, and not with the rate alone: each rate its own value."""
    by_rate: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        by_rate[repr(run.value(lr))].add(repr(run.value(name)))
    values = {value for each in by_rate.values() for value in each}
    goes_with_rate = all(len(each) == 1 for each in by_rate.values()) and len(values) == len(by_rate)
    return len(values) > 1 and not goes_with_rate


def _shown(name: str, run: Run) -> str:
    words = cell(name, run.value(name))
    last = name.rpartition(".")[2]
    return words if last == "name" else f"{last} {words}"
