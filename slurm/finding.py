"""RUN and STUDY as the commands take them: a path, a name under `runs_dir`, a beginning of an identity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conf import UserError
from memory.usage import UsageError, is_folder, path_of
from memory.usage import find_run as find_run_of_memory
from memory.usage import root_of as root_of_memory
from slurm.records import SUBMISSIONS, find_study, run_folders

__all__ = ["all_studies", "find_run", "find_study", "root_of", "study_and_runs"]


def root_of(runs_dir: str | None = None) -> Path:
    """`runs_dir`, else HIGHWATER_RUNS_DIR, else `runs` where the user stands."""
    try:
        return root_of_memory(runs_dir)
    except UsageError as error:
        raise UserError(str(error)) from error


def find_run(given: str, runs_dir: str | None = None) -> Path:
    """A run's folder, as `python -m memory` finds it: the two agree on what RUN means.

    Raises:
        UserError: there is none, or there are several; names them.
    """
    try:
        found = find_run_of_memory(given, runs_dir)
    except UsageError as error:
        raise UserError(str(error)) from error
    if not (found / "config.yaml").is_file():
        inside = run_folders(found)
        more = (
            f"; it is a study of {len(inside)} runs: give one of them, such as {inside[0]}" if inside else ""
        )
        raise UserError(f"{given}: {found} is no run folder: it has no config.yaml{more}")
    return found


def study_and_runs(given: str, runs_dir: str | None = None) -> tuple[Path, Sequence[Path]]:
    """A study with all of its runs; of the folder of one run, its study with that run alone.

    Raises:
        UserError: there is no such study.
    """
    try:
        path = path_of(given)
        if is_folder(path) and (path / "config.yaml").is_file():
            return path.parent, [path]
    except UsageError as error:
        raise UserError(str(error)) from error
    study = find_study(given, runs_dir)
    return study, run_folders(study)


def all_studies(runs_dir: str | None = None) -> list[Path]:
    """Under `runs_dir`, the one that was begun or submitted to last first."""
    root = root_of(runs_dir)
    found = [path for path in root.glob("*") if path.is_dir() and run_folders(path)]
    return sorted(found, key=_newest_s, reverse=True)


def _newest_s(study: Path) -> float:
    places = [study, study / SUBMISSIONS]
    return max((place.stat().st_mtime for place in places if place.exists()), default=0.0)
