"""Sections of docs/figures.md about the analysis of studies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.tokenizing_parts.page import goals, read, section, table


def table_() -> str:
    """Of analysis_table.py."""
    found = read("analysis_table")
    seconds, goals_s = found["seconds"], found["goals_s"]
    rows = [
        (
            f"ours, {name}" if name in goals_s else name, f"{value['median']:.2f}",
            f"{value['min']:.2f} to {value['max']:.2f}", f"{value['median'] / seconds['warm']['median']:.1f}",
        )
        for name, value in seconds.items()
    ]  # fmt: skip
    told = (
        f"`python -m analysis table` of {found['runs']:,} run folders of {found['rows']:,} rows each; "
        "cold: without its index, warm: with it."
    )
    peers = ", ".join(f"{name} {version}" for name, version in found["peers"].items())
    told += f" Beside it: {peers}." if peers else ""
    times = table(("whole process", "s, median", "range", "/ ours, warm"), rows)
    both = f"{times}\n\n{_goals(seconds, goals_s)}"
    return section("How soon a study is a table", "analysis_table", found, told, both)


def report() -> str:
    """Of analysis_report.py."""
    found = read("analysis_report")
    what = {"cold": "the page, no index", "warm": "the page, with the index", "load": "shown by a browser"}
    rows = [
        (what[name], f"{value['median']:.2f}", f"{value['min']:.2f} to {value['max']:.2f}")
        for name in found["goals_s"]
        if (value := found["seconds"].get(name)) is not None
    ]
    told = (
        f"`python -m analysis report` of {found['runs']:,} run folders of {found['rows']:,} rows each: a "
        f"page of {found['page_bytes'] / 2**20:.1f} MB."
    )
    return section(
        "How soon a study is a page", "analysis_report", found, told,
        f"{table(('', 's, median', 'range'), rows)}\n\n{_goals(found['seconds'], found['goals_s'], what)}",
    )  # fmt: skip


def fit() -> str:
    """Of analysis_fit.py."""
    found = read("analysis_fit")
    rows = [
        (
            name, f"{value['median']:.2f}", f"{value['min']:.2f} to {value['max']:.2f}",
            ", ".join(key for key, is_held in found["intervals_hold_the_truth"][name].items() if is_held),
        )
        for name, value in found["seconds"].items()
    ]  # fmt: skip
    told = f"`python -m analysis fit` with {found['draws']:,} draws, of made-up runs whose truth is known."
    limits = dict.fromkeys(found["seconds"], found["goal_s"])
    return section(
        "How long a fit takes", "analysis_fit", found, told,
        "\n\n".join(
            [
                table(("whole process", "s, median", "range", "95% intervals that hold the truth"), rows),
                _goals(found["seconds"], limits),
            ]
        ),
    )  # fmt: skip


def _goals(
    seconds: Mapping[str, Any], limits_s: Mapping[str, float], names: Mapping[str, str] | None = None
) -> str:
    """Medians against these limits, by name. names: what a name stands for."""
    return goals(
        ((names or {}).get(name, name), f"{seconds[name]['median']:.2f} s", f"at most {limit_s:g} s",
         seconds[name]["median"] <= limit_s)
        for name, limit_s in limits_s.items()
        if name in seconds
    )  # fmt: skip
