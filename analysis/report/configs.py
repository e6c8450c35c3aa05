"""The configurations: what differs between runs, with how many runs have each value; what all have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.columns import cell, differing_paths
from analysis.reading import Run, Study
from memory.report.page import Cell, Column, Page

_VALUES = 12
_OF_ONE_RUN = ("tags", "notes")


@dataclass(frozen=True)
class Difference:
    """A key of the configuration, and how many runs have each value of it."""

    path: str
    counts: Counter[str]
    makes_another_run: bool


def differences(runs: Sequence[Run]) -> tuple[list[Difference], dict[str, str]]:
    """(keys that differ, those that make another run first; key to value of the others)."""
    from conf.composing.run_identity import is_in_identity

    configs = [run.config for run in runs if run.config]
    if not configs:
        return [], {}
    paths = dict.fromkeys(path for config in configs for path in config)
    differing = differing_paths(configs)
    differ, same = [], {}
    for path in paths:
        if path not in differing:
            same[path] = _shown_value(path, configs[0][path])
        elif path not in _OF_ONE_RUN:
            counts = Counter(_shown_value(path, config.get(path, ...)) for config in configs)
            differ.append(Difference(path, counts, is_in_identity(path)))
    return sorted(differ, key=lambda one: not one.makes_another_run), same


def add_configs(page: Page, study: Study) -> None:
    """Add the section; nothing for foreign runs."""
    differ, same = differences(study.runs)
    if not differ and not same:
        return
    page.heading("Configurations", "values, and how many runs have each")
    if differ:
        page.table(
            [Column("key"), Column("values", True), Column("runs", is_long=True), Column("")],
            [
                [one.path, Cell(str(len(one.counts)), len(one.counts)), _values(one),
                 "" if one.makes_another_run else "changes no result"]
                for one in differ
            ],
        )  # fmt: skip
    else:
        page.text("All runs have the same configuration.")
    with page.folded(f"The same in all runs: {len(same)} keys"):
        page.code("\n".join(f"{path}: {value}" for path, value in same.items()))


def _values(one: Difference) -> str:
    ordered = sorted(one.counts.items(), key=lambda item: (_number(item[0]), item[0]))
    shown = [f"{value} ({count})" for value, count in ordered[:_VALUES]]
    more = f" and {len(ordered) - _VALUES} more" if len(ordered) > _VALUES else ""
    return ", ".join(shown) + more


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def _shown_value(path: str, value: Any) -> str:
    if value is ...:
        return "(not there)"
    return "null" if value is None else cell(path, value)
