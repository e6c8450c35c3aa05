"""RUN and STUDY as the commands take them: a path, a name under `runs_dir`, a beginning of an identity."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from experiment_utils import arguments
from experiment_utils.arguments import is_folder, path_of, root_of
from experiment_utils.atomic_files import Unreadable, reading
from experiment_utils.errors import UserError
from slurm.records.submissions import (
    SLURM,
    SUBMISSIONS,
    find_study,
    is_run_folder,
    named_places,
    run_folders,
    submissions,
)

__all__ = [
    "all_studies", "all_token_jobs", "closed_studies", "find_run", "find_study", "find_task",
    "find_token_jobs", "root_of", "set_of", "study_and_names", "study_and_runs",
]  # fmt: skip
_JOB = re.compile(r"(\d+)(?:_(\d+|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*(?:%\d+)?\]))?")
_LISTED = 4
_OF_A_SET = re.compile(r"\.(.+)\.slurm")
_DATASETS = Path("Datasets")


def find_run(given: str, runs_dir: str | None = None) -> Path:
    """A run's folder, as `python -m memory` finds it; a job id means the run that the job is for.

    Raises:
        UserError: there is none, or there are several; names them.
    """
    try:
        found = arguments.find_run(given, runs_dir)
    except UserError as error:
        of_job = find_job(given, runs_dir)
        if of_job is None:
            raise
        study, names = of_job
        if len(names) > 1:
            listed = ", ".join(str(study / name) for name in names[:_LISTED])
            more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
            raise UserError(
                f"{given}: a job of {len(names)} runs: {listed}{more}. Give one of them",
                code="several-runs",
            ) from error
        found = study / names[0]
    if not is_run_folder(found):
        inside = run_folders(found)
        more = (
            f"; it is a study of {len(inside)} runs: give one of them, such as {inside[0]}" if inside else ""
        )
        raise UserError(
            f"{given}: {found} is no run folder: it has no config.yaml{more}", code="no-run-folder"
        )
    return found


def find_job(given: str, runs_dir: str | None = None) -> tuple[Path, list[str]] | None:
    """The study and the names of the runs that a job is for; None if it is none of a study below `runs_dir`.

    given: as squeue shows it: `4242`, `4242_3`, or of several tasks `4242_[1-3,7%2]`. Numbers are given again
    where a cluster is set up again: the newest submission counts.
    """
    match = _JOB.fullmatch(given)
    if match is None:
        return None
    found = [
        (submission, array)
        for study in all_studies(runs_dir)
        for submission in submissions(study)
        for array in submission.arrays
        if submission.launcher == SLURM and array.job_id == match[1]
    ]
    if not found:
        return None
    submission, array = max(found, key=lambda one: one[0].created_s)
    wanted = range(len(array.tasks)) if match[2] is None else _tasks(match[2])
    names = [name for task in wanted if task < len(array.tasks) for name in array.tasks[task]]
    return (submission.study, names) if names else None


def _tasks(text: str) -> list[int]:
    """Of `3`, or `[1-3,7%2]`."""
    ranges = (part.partition("-") for part in text.strip("[]").partition("%")[0].split(","))
    return [task for first, _, last in ranges for task in range(int(first), int(last or first) + 1)]


def study_and_runs(given: str, runs_dir: str | None = None) -> tuple[Path, Sequence[Path]]:
    """A study with all of its runs; of the folder of one run, its study with that run alone.

    Raises:
        UserError: there is no such study.
    """
    study, run = _study_and_run(given, runs_dir)
    return study, run_folders(study) if run is None else [run]


def study_and_names(given: str, runs_dir: str | None = None) -> tuple[Path, list[str]]:
    """A study to do something about, and the names of its runs that are meant: of the folder of one run that
    run's, else none, which means all of them.

    Raises:
        UserError: there is no such study, or it has never had a run.
    """
    of_job = find_job(given, runs_dir)
    if of_job is not None and not is_folder(root_of(runs_dir) / given):
        return of_job
    study, run = _study_and_run(given, runs_dir)
    if run is not None:
        return study, [run.name]
    if not run_folders(study) and not named_places(study):
        raise UserError(f"{study}: no runs there: expected folders with a config.yaml in it", code="no-runs")
    return study, []


def _study_and_run(given: str, runs_dir: str | None) -> tuple[Path, Path | None]:
    try:
        found = find_study(given, runs_dir)
    except UserError:
        of_job = find_job(given, runs_dir)
        if of_job is None or len(of_job[1]) > 1:
            raise
        found = of_job[0] / of_job[1][0]
    if not is_run_folder(found):
        return found, None
    run = found if found.name not in ("", "..") else found.resolve()  # `.` does not name its parent
    return run.parent, run


def find_token_jobs(given: str, runs_dir: str | None = None) -> Path | None:
    """Where lies what was submitted of the token set that is meant, `.SET.slurm`; None: of none.

    given: the set's path, with or without .npy, its name below Datasets/, or that folder. A study of the name
    goes before.
    """
    try:
        path = path_of(given)
        if run_folders(root_of(runs_dir) / given):
            return None
        if _OF_A_SET.fullmatch(path.name) and is_folder(path / SUBMISSIONS):
            return path
        names = [path.name] if path.name.endswith(".npy") else [path.name, f"{path.name}.npy"]
        for folder in (path.parent, *([_DATASETS] if path.parent == Path() else [])):
            for name in names:
                jobs = folder / f".{name}.slurm"
                if path.name and is_folder(jobs / SUBMISSIONS):
                    return jobs
    except (UserError, Unreadable):  # where a study or a run is looked for, it is reported
        return None
    return None


def all_token_jobs() -> list[Path]:
    """Of each token set below Datasets/ that jobs make or made: `.SET.slurm`."""
    return sorted(path.parent for path in _DATASETS.glob(f".*.slurm/{SUBMISSIONS}") if path.is_dir())


def find_task(given: str) -> Path | None:
    """The folder of a task of a token set: `Datasets/.SET.slurm/00003-of-00016`."""
    try:
        path = path_of(given)
    except UserError:
        return None
    is_of_a_set = _OF_A_SET.fullmatch(path.absolute().parent.name) is not None
    return path if is_of_a_set and is_folder(path) else None


def set_of(study: Path) -> Path:
    """The token set that `.SET.slurm` belongs to."""
    found = _OF_A_SET.fullmatch(study.absolute().name)
    assert found is not None
    return study.with_name(found[1])


def all_studies(runs_dir: str | None = None) -> list[Path]:
    """Under `runs_dir`, the one that was begun or submitted to last first."""
    root = root_of(runs_dir)
    with suppress(FileNotFoundError, NotADirectoryError), reading(root):
        os.listdir(root)
    found = []
    for path in root.glob("*"):
        with suppress(Unreadable):  # `closed_studies`
            if path.name[0] != "." and run_folders(path):
                found.append(path)
    return sorted(found, key=_newest_s, reverse=True)


def closed_studies(runs_dir: str | None = None) -> list[Unreadable]:
    """Why each folder under `runs_dir` that this user cannot read is not among the studies."""
    found = []
    for path in sorted(root_of(runs_dir).glob("*")):
        try:
            run_folders(path)
        except Unreadable as error:
            found.append(error)
    return found


def _newest_s(study: Path) -> float:
    times_s = [0.0]
    for place in (study, study / SUBMISSIONS):
        with suppress(OSError):
            times_s.append(place.stat().st_mtime)
    return max(times_s)
