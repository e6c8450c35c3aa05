"""Runs of studies as rows, what was skipped and why, which of them are there twice."""

from __future__ import annotations

import difflib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analysis.reading.facts import FILES
from analysis.reading.foreign import FILE_FACT, Pattern, read_foreign
from analysis.reading.foreign_formats import other_format
from analysis.reading.index import read_facts
from experiment_utils.arguments import is_folder, path_of, root_of
from experiment_utils.errors import UserError
from experiment_utils.json_values import finite, is_number
from experiment_utils.quantities import counted
from experiment_utils.run_folder import RunFolder
from training.attempt.made_by import Code, Versions

ALIASES = {"time": "seconds", "N": "non_embedding", "D": "tokens", "n": "non_embedding", "d": "tokens"}
"""What may be typed for a column of our runs."""

GOING_ON = ("running", "queued", "stalled")
"""States of runs that may still come to their end."""

_OF_ITSELF = ("run", "state", "reason", "folder")
_DEPTH = 2
"""A study's folder, or one of several studies."""


@dataclass(frozen=True)
class Run:
    """One row. folder: of the run, or the CSV itself. state: None where nobody tells, as of a foreign CSV.
    values: column to value. config: path to value. damage: a line for each file that is not whole.
    codes: of each attempt the code that made it, None where that was not recorded.
    """

    name: str
    folder: Path
    state: str | None
    reason: str | None
    values: Mapping[str, Any]
    config: Mapping[str, Any] = field(default_factory=dict)
    damage: tuple[str, ...] = ()
    is_ours: bool = True
    codes: tuple[Code | None, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=dict)
    """Registered metrics of a run of ours: column to unit."""
    is_row: bool = False
    """Row of a table of another program: it has values and no curve, and its folder is `FILE:ROW`."""

    def value(self, column: str) -> Any:
        """Of a column, or of a path of its configuration; None where the run lacks it."""
        name = ALIASES.get(column, column) if self.is_ours else column
        if name in self.values:
            return self.values[name]
        if name in _OF_ITSELF:
            return (
                str(self.folder) if name == "folder" else self.name if name == "run" else getattr(self, name)
            )
        return self.config.get(name)

    def number(self, column: str) -> float | None:
        """The value as a float, which may be nan; None where it is no number."""
        value = self.value(column)
        return float(value) if is_number(value) else None

    @property
    def has_diverged(self) -> bool:
        return self.is_ours and bool(self.values.get("diverged"))

    @property
    def counts(self) -> bool:
        """Whether its losses are those of a run that went to its end."""
        return self.state in ("done", None) and not self.has_diverged

    @property
    def curve_file(self) -> Path:
        return self.folder / "metrics.csv" if self.is_ours else self.folder

    @property
    def why_not(self) -> str:
        """Of one that does not count: `oom at 1.2M tokens: ...`."""
        if self.has_diverged and self.state in ("done", "failed", None):
            return "its loss is not finite"
        tokens = self.value("tokens")
        at = f" at {tokens:,.0f} tokens" if finite(tokens) is not None else ""
        return f"{self.state}{at}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Study:
    """path: as it was given. skipped: (folder or file, why). duplicates: identity to runs, where several are
    of one identity. named_facts: columns that the names of foreign files tell.
    """

    path: str
    runs: Sequence[Run]
    skipped: Sequence[tuple[Path, str]] = ()
    named_facts: frozenset[str] = frozenset()

    @property
    def is_ours(self) -> bool:
        return all(run.is_ours for run in self.runs)

    @property
    def metrics(self) -> dict[str, str]:
        """Registered metrics of any of the runs: column to unit."""
        return {name: unit for run in self.runs for name, unit in run.metrics.items()}

    @property
    def noun(self) -> str:
        """What one of its runs is called."""
        return "run" if self.is_ours or any(run.is_row for run in self.runs) else "CSV file"

    @property
    def duplicates(self) -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            if run.is_ours and isinstance(run.values.get("identity"), str):
                found[run.values["identity"]].append(run)
        return {identity: runs for identity, runs in found.items() if len(runs) > 1}

    def notes(self, *, with_code: bool = True) -> list[str]:
        """Lines that belong below any answer: duplicates, folders that were skipped, versions of the code."""
        told = [
            f"the same run (identity {identity[:8]}) is there {len(runs)} times: "
            + ", ".join(str(run.folder) for run in runs)
            for identity, runs in self.duplicates.items()
        ]
        if self.skipped:
            shown = [f"{path} ({why})" for path, why in self.skipped[:5]]
            more = f" and {len(self.skipped) - 5} more" if len(self.skipped) > 5 else ""
            noun = "file" if all(_is_csv(path) for path, _ in self.skipped) else "folder"
            told.append(f"skipped {counted(len(self.skipped), noun)}: {'; '.join(shown)}{more}")
        return told + (versions_of(self.runs).notes() if with_code else [])

    def once(self) -> list[Run]:
        """Each identity once: the run that counts, else the one that came farthest."""
        twice = {id(run) for runs in self.duplicates.values() for run in runs}
        best = {id(max(runs, key=_rank)) for runs in self.duplicates.values()}
        return [run for run in self.runs if id(run) not in twice or id(run) in best]

    def column(self, name: str) -> str:
        """The column or config path that is meant; the last part of a path will do where it is clear.

        Raises:
            UserError: there is none; names the nearest.
        """
        columns = {*_OF_ITSELF}
        paths: set[str] = set()
        for run in self.runs:
            columns |= run.values.keys()
            paths |= run.config.keys()
        if name in columns or name in paths or (self.is_ours and name in ALIASES):
            return name
        ends = sorted(path for path in paths if path.endswith(f".{name}"))
        if len(ends) == 1:
            return ends[0]
        if ends:
            raise UserError(
                f"{name}: several keys end so: {', '.join(ends)}. Give the whole path", code="ambiguous-key"
            )
        ends = [] if self.is_ours else sorted(one for one in columns if one.endswith(f".{name}"))
        if len(ends) == 1:  # params.lr of MLflow
            return ends[0]
        near = difflib.get_close_matches(name, sorted(columns | paths), n=3, cutoff=0.6)
        told = f"nearest: {', '.join(near)}. " if near else ""
        there = sorted(columns - {FILE_FACT, "said_state", "said_reason"})
        keys = ", or a key of the configuration such as optimizer.lr" if paths else ""
        raise UserError(
            f"{name}: no such column. {told}There are: {', '.join(there)}{keys}", code="no-such-column"
        )


