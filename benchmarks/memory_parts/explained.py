"""The section of docs/figures.md about `explain`."""

from __future__ import annotations

from typing import Any

from benchmarks.tokenizing_parts.page import read, section, table

_NAMES = {
    "explain": "explain",
    "psutil": "RSS by psutil",
    "lightning": "Lightning's DeviceStatsMonitor",
    "composer": "Composer's MemoryMonitor",
    "sacct": "sacct",
    "seff": "seff",
}


def explain() -> str:
    """What counts is the first try: of cases by authors who had not seen the rules, as it came out then."""
    first, now = read("memory_explain_first_try"), read("memory_explain")
    groups = [("blind, at the first try", first, "blind"), ("known", now, "known")]
    if now != first:  # it was measured again since
        groups.insert(1, ("blind, since the rules were mended", now, "blind"))
    text = "\n\n".join(
        [
            "Deaths, and healthy but alarming runs, each made for real. Rightly: verdict, cause and victim. "
            "The blind cases were written by one who had not seen the rules; their first try, of "
            f"{first['date']}, is what tells how `explain` does on what it was not made for.",
            table(
                ("cases", "deaths", "explained rightly", "healthy", "false alarms", "not judged"),
                [_score(name, found["scores"][group]) for name, found, group in groups],
            ),
            _misses(first["blind"]),
            "The others give no verdict, so they are asked one thing: did it die of its memory limit? Right "
            "of those asked (missed, false alarms); a case that Slurm cannot run was not put to sacct and "
            "seff, one that needs Slurm or cgroup v2 not to the loggers.",
            table(
                ("asked", *(name for name, _, _ in groups)),
                [
                    (title, *(_answer(found["scores"][group], who) for _, found, group in groups))
                    for who, title in _NAMES.items()
                ],
            ),
        ]
    )
    return section("Why it died", "memory_explain", now, text, "")


def _score(name: str, told: dict[str, Any]) -> tuple[str, ...]:
    numbers = (told[key] for key in ("deaths", "deaths_right", "healthy", "false_alarms"))
    return (name, *map(str, numbers), str(len(told["not_judged"])))


def _answer(told: dict[str, Any], who: str) -> str:
    row = told["died_of_the_limit"][who]
    if not row["asked"]:
        return ""
    return f"{row['right']} of {row['asked']} ({row['missed']}, {row['false_alarms']})"


def _misses(cases: list[dict[str, Any]]) -> str:
    """What was wrong at the first try."""
    told = [f"`{case['case']}`: {'; '.join(case['wrong'])}" for case in cases if case["right"] is False]
    return f"Wrong at the first try: {', '.join(told)}." if told else ""
