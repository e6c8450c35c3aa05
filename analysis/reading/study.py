"""Runs of studies as rows, what was skipped and why, which of them are there twice."""

from __future__ import annotations

import difflib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.reading.facts import FILES
from analysis.reading.foreign import FILE_FACT, Pattern, is_table, read_foreign
from analysis.reading.foreign_logs import MARKS, is_log, unread_format
from analysis.reading.index import read_facts
from analysis.reading.run import ALIASES, GOING_ON, OF_ITSELF, Run
from experiment_utils.arguments import is_folder, path_of, root_of
from experiment_utils.errors import UserError
from experiment_utils.quantities import counted
from experiment_utils.run_folder import RunFolder
from training.attempt.made_by import Code, Versions

__all__ = [
    "ALIASES", "GOING_ON", "Run", "Study", "named_by_code", "read_study", "run_folders_of", "versions_of",
]  # fmt: skip

_DEPTH = 2
"""Folders below the one that was given: study, run."""


@dataclass(frozen=True)
class Study:
    """Runs of one or several folders."""

    path: str
    """The folders, as they were given."""
    runs: Sequence[Run]
    skipped: Sequence[tuple[Path, str]] = ()
    """(folder or file, why it was skipped)."""
    named_facts: frozenset[str] = frozenset()
    """Columns that set runs of other programs apart: facts in their names, and settings."""

    @property
    def is_ours(self) -> bool:
        """Whether no run is of another program."""
        return all(run.is_ours for run in self.runs)

    @property
    def metrics(self) -> dict[str, str]:
        """Registered metrics of any of the runs: column to unit."""
        return {name: unit for run in self.runs for name, unit in run.metrics.items()}

    @property
    def noun(self) -> str:
        """`run`, or `CSV file` if each run is one."""
        is_csv = all(_is_csv(run.folder) and run.name == run.folder.stem for run in self.runs)
        return "CSV file" if is_csv else "run"

    @property
    def duplicates(self) -> dict[str, list[Run]]:
        """Identity to its runs, for identities of several runs."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            if run.is_ours and isinstance(run.values.get("identity"), str):
                found[run.values["identity"]].append(run)
        return {identity: runs for identity, runs in found.items() if len(runs) > 1}

    def notes(self, *, with_code: bool = True) -> list[str]:
        """Lines to show below any answer: duplicates, folders that were skipped, versions of the code."""
        lines = [
            f"the same run (identity {identity[:8]}) is there {len(runs)} times: "
            + ", ".join(str(run.folder) for run in runs)
            for identity, runs in self.duplicates.items()
        ]
        if self.skipped:
            shown = [f"{path} ({why})" for path, why in self.skipped[:5]]
            more = f" and {len(self.skipped) - 5} more" if len(self.skipped) > 5 else ""
            noun = "file" if all(_is_csv(path) for path, _ in self.skipped) else "folder"
            lines.append(f"skipped {counted(len(self.skipped), noun)}: {'; '.join(shown)}{more}")
        return lines + (versions_of(self.runs).notes() if with_code else [])

    def once(self) -> list[Run]:
        """Runs with each identity once: the run that counts, else the one that came farthest."""
        twice = {id(run) for runs in self.duplicates.values() for run in runs}
        best = {id(max(runs, key=_rank)) for runs in self.duplicates.values()}
        return [run for run in self.runs if id(run) not in twice or id(run) in best]

    def column(self, name: str) -> str:
        """Column or config path of a name, which can be the last part of a path if only one path ends so.

        Raises:
            UserError: no column has the name; shows the nearest.
        """
        columns = {*OF_ITSELF}
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
        nearest = f"nearest: {', '.join(near)}. " if near else ""
        there = sorted(columns - {FILE_FACT, "said_state", "said_reason"})
        keys = ", or a key of the configuration such as optimizer.lr" if paths else ""
        raise UserError(
            f"{name}: no such column. {nearest}There are: {', '.join(there)}{keys}", code="no-such-column"
        )


def versions_of(runs: Iterable[Run]) -> Versions:
    """Versions of the code that made these runs; runs of other programs have none."""
    return Versions((run.name, run.codes) for run in runs if run.is_ours)


def named_by_code(runs: Sequence[Run]) -> list[Run]:
    """Runs with the column `code`: the name of the version that made each of them."""
    versions = versions_of(runs)
    return [
        replace(run, values={**run.values, "code": versions.name_of(run.codes)}) if run.is_ours else run
        for run in runs
    ]


def read_study(
    given: Sequence[str], *, pattern: str | None = None, rows: bool = False, runs_dir: str | None = None
) -> Study:
    """Runs in each folder (of a run, a study, or several studies), or runs of other programs if it has none.

    Args:
        given: Paths, or names under runs_dir.
        pattern: Facts in the names of runs of other programs, see `Pattern`.
        rows: Each row of a CSV is a run.
        runs_dir: Folder of studies; None: HIGHWATER_RUNS_DIR, else `runs`.

    Raises:
        UserError: a folder does not exist, or has no run in it.
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
            found = read_foreign(place, names, rows_are_runs=rows)
            runs += found.runs
            settings |= found.settings
            skipped += [(path, why) for path, why in found.skipped if path not in dict(skipped)]
        if len(runs) == before[0] and (hint := unread_format(place)) is not None:
            raise UserError(f"{one}: no runs there, but {hint}", code="other-format")
        if (len(runs), len(skipped)) == before:
            raise UserError(
                f"{one}: no runs there: expected a study (folders with a config.yaml in them), CSV files "
                "with a header, or logs of Lightning, MLflow, TensorBoard or transformers; "
                "`python experiments.py -m study=lr_sweep` makes a study",
                code="no-runs",
            )
    return Study(" ".join(given), named_by_code(runs), skipped, frozenset(settings))


