"""RUN and STUDY, arguments of commands: a path, a name under `runs_dir`, part of an identity, a job id."""

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
    "all_studies", "all_token_jobs", "closed_studies", "find_job", "find_run", "find_study", "find_task",
    "find_token_jobs", "root_of", "set_of", "study_and_names", "study_and_runs",
]  # fmt: skip
_JOB = re.compile(r"(\d+)(?:_(\d+))?")
_LISTED = 4
_JOBS_OF_A_SET = re.compile(r"\.(.+)\.slurm")
_DATASETS = Path("Datasets")


def find_run(given: str, runs_dir: str | None = None) -> Path:
    """Find the folder of a run, as `python -m memory` does, or by the id of its job.

    Raises:
        UserError: no run or several runs match; lists them.
    """
    try:
        found = arguments.find_run(given, runs_dir)
    except UserError as error:
        job = find_job(given, runs_dir)
        if job is None:
            raise
        study, names = job
        if len(names) > 1:
            listed = [str(study / name) for name in names[:_LISTED]] + ["..."] * (len(names) > _LISTED)
            text = f"{given}: a job of {len(names)} runs. Give one of them: {', '.join(listed)}"
            raise UserError(text, code="several-runs") from error
        found = study / names[0]
    if not is_run_folder(found):
        inside = run_folders(found)
        more = f"; it is a study of {len(inside)} runs, such as {inside[0]}" if inside else ""
        text = f"{given}: {found} is no run folder: it has no config.yaml{more}"
        raise UserError(text, code="no-run-folder")
    return found


def find_job(given: str, runs_dir: str | None = None) -> tuple[Path, list[str]] | None:
    """Study and names of the runs of a job; None if no study below `runs_dir` submitted it.

    given: `4242` or `4242_3`. The newest submission counts: a cluster that is set up again gives the same
        numbers again.
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
    tasks = array.tasks if match[2] is None else array.tasks[int(match[2]) :][:1]
    names = [name for task in tasks for name in task]
    return (submission.study, names) if names else None


def study_and_runs(given: str, runs_dir: str | None = None) -> tuple[Path, Sequence[Path]]:
    """A study with all of its runs; for the folder of one run, its study with that run only.

    Raises:
        UserError: the study does not exist.
    """
    study, run = _study_and_run(given, runs_dir)
    return study, run_folders(study) if run is None else [run]


def study_and_names(given: str, runs_dir: str | None = None) -> tuple[Path, list[str]]:
    """A study and the names of the runs that are meant; no names mean all runs.

    Raises:
        UserError: the study does not exist, or never had a run.
    """
    job = find_job(given, runs_dir)
    if job is not None and not is_folder(root_of(runs_dir) / given):
        return job
    study, run = _study_and_run(given, runs_dir)
    if run is None and not run_folders(study) and not named_places(study):
        raise UserError(f"{study}: no runs there: expected folders with a config.yaml in it", code="no-runs")
    return study, [] if run is None else [run.name]


def _study_and_run(given: str, runs_dir: str | None) -> tuple[Path, Path | None]:
    try:
        found = find_study(given, runs_dir)
    except UserError:
        job = find_job(given, runs_dir)
        if job is None or len(job[1]) > 1:
            raise
        found = job[0] / job[1][0]
    if not is_run_folder(found):
        return found, None
    run = found if found.name not in ("", "..") else found.resolve()  # `.` does not name its parent
    return run.parent, run


def find_token_jobs(given: str, runs_dir: str | None = None) -> Path | None:
    """Folder of the submissions of a token set, `.SET.slurm`; None if it has none.

    given: path of the set, with or without .npy, its name below Datasets/, or that folder. A study of the
        same name goes first.
    """
    with suppress(UserError, Unreadable):  # reported when a study or a run is looked for
        path = path_of(given)
        if any(is_run_folder(folder) for folder in (root_of(runs_dir) / given).glob("*")):
            return None
        folders = [path.parent, *([_DATASETS] if path.parent == Path() else [])]
        names = [path.name] if path.name.endswith(".npy") else [path.name, f"{path.name}.npy"]
        places = [folder / f".{name}.slurm" for folder in folders for name in names if path.name]
        places = [path] if _JOBS_OF_A_SET.fullmatch(path.name) else places
        return next((place for place in places if is_folder(place / SUBMISSIONS)), None)
    return None


def all_token_jobs() -> list[Path]:
    """`.SET.slurm` of each token set below Datasets/ that jobs make or made."""
    return sorted(path.parent for path in _DATASETS.glob(f".*.slurm/{SUBMISSIONS}") if path.is_dir())


def find_task(given: str) -> Path | None:
    """The folder of a task of a token set: `Datasets/.SET.slurm/00003-of-00016`."""
    with suppress(UserError):
        path = path_of(given)
        return path if _JOBS_OF_A_SET.fullmatch(path.absolute().parent.name) and is_folder(path) else None
    return None


def set_of(study: Path) -> Path:
    """The token set that `.SET.slurm` belongs to."""
    found = _JOBS_OF_A_SET.fullmatch(study.absolute().name)
    assert found is not None
    return study.with_name(found[1])


def all_studies(runs_dir: str | None = None) -> list[Path]:
    """Studies under `runs_dir`, the newest first, by their beginning or last submission."""
    return sorted(_studies(runs_dir)[0], key=_newest_s, reverse=True)


def closed_studies(runs_dir: str | None = None) -> list[Unreadable]:
    """Why each folder under `runs_dir` that this user cannot read is not among the studies."""
    return _studies(runs_dir)[1]


def _studies(runs_dir: str | None) -> tuple[list[Path], list[Unreadable]]:
    found, closed = list[Path](), list[Unreadable]()
    root = root_of(runs_dir)
    with suppress(FileNotFoundError, NotADirectoryError), reading(root):
        os.listdir(root)
    for path in sorted(root.glob("[!.]*")):
        try:
            found += [path] if run_folders(path) else []
        except Unreadable as error:
            closed.append(error)
    return found, closed


def _newest_s(study: Path) -> float:
    times_s = [0.0]
    for place in (study, study / SUBMISSIONS):
        with suppress(OSError):
            times_s.append(place.stat().st_mtime)
    return max(times_s)
