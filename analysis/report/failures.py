"""The runs that are not done or diverged, by reason: which, why, and the command that explains more."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.reading import Run, Study
from analysis.reading.study import GOING_ON
from memory.report.page import Page

_SHOWN = 12
_NUMBER = re.compile(r"\d[\d,.:]*")


@dataclass(frozen=True)
class Failure:
    """Runs that ended for one reason, numbers in it aside. reason: that of the first."""

    state: str
    reason: str
    runs: list[Run]


def failures(study: Study) -> list[Failure]:
    """Groups of runs that do not count, the most common first; running runs are in none."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in study.runs:
        if not run.counts and run.state not in GOING_ON:
            groups[_state(run), _NUMBER.sub("#", run.reason or "").replace(run.name, "")].append(run)
    found = [
        Failure(state, runs[0].reason or "no reason is recorded", runs) for (state, _), runs in groups.items()
    ]
    return sorted(found, key=lambda one: -len(one.runs))


def going_on(study: Study) -> list[Run]:
    """Runs that wait or run."""
    return [run for run in study.runs if run.state in GOING_ON]


def add_failures(page: Page, found: Sequence[Failure]) -> None:
    """Add the section; nothing if every run is done."""
    if not found:
        return
    page.heading("Failures", "why runs are not done, as python -m slurm status has it")
    for one in found:
        page.text(f"{one.state}, {len(one.runs)} run{'s' * (len(one.runs) != 1)}: {one.reason}", "bad")
        names = [_line(run) for run in one.runs]
        if len(names) > _SHOWN:
            page.items(names[:3])
            with page.folded(f"and {len(names) - 3} more"):
                page.items(names[3:])
        else:
            page.items(names)
    page.code("\n".join(dict.fromkeys(_command(one) for one in found)))


def _line(run: Run) -> str:
    tokens = run.number("tokens")
    step = run.number("step")
    at = f", at step {step:,.0f} ({tokens:,.0f} tokens)" if step is not None and tokens is not None else ""
    return f"{run.name}{at}"


def _state(run: Run) -> str:
    return "diverged" if run.has_diverged else run.state or "-"


def _command(one: Failure) -> str:
    folder = shlex.quote(str(one.runs[0].folder))
    if one.state == "oom":
        return f"python -m memory explain {folder}"
    return f"python -m slurm why {folder}"