def run_folders_of(given: str, *, runs_dir: str | None = None) -> list[Path]:
    """Run folders of a study, of several studies, or of one run; empty if it has none.

    Raises:
        UserError: the folder does not exist.
    """
    return list(_run_folders(_place(given, runs_dir), []))


def _place(given: str, runs_dir: str | None) -> Path:
    try:
        path = path_of(given)
        if path.is_file() and (is_table(path) or is_log(path)):
            return path
        if path.is_file() and (hint := unread_format(path)) is not None:
            raise UserError(f"{given}: no CSV, but {hint}", code="other-format")
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
    """Folders of runs, by name. Hidden folders are skipped, and a run is never inside another."""
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
    if "run.json" in names or ("config.yaml" in names and not names & MARKS):
        yield place
        return
    if depth and names & set(FILES) and not names & MARKS:
        skipped.append((place, "no config.yaml and no run.json in it"))
        return
    if depth < _DEPTH:
        for entry in inside:
            if entry.is_dir() and not _is_link_within(entry, place):
                yield from _run_folders(Path(entry.path), skipped, depth + 1)


def _is_link_within(entry: os.DirEntry[str], place: Path) -> bool:
    """Whether it is a second name of something in the place itself, such as `latest`."""
    return entry.is_symlink() and Path(entry.path).resolve().is_relative_to(place.resolve())


def _ours(folders: Sequence[Path]) -> list[Run]:
    by_study: dict[Path, list[Path]] = defaultdict(list)
    for folder in folders:
        by_study[folder.parent].append(folder)
    found: dict[Path, dict[str, Any]] = {}
    for study, inside in by_study.items():
        found |= zip(inside, read_facts(study, [folder.name for folder in inside]), strict=True)
    open_ones = [folder for folder in folders if found[folder]["values"].get("said_state") != "done"]
    states = _run_states(open_ones)
    return [_run(folder, found[folder], states.get(folder)) for folder in folders]


def _run(folder: Path, facts: Mapping[str, Any], status: Any) -> Run:
    values = dict(facts["values"])
    state, reason = "done", None
    if status is not None:
        state, reason = status.state, status.reason
        if state == "unreadable":  # the reason says it once, the lines of damage for each file
            facts = {**facts, "damage": []}
        if values["peak_bytes"] is None:
            values |= {
                "peak_bytes": status.progress.peak_bytes, "limit_bytes": status.progress.limit_bytes,
                "limit_at": _limit_at(folder),
            }  # fmt: skip
    name = folder.name or folder.resolve().name
    codes = tuple(code and Code(*code) for code in values.pop("codes"))
    return Run(
        name, folder, state, reason, values, facts["config"], tuple(facts["damage"]), codes=codes,
        metrics=facts.get("metrics", {}),
    )  # fmt: skip


def _limit_at(folder: Path) -> Any:
    """Cgroup of the limit in the last record of a run whose supervisor has not recorded its end."""
    records = RunFolder(folder).last_stage_records
    return records[-1]["snapshot"].get("limit_at") if records else None


def _run_states(folders: Sequence[Path]) -> dict[Path, Any]:
    """States as of `python -m slurm status`, by folder."""
    if not folders:
        return {}
    from slurm.status.study_status import run_states

    return {entry.folder: entry for entry in run_states(folders)}


def _is_csv(path: Path) -> bool:
    """Whether a file is a CSV, by its name."""
    return path.suffix.lower() == ".csv"


def _rank(run: Run) -> tuple[bool, float]:
    return run.counts, run.number("tokens") or 0.0
