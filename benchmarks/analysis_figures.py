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


def coverage() -> str:
    """Of analysis_coverage.py."""
    found = read("analysis_coverage")
    goal = found["goal"]

    def met(*shares: float) -> str:
        return "yes" if min(shares) >= goal else "no"

    rates = [
        (row["case"], f"{row['holds_the_truth']:.1%}", f"{row['closed']:.0%}",
         f"{row['closed_ones_hold_the_truth']:.1%}", f"{row['median_width_decades']:g}",
         f"{row['median_error_decades']:.2f}", met(row["holds_the_truth"], row["closed_ones_hold_the_truth"]))
        for row in found["best_lr"]
    ]  # fmt: skip
    fits = [
        (row["case"], *(f"{share:.0%}" for share in row["holds"].values()),
         f"{row['median_width_of_alpha']:.3f}", met(*row["holds"].values()))
        for row in found["fit"]
    ]  # fmt: skip
    compared = [
        (
            row["case"],
            f"{row['holds_the_truth']:.1%}",
            f"{row['median_width']:.3f}",
            met(row["holds_the_truth"]),
        )
        for row in found["compare"]
    ]
    told = (
        f"Made studies whose truth is known. Goal: {goal:.0%} of the 95% intervals hold it. `best-lr`: "
        f"{found['best_lr'][0]['sweeps']} sweeps of each case; an interval is closed if both ends are known. "
        f"`fit`: {found['fit'][0]['fits']} laws of each case by least squares, {found['fit'][-1]['fits']} "
        "by Huber's loss. Noisier is ten times over the sizes; skewed is an exponential distribution, of "
        "which intervals by t hold less than they say, and whose median Huber's loss follows, not its mean. "
        "`compare`: "
        f"{found['compare'][0]['comparisons']} of each case, with noise of the two groups 1 to 1 and 1 to 4."
    )
    last = ("goal met",)
    return section(
        "Do 95% intervals hold the truth", "analysis_coverage", found, told,
        "\n\n".join((
            table(("best-lr", "hold it", "closed", "closed ones hold it", "median width, decades",
                   "median error of the rate, decades", *last), rates),
            table(("fit", "E", "alpha", "loss at 10 x", "median width of alpha", *last), fits),
            table(("compare", "hold it", "median width, nats", *last), compared),
            goals(
                (f"{name}: cases that meet it", f"{has.count('yes')} of {len(has)}", "all", "no" not in has)
                for name, rows in (("best-lr", rates), ("fit", fits), ("compare", compared))
                for has in [[row[-1] for row in rows]]
            ),
        )),
    )  # fmt: skip
