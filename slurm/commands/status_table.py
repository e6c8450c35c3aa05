"""Runs as a table, studies as a line each, the speed of a run, and the next command."""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiment_utils import display
from experiment_utils.quantities import counted, format_count, format_duration
from memory import format_bytes
from memory.estimate.efficiency import efficiency_line
from slurm.records.submissions import end_errors, typed_study
from slurm.states import STATES
from slurm.status.study_status import RunState
from training.attempt.made_by import Versions

_ORDER = (
    "done", "running", "queued", "stalled", "blocked", "oom", "failed", "timeout", "preempted", "cancelled",
    "node_failed", "never_started", "unreadable",
)  # fmt: skip
_BAD = (
    "stalled", "blocked", "oom", "failed", "never_started", "node_failed", "timeout", "preempted",
    "cancelled",
)  # fmt: skip
"""The state to look at first."""
COLUMNS = ("run", "state", "step", "ETA", "memory", "GPU", "tokens/s", "attempt", "job", "code", "reason")
_ALWAYS = ("run", "state", "step")
_BRIEF = ("step", "memory")
_WHOLE = re.compile(r"^[\d,]+/[\d,]+ |/\S+ \S+ ")
"""Parts of these that a narrow terminal leaves out: steps, and the limit of memory; the percentage stays."""
_RIGHT = ("step", "ETA", "memory", "GPU", "tokens/s", "attempt")
_LEAST_IMPORTANT = ("attempt", "tokens/s", "code", "job", "GPU", "ETA", "memory")
"""Columns that go until a table fits a terminal, in order."""
_ANY_WIDTH = 10_000
_SLOW = 0.7
"""Below this share of the median speed of its peers a run is slow."""
assert set(_ORDER) == set(STATES)


@dataclass(frozen=True)
class Next:
    """The command to type next, and its purpose."""

    command: str
    why: str

    def line(self) -> str:
        return f"next: {self.command}   ({self.why})"


def counts(entries: Iterable[RunState]) -> dict[str, int]:
    """Number of runs by state, in the order in which they are shown."""
    found = Counter(entry.state for entry in entries)
    return {state: found[state] for state in _ORDER if found[state]}


def summary(entries: Sequence[RunState], what: str = "run") -> str:
    """`12 runs: 4 done, 3 running, 5 queued; those that run have about 2 h 10 min left`."""
    found, left_s = counts(entries), eta_s(entries)
    shown = (
        f"{counted(len(entries), what)}: {', '.join(f'{count} {state}' for state, count in found.items())}"
    )
    if left_s is None:
        return shown
    whose = "" if {"queued", "blocked"}.isdisjoint(found) else "those that run have "
    return f"{shown}; {whose}about {whole_duration(left_s)} left"


def whole_duration(seconds: float) -> str:
    """An estimated duration: in whole seconds, at least one."""
    return format_duration(max(1, round(seconds)))


def eta_s(entries: Iterable[RunState]) -> float | None:
    """Seconds until the last of the runs that run now ends; None if not known."""
    return max((entry.eta_s for entry in entries if entry.eta_s is not None), default=None)


def versions_of(entries: Iterable[RunState]) -> Versions:
    """The versions of the code that made the runs."""
    return Versions((entry.name, entry.codes) for entry in entries)


def table(
    entries: Sequence[RunState], columns: int | None = None, versions: Versions | None = None
) -> list[str]:
    """A header, and a row for each run, fitted to a terminal.

    Args:
        entries: the runs that are shown.
        columns: width of a screen whose rows are a line each; None: that of the terminal.
        versions: of the code that made the runs of the study; shown if there are several.
    """
    rows = [_row(entry, versions) for entry in entries]
    shown = [name for name in COLUMNS if name in _ALWAYS or any(row[name] for row in rows)]
    right = [place for place, name in enumerate(shown) if name in _RIGHT]

    def lines(columns: int | None) -> list[str]:
        cells = [[row[name] for name in shown] for row in rows]
        return display.table(
            shown, cells, right=right, least=_LEAST_IMPORTANT, columns=columns, is_folded=is_folded
        )

    is_folded, room = columns is None, columns or display.columns_of(sys.stdout)
    whole = lines(_ANY_WIDTH)
    if room is None or max(map(len, whole)) <= room:
        return whole
    for row in rows:
        row |= {name: _WHOLE.sub(" ", row[name]).strip() for name in _BRIEF}
    return lines(room)


def _row(entry: RunState, versions: Versions | None) -> dict[str, str]:
    """Cells by column."""
    progress = entry.progress
    step = "" if progress.step is None else f"{progress.step:,}"
    if step and progress.total_steps:
        step += f"/{progress.total_steps:,} {100 * (progress.share or 0):.0f}%"
    peak, limit = progress.peak_bytes, progress.limit_bytes
    memory = "" if peak is None else format_bytes(peak)
    if peak is not None and limit:
        memory += f"/{format_bytes(limit)} {100 * peak / limit:.0f}%"
    is_named = versions is not None and versions.are_several and entry.codes
    code = versions.name_of(entry.codes) or "unknown" if versions is not None and is_named else ""
    eta = "" if entry.eta_s is None else whole_duration(entry.eta_s)
    pace = "" if progress.tokens_per_s is None else format_count(round(progress.tokens_per_s))
    gpu = [] if progress.gpu_percent is None else [f"{progress.gpu_percent:.0f}%"]
    gpu += [] if progress.gpu_watts is None else [f"{progress.gpu_watts:.0f} W"]
    attempt, job, reason = str(entry.attempt or ""), entry.job or "", entry.reason or ""
    cells = (entry.name, entry.state, step, eta, memory, " ".join(gpu), pace, attempt, job, code, reason)
    return dict(zip(COLUMNS, cells, strict=True))


