"""Runs as a table, studies as a line each, the speed of a run, and what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from experiment_utils import display
from experiment_utils.quantities import counted, format_count, format_duration
from memory import format_bytes
from slurm.records.follow_up_failures import failures
from slurm.records.submissions import typed_study
from slurm.states import STATES
from slurm.status.study_status import RunState
from training.attempt.made_by import Versions

_ORDER = (
    "done", "running", "queued", "stalled", "blocked", "oom", "failed", "timeout", "preempted", "cancelled",
    "node_failed", "never_started", "unreadable",
)  # fmt: skip
_BAD = ("oom", "failed", "never_started", "node_failed", "timeout", "preempted", "cancelled")
COLUMNS = ("run", "state", "step", "ETA", "memory", "tokens/s", "attempt", "job", "code", "reason")
_RIGHT = ("step", "ETA", "memory", "tokens/s", "attempt")
_LEAST_REASON = 24
_SLOW = 0.7
"""Below this share of the median speed of its peers a run is slow."""
assert set(_ORDER) == set(STATES)


@dataclass(frozen=True)
class Next:
    """The command to type next, and its purpose."""

    command: str
    why: str


def counts(entries: Iterable[RunState]) -> dict[str, int]:
    """Number of runs by state, in the order in which they are shown."""
    found = Counter(entry.state for entry in entries)
    return {state: found[state] for state in _ORDER if found[state]}


def summary(entries: Sequence[RunState], what: str = "run") -> str:
    """`12 runs: 4 done, 3 running, 5 queued; those that run have about 2 h 10 min to go`."""
    found = counts(entries)
    shown = f"{counted(len(entries), what)}: " + ", ".join(
        f"{count} {state}" for state, count in found.items()
    )
    left = eta_s(entries)
    if left is None:
        return shown
    is_all = not any(found.get(state) for state in ("queued", "blocked"))
    return f"{shown}; " + ("" if is_all else "those that run have ") + f"about {whole_duration(left)} to go"


def whole_duration(seconds: float) -> str:
    """An estimated duration: in whole seconds, at least one."""
    return format_duration(max(1, round(seconds)))


def eta_s(entries: Iterable[RunState]) -> float | None:
    """Seconds until the last of the runs that run now ends; None if not known."""
    known = [entry.eta_s for entry in entries]
    return max((one for one in known if one is not None), default=None)


def versions_of(entries: Iterable[RunState]) -> Versions:
    """The versions of the code that made the runs."""
    return Versions((entry.name, entry.codes) for entry in entries)


def table(
    entries: Sequence[RunState], columns: int | None = None, versions: Versions | None = None
) -> list[str]:
    """A header, and a row for each run.

    Args:
        entries: the runs that are shown.
        columns: width of the terminal, to which reasons are cut; None: not cut.
        versions: of the code that made the runs of the study; shown if there are several.
    """
    codes = [
        (versions.name_of(entry.codes) or "unknown" * bool(entry.codes))
        if versions and versions.are_several
        else ""
        for entry in entries
    ]
    rows = [COLUMNS, *(_row(entry, code) for entry, code in zip(entries, codes, strict=True))]
    kept = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows[1:]) or place < 3]
    right = [kept.index(place) for place in kept if COLUMNS[place] in _RIGHT]
    if columns is not None and kept[-1] == len(COLUMNS) - 1:
        others = max(
            map(len, display.table((), [[row[place] for place in kept[:-1]] for row in rows], right=right))
        )
        room = max(_LEAST_REASON, columns - others - 2)
        rows = [(*row[:-1], row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 3]}...") for row in rows]
    return display.table((), [[row[place] for place in kept] for row in rows], right=right)


def _row(entry: RunState, code: str) -> tuple[str, ...]:
    progress = entry.progress
    step = "" if progress.step is None else f"{progress.step:,}"
    if step and progress.total_steps:
        step += f"/{progress.total_steps:,} {100 * (progress.share or 0):.0f}%"
    memory = ""
    if progress.peak_bytes is not None:
        memory, limit = format_bytes(progress.peak_bytes), progress.limit_bytes
        if limit:
            memory += f"/{format_bytes(limit)} {100 * progress.peak_bytes / limit:.0f}%"
    eta = entry.eta_s
    pace = progress.tokens_per_s
    return (
        entry.name, entry.state, step, "" if eta is None else whole_duration(eta), memory,
        "" if pace is None else format_count(round(pace)), str(entry.attempt or ""), entry.job or "",
        code, entry.reason or "",
    )  # fmt: skip


def pace_lines(entry: RunState, others: Sequence[RunState]) -> list[str]:
    """Speed of the run, of the others, and of those on its host. Empty if its speed is not known."""
    own = entry.progress.tokens_per_s
    if own is None or entry.progress.seconds_per_step is None:  # its first step says little
        return []
    size = entry.name.partition("-")[0]
    peers = [
        (one.progress.tokens_per_s, one)
        for one in others
        if one.name != entry.name and one.name.partition("-")[0] == size and one.progress.tokens_per_s
    ]
    if not peers:
        return [f"{own:,.0f} tokens/s; no other run of {size} to compare it with"]
    usual = median(speed for speed, _ in peers)
    line = f"{own:,.0f} tokens/s; the others of {size} make {usual:,.0f} (median of {len(peers)})"
    if own >= _SLOW * usual:
        return [line]
    lines = [f"{line}: it is slow"]
    here = [speed for speed, one in peers if entry.host and one.host == entry.host]
    if here and median(here) < _SLOW * usual:
        lines.append(
            f"{len(here)} others on {entry.host} are slow too: it is the node (slurm.options: --exclude)"
            if len(here) > 1
            else f"another on {entry.host} is slow too: is it the node? (slurm.options: --exclude)"
        )
    elif here:
        many = "another is" if len(here) == 1 else f"{len(here)} others are"
        lines.append(f"on {entry.host} {many} not slow: it is not the node")
    elif entry.host:
        lines.append(f"it is on {entry.host}; runs on other nodes are not slow: see what else is there")
    return lines


def study_lines(studies: Sequence[tuple[Path, Sequence[RunState]]]) -> list[str]:
    """A line for each study."""
    width = max((len(study.name) for study, _ in studies), default=0)
    return [f"{study.name:<{width}}  {summary(entries)}{_versions(entries)}" for study, entries in studies]


def _versions(entries: Sequence[RunState]) -> str:
    versions = versions_of(entries)
    return f"; made by {len(versions)} versions of the code" if versions.are_several else ""


def next_of_study(given: str, entries: Sequence[RunState]) -> Next:
    """The next command for a study. given: the study as the user typed it."""
    stuck = next((entry for entry in entries if entry.state in ("stalled", "blocked")), None)
    if stuck is not None:
        return Next(f"python -m slurm why {_run(stuck)}", f"why it is {stuck.state}")
    whole = typed_study(entries[0].folder.parent)  # given may be one run of it, which is not cleaned alone
    clean = Next(f"python -m slurm clean {whole} --keep best", "which checkpoints are no longer needed")
    return _next_of_worst(given, entries, _BAD) or clean


def next_of_tokens(given: str, entries: Sequence[RunState]) -> Next:
    """The next command for a token set. given: its path. entries: states of its tasks."""
    tokens, worst = shlex.quote(given), _next_of_worst(given, entries, (*_BAD, "stalled"))
    if worst is not None:
        return worst
    if not Path(given, "manifest.json").exists():
        return Next(
            f"python pretokenize_dataset.py merge {tokens}", "all tasks are done: makes the set of them"
        )
    return Next(f"python pretokenize_dataset.py inspect {tokens}", "what is in it")


def _next_of_worst(given: str, entries: Sequence[RunState], bad: Sequence[str]) -> Next | None:
    """The command for the worst of them, or for those that run; None if all are done."""
    typed = shlex.quote(given)
    worst = next((entry for state in bad for entry in entries if entry.state == state), None)
    if worst is not None:
        again = f"what happened; then: python -m slurm resubmit {typed}"
        return Next(f"python -m slurm why {_run(worst)}", again)
    is_live = any(entry.is_live for entry in entries)
    return Next(f"python -m slurm status {typed} --watch", "the same, live") if is_live else None


def next_of_all(studies: Sequence[tuple[Path, Sequence[RunState]]]) -> Next:
    """The first study in which something is to be done."""
    for wanted in (("stalled", "blocked", *_BAD), ("running", "queued")):
        for study, entries in studies:
            if any(entry.state in wanted for entry in entries):
                return Next(f"python -m slurm status {shlex.quote(study.name)}", "its runs one by one")
    if studies:
        return Next(f"python -m slurm status {shlex.quote(studies[0][0].name)}", "its runs one by one")
    return Next("python experiments.py --help", "how to start some")


def _run(entry: RunState) -> str:
    return shlex.quote(str(entry.folder))


def study_json(
    study: Path, entries: Sequence[RunState], shown: Sequence[RunState] | None = None
) -> dict[str, Any]:
    """A study as JSON values; keys are added, never renamed. shown: runs to list; None: none."""
    notes = list(dict.fromkeys(note for entry in entries for note in entry.notes)) + failures(study)
    versions = versions_of(entries)
    plain: dict[str, Any] = {
        "version": 1, "study": study.name, "folder": str(study), "counts": counts(entries),
        "eta_s": eta_s(entries), "notes": notes, "code": versions.to_json(),
    }  # fmt: skip
    if shown is not None:
        notes += versions.notes()
        plain["runs"] = [entry.to_json() | {"code": versions.name_of(entry.codes)} for entry in shown]
    return plain