def versions_of(runs: Iterable[Run]) -> Versions:
    """The versions of the code that made these runs; runs of other programs have none."""
    return Versions((run.name, run.codes) for run in runs if run.is_ours)


def named_by_code(runs: Sequence[Run]) -> list[Run]:
    """The runs with the column `code`: the name of the version that made each of them."""
    versions = versions_of(runs)
    return [
        replace(run, values={**run.values, "code": versions.name_of(run.codes)}) if run.is_ours else run
        for run in runs
    ]


def read_study(
    given: Sequence[str], *, pattern: str | None = None, rows: bool = False, runs_dir: str | None = None
) -> Study:
    """Runs below each folder: a run, a study, several studies; or foreign CSVs, where there are no runs.

    given: paths, or names under runs_dir. pattern: how names of CSVs tell facts (foreign.py). rows: each row
    of a CSV is a run.

    Raises:
        UserError: a folder is not there, or has nothing of the kind in it.
    """
    runs: list[Run] = []
    skipped: list[tuple[Path, str]] = []
    names = Pattern(pattern) if pattern is not None else None
    settings = set(names.names) if names else set()
    for one in given:
        place = _place(one, runs_dir)
        before = len(runs), len(skipped)
        is_csv = place.is_file() or names is not None or rows
        folders = [] if is_csv else list(_run_folders(place, skipped))
        if folders:
            runs += _ours(folders)
        else:
            found, apart = _foreign(place, names, rows, skipped)
            runs += found
            settings |= apart
        if len(runs) == before[0] and (hint := other_format(place)) is not None:
            raise UserError(f"{one}: no runs there, but {hint}", code="other-format")
        if (len(runs), len(skipped)) == before:
            raise UserError(
                f"{one}: no runs there: expected a study (folders with a config.yaml in them), or CSV files "
                "with a header; `python experiments.py -m study=lr_sweep` makes a study",
                code="no-runs",
            )
    return Study(" ".join(given), named_by_code(runs), skipped, frozenset(settings))


def run_folders_of(given: str, *, runs_dir: str | None = None) -> list[Path]:
    """Of the runs of a study, of several, or of one run; none where there is none.

    Raises:
        UserError: there is no such folder.
    """
    return list(_run_folders(_place(given, runs_dir), []))


def _place(given: str, runs_dir: str | None) -> Path:
    try:
        path = path_of(given)
        if path.is_file() and _is_csv(path):
            return path
        if path.is_file() and (hint := other_format(path)) is not None:
            raise UserError(f"{given}: no CSV, but {hint}")
        for place in (root_of(runs_dir) / given, path):
            if is_folder(place):
                return place
    except OSError as error:
        raise UserError(str(error)) from error
    from slurm.arguments import find_run, find_study

    with suppress(UserError):
        return find_run(given, runs_dir)
    return find_study(given, runs_dir)


