"""Runs as a table, studies as a line each, and what to type next."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
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
assert set(_ORDER) == set(STATES)


@dataclass(frozen=True)
class Next:
    """command: what to type. why: what for."""

    command: str
    why: str


def counts(entries: Iterable[RunState]) -> dict[str, int]:
    """Of each state that occurs, how many; in the order in which they are told."""
    found = Counter(entry.state for entry in entries)
    return {state: found[state] for state in _ORDER if found[state]}


def summary(entries: Sequence[RunState], what: str = "run") -> str:
    """`12 runs: 4 done, 3 running, 5 queued; those that run have about 2 h 10 min to go`."""
    found = counts(entries)
    told = f"{counted(len(entries), what)}: " + ", ".join(
        f"{count} {state}" for state, count in found.items()
    )
    left = eta_s(entries)
    if left is None:
        return told
    is_all = not any(found.get(state) for state in ("queued", "blocked"))
    return f"{told}; " + ("" if is_all else "those that run have ") + f"about {whole_duration(left)} to go"


def whole_duration(seconds: float) -> str:
    """Of a guess: in whole seconds, at least one."""
    return format_duration(max(1, round(seconds)))


def eta_s(entries: Iterable[RunState]) -> float | None:
    """Until the last of those that run now ends; None where none does, or its pace is not known."""
    known = [entry.eta_s for entry in entries]
    return max((one for one in known if one is not None), default=None)


def versions_of(entries: Iterable[RunState]) -> Versions:
    """The versions of the code that made the runs."""
    return Versions((entry.name, entry.codes) for entry in entries)


def table(
    entries: Sequence[RunState], columns: int | None = None, versions: Versions | None = None
) -> list[str]:
    """A header and a row a run.

    Args:
        entries: the runs that are shown.
        columns: width of the terminal, to which reasons are cut; None: whole.
        versions: of the code that made all runs of the study; shown if they are several.
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


def study_lines(studies: Sequence[tuple[Path, Sequence[RunState]]]) -> list[str]:
    """A line a study."""
    width = max((len(study.name) for study, _ in studies), default=0)
    return [f"{study.name:<{width}}  {summary(entries)}{_versions(entries)}" for study, entries in studies]


def _versions(entries: Sequence[RunState]) -> str:
    versions = versions_of(entries)
    return f"; made by {len(versions)} versions of the code" if versions.are_several else ""


def next_of_study(given: str, entries: Sequence[RunState]) -> Next:
    """given: the study as the user named it."""
    study = shlex.quote(given)
    bad = next((entry for state in _BAD for entry in entries if entry.state == state), None)
    stuck = next((entry for entry in entries if entry.state in ("stalled", "blocked")), None)
    if stuck is not None:
        return Next(f"python -m slurm why {_run(stuck)}", f"why it is {stuck.state}")
    if bad is not None:
        return Next(
            f"python -m slurm why {_run(bad)}", f"what happened; then: python -m slurm resubmit {study}"
        )
    if any(entry.is_live for entry in entries):
        return Next(f"python -m slurm status {study} --watch", "the same, live")
    whole = typed_study(entries[0].folder.parent)  # given may be one run of it, which is not cleaned alone
    return Next(f"python -m slurm clean {whole} --keep best", "which checkpoints are no longer needed")


def next_of_tokens(given: str, entries: Sequence[RunState]) -> Next:
    """given: the set's path. entries: of its tasks."""
    tokens = shlex.quote(given)
    bad = next(
        (entry for state in (*_BAD, "stalled") for entry in entries if entry.state == state),
        None,
    )
    if bad is not None:
        return Next(
            f"python -m slurm why {_run(bad)}", f"what happened; then: python -m slurm resubmit {tokens}"
        )
    if any(entry.is_live for entry in entries):
        return Next(f"python -m slurm status {tokens} --watch", "the same, live")
    if not Path(given, "manifest.json").exists():
        return Next(
            f"python pretokenize_dataset.py merge {tokens}", "all tasks are done: makes the set of them"
        )
    return Next(f"python pretokenize_dataset.py inspect {tokens}", "what is in it")


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
    """Plain values; keys are added, never renamed. shown: those that a filter leaves; None: none are told."""
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