def efficiency_lines(entries: Iterable[RunState]) -> list[str]:
    """`efficiency: asked 4.0 GB, used 512 MB; ...` of the runs that have ended; empty without one."""
    line = efficiency_line([found for entry in entries if (found := entry.efficiency) is not None])
    return [] if line is None else [f"efficiency: {line}"]


def pace_lines(entry: RunState, others: Sequence[RunState]) -> list[str]:
    """Speed of the run, of its peers, and whether its node is the cause. Empty if its speed is not known."""
    own, size = entry.progress.tokens_per_s, entry.name.partition("-")[0]
    if own is None or entry.progress.seconds_per_step is None:  # its first step says little
        return []
    peers = [one for one in others if one.name != entry.name and one.name.partition("-")[0] == size]
    speeds = [(speed, one.host) for one in peers if (speed := one.progress.tokens_per_s)]
    if not speeds:
        return [f"{own:,.0f} tokens/s; no other run of {size} to compare it with"]
    usual = median(speed for speed, _ in speeds)
    line = f"{own:,.0f} tokens/s; the others of {size} make {usual:,.0f} (median of {len(speeds)})"
    if own >= _SLOW * usual:
        return [line]
    here = [speed for speed, host in speeds if entry.host and host == entry.host]
    if not here:
        cause = f"no other is on {entry.host or 'its node'}, which can be the cause"
    elif median(here) < _SLOW * usual:
        cause = f"so are others on {entry.host}: avoid it ('slurm.options=[--exclude={entry.host}]')"
    else:
        cause = f"others on {entry.host} are not: the node is not the cause"
    return [f"{line}: it is slow", cause]


def study_lines(studies: Sequence[tuple[Path, Sequence[RunState]]]) -> list[str]:
    """A line for each study."""
    width = max((len(study.name) for study, _ in studies), default=0)
    lines = []
    for study, entries in studies:
        versions = versions_of(entries)
        several = f"; made by {len(versions)} versions of the code" if versions.are_several else ""
        lines.append(f"{study.name:<{width}}  {summary(entries)}{several}")
    return lines


def next_of_study(given: str, entries: Sequence[RunState]) -> Next:
    """The next command for a study. given: the study as the user typed it."""
    whole = typed_study(entries[0].folder.parent)  # given can be one run of it
    return _next(given, entries, Next(f"python -m analysis {whole}", "what they came to"))


def next_of_tokens(given: str, entries: Sequence[RunState]) -> Next:
    """The next command for a token set. given: its path. entries: states of its tasks."""
    program = f"python pretokenize_dataset.py {{}} {shlex.quote(given)}"
    if Path(given, "manifest.json").exists():
        return _next(given, entries, Next(program.format("inspect"), "what is in it"))
    return _next(given, entries, Next(program.format("merge"), "all tasks are done: makes the set of them"))


def _next(given: str, entries: Sequence[RunState], if_done: Next) -> Next:
    worst = min(
        (entry for entry in entries if entry.state in _BAD),
        key=lambda one: _BAD.index(one.state),
        default=None,
    )
    if worst is not None:
        return Next(f"python -m slurm why {shlex.quote(str(worst.folder))}", "the cause, what to change")
    if any(entry.is_live for entry in entries):
        return Next(f"python -m slurm watch {shlex.quote(given)}", "the same, live")
    return if_done


def next_of_all(studies: Sequence[tuple[Path, Sequence[RunState]]]) -> Next:
    """The first study in which something is to be done."""
    if not studies:
        return Next("python experiments.py --help", "how to start some")
    bad = [study for study, entries in studies if any(entry.state in _BAD for entry in entries)]
    study = (bad or [studies[0][0]])[0]
    return Next(f"python -m slurm status {shlex.quote(study.name)}", "its runs one by one")


def study_json(
    study: Path, entries: Sequence[RunState], shown: Sequence[RunState] | None = None
) -> dict[str, Any]:
    """A study as JSON values; keys are added, never renamed. shown: runs to list; None: none."""
    notes = list(dict.fromkeys(note for entry in entries for note in entry.notes)) + end_errors(study)
    versions = versions_of(entries)
    plain: dict[str, Any] = {
        "version": 1, "study": study.name, "folder": str(study), "counts": counts(entries),
        "eta_s": eta_s(entries), "notes": notes, "code": versions.to_json(),
    }  # fmt: skip
    if shown is not None:
        notes += versions.notes()
        plain["runs"] = [entry.to_json() | {"code": versions.name_of(entry.codes)} for entry in shown]
    return plain