def _run_folders(place: Path, skipped: list[tuple[Path, str]], depth: int = 0) -> Iterator[Path]:
    """Each with a file of a run, by name; what is hidden is none, and no run lies in another."""
    try:
        with os.scandir(place) as entries:
            inside = sorted(
                (entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name
            )
    except OSError as error:
        if depth:  # a run of another user, perhaps: its row says so
            yield place
        else:
            skipped.append((place, f"cannot be read: {error.strerror}"))
        return
    names = {entry.name for entry in inside}
    if names & {"config.yaml", "run.json"}:
        yield place
        return
    if depth and names & set(FILES):
        skipped.append((place, "no config.yaml and no run.json in it"))
        return
    if depth < _DEPTH:
        for entry in inside:
            if entry.is_dir() and not _is_link_within(entry, place):
                yield from _run_folders(Path(entry.path), skipped, depth + 1)


def _is_link_within(entry: os.DirEntry[str], place: Path) -> bool:
    """Whether it is another name of what stands in the place itself, `latest` say, to be counted once."""
    return entry.is_symlink() and Path(entry.path).resolve().is_relative_to(place.resolve())


def _ours(folders: Sequence[Path]) -> list[Run]:
    by_study: dict[Path, list[Path]] = defaultdict(list)
    for folder in folders:
        by_study[folder.parent].append(folder)
    found: dict[Path, dict[str, Any]] = {}
    for study, inside in by_study.items():
        found |= zip(inside, read_facts(study, [folder.name for folder in inside]), strict=True)
    open_ones = [folder for folder in folders if found[folder]["values"].get("said_state") != "done"]
    told = _run_states(open_ones)
    return [_run(folder, found[folder], told.get(folder)) for folder in folders]


def _run(folder: Path, facts: Mapping[str, Any], told: Any) -> Run:
    values = dict(facts["values"])
    state, reason = "done", None
    if told is not None:
        state, reason = told.state, told.reason
        if state == "unreadable":  # the reason says it once, the lines of damage for each file
            facts = {**facts, "damage": []}
        if values["peak_bytes"] is None:
            values |= {
                "peak_bytes": told.progress.peak_bytes, "limit_bytes": told.progress.limit_bytes,
                "limit_at": _limit_at(folder),
            }  # fmt: skip
    name = folder.name or folder.resolve().name
    codes = tuple(code and Code(*code) for code in values.pop("codes"))
    return Run(
        name, folder, state, reason, values, facts["config"], tuple(facts["damage"]), codes=codes,
        metrics=facts.get("metrics", {}),
    )  # fmt: skip


def _limit_at(folder: Path) -> Any:
    """Of a run whose supervisor has not yet told how it ended: whose limit its last record stands against."""
    records = RunFolder(folder).last_stage_records
    return records[-1]["snapshot"].get("limit_at") if records else None


def _run_states(folders: Sequence[Path]) -> dict[Path, Any]:
    """Of runs that are not done, what became of them, as `python -m slurm status` has it."""
    if not folders:
        return {}
    from slurm.status.study_status import run_states

    return {entry.folder: entry for entry in run_states(folders)}


def _foreign(
    place: Path, names: Pattern | None, rows: bool, skipped: list[tuple[Path, str]]
) -> tuple[list[Run], set[str]]:
    """(runs of the CSVs there, columns that are settings of theirs)."""
    try:
        files = [place] if place.is_file() else sorted(filter(_is_csv, place.iterdir()))
    except OSError as error:
        told_already = place in dict(skipped)
        skipped += [] if told_already else [(place, f"cannot be read: {error.strerror}")]
        return [], set()
    runs: list[Run] = []
    settings: set[str] = set()
    for path in files:
        found = read_foreign(path, names, rows_are_runs=rows)
        if found.why_not is not None:
            skipped.append((path, found.why_not))
        settings |= found.settings
        for one in found.runs:
            at = path if one.row is None else Path(f"{path}:{one.row}")
            runs.append(
                Run(one.name, at, one.state, None, one.values, damage=one.damage, is_ours=False,
                    is_row=one.row is not None)
            )  # fmt: skip
    return runs, settings


def _is_csv(path: Path) -> bool:
    """By its name, however that is written."""
    return path.suffix.lower() == ".csv"


def _rank(run: Run) -> tuple[bool, float]:
    return run.counts, run.number("tokens") or 0.0
