"""Records of submissions: written before a cluster or this machine is asked, completed by the answer.

    runs/STUDY/.submissions/ID/submission.json    one submission: its arrays, their tasks, their job ids
    runs/STUDY/RUN/jobs.json                      the run's place in each submission, newest last

A submission and the places of its runs are on the disk before the first sbatch; an array gets its job id from
the answer. If the submitter dies in between, the name of the array finds its job (squeue --name).
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from experiment_utils import atomic_files
from experiment_utils.arguments import is_folder, path_of, root_of
from experiment_utils.errors import UserError
from experiment_utils.safe_read import is_copy
from slurm.records.parse_record import shaped

VERSION = 1
SUBMISSIONS, SUBMISSION, JOBS = ".submissions", "submission.json", "jobs.json"
_OF_A_RUN = ("config.yaml", JOBS)
SLURM, LOCAL = "slurm", "local"
OF_THE_ORIGINAL = "its job belongs to"
"""Begin of the error of an array in a copy of its study."""


@dataclass(frozen=True)
class Array:
    """One sbatch: a job array, or a plain job for one task; for the local launcher, its one process."""

    number: int
    """Place in the submission."""
    name: str
    """Job name, unique among all submissions."""
    tasks: list[list[str]]
    """Names of the runs of each task, below the study."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of sbatch, without dashes."""
    how: str = "each"
    """Sharing of a task by its runs: `each`: one run; `ensemble`: its runs as one program; `shared`: its
    slots take any missing run of the array, those of the task first. Of earlier versions: `pack`: the runs of
    the task in parallel; `workers`: as `shared` with one slot."""
    slots: int = 1
    """Runs in parallel in one task of `shared`."""
    parallel: int | None = None
    """Tasks in parallel; for the local launcher, runs in parallel."""
    job_id: str | None = None
    """`4242` without a task, HOST:PID:STARTED_AT for the local launcher; None: not known to be submitted."""
    submitted_s: float | None = None
    error: str | None = None
    """Why it was not submitted: the words of sbatch if it refused."""
    waiter: str | None = None
    """Written by earlier versions: the command that was to submit it when the queue had room."""
    cancelled_s: float | None = None
    """When `slurm cancel` ended all of it."""
    cancelled_tasks: dict[str, float] = field(default_factory=dict)
    """When `slurm cancel` ended single tasks of a job array."""

    @property
    def is_sent(self) -> bool | None:
        """Whether it was submitted; None if its submitter died before it noted that."""
        return True if self.job_id is not None else False if self.error is not None else None

    @property
    def is_array(self) -> bool:
        return len(self.tasks) > 1

    @property
    def takes_any(self) -> bool:
        """Whether a task takes any missing run of the array."""
        return self.how in ("shared", "workers")

    @property
    def is_shared(self) -> bool:
        """Whether a run of a task can end while the job continues for others."""
        return self.takes_any or self.how == "pack"

    def task_of(self, place: int) -> int:
        """Task of the runs whose place names task `place`: the array can have been sent with fewer tasks."""
        return place % max(1, len(self.tasks))

    def job_of(self, task: int) -> str | None:
        """The job of a task: `4242_3`, or `4242` for a plain job."""
        return f"{self.job_id}_{self.task_of(task)}" if self.job_id and self.is_array else self.job_id

    def cancelled_at(self, task: int) -> float | None:
        """Unix time at which `slurm cancel` ended a task, None if it did not."""
        return self.cancelled_tasks.get(str(self.task_of(task)), self.cancelled_s)


@dataclass(frozen=True)
class Submission:
    """One command's request for runs."""

    id: str
    study: Path
    launcher: str
    """SLURM or LOCAL."""
    created_s: float
    user: str
    host: str
    cwd: str
    """Folder in which the command was typed: paths are relative to it."""
    command: str
    arrays: list[Array]
    snapshot: str | None = None
    """Folder of the code that runs."""
    then: str | None = None
    """Command to run when all of it has ended, as configured."""
    notify: str | None = None
    """Address to notify then."""
    follow_up: str | None = None
    """Job id of the job that does both."""
    follow_up_error: str | None = None
    """Why there is no such job."""
    makes: str | None = None
    """For tasks of a token set: a name of all that decides its bytes."""
    output: str | None = None
    """For a plain job: where its script writes; None: sbatch's default."""
    earlier: list[str] = field(default_factory=list)
    """Ids of submissions that the same command made before: one sweep with this one."""
    home: str | None = None
    """Absolute path of its folder when it was written, by which a copy of the study is recognized."""
    job: str | None = None
    """Slurm job that the process is in which works through a submission of this machine."""

    @property
    def is_copied(self) -> bool:
        """Whether its folder is a copy of the one that was submitted, whose jobs belong to the original."""
        return is_copy(self.folder, self.home)

    @property
    def folder(self) -> Path:
        return self.study / SUBMISSIONS / self.id

    def output_of(self, job: str) -> Path:
        """Output file of a plain job: as configured, else by the name that sbatch gives it."""
        return Path(self.cwd, self.output or f"slurm-{job}.out")

    @property
    def wants_follow_up(self) -> bool:
        """Whether the job for its end is still to be submitted: it depends on all arrays."""
        given_up = self.follow_up is not None or self.follow_up_error is not None
        wanted = self.launcher == SLURM and (self.then is not None or self.notify is not None)
        are_sent = [array.is_sent for array in self.arrays]
        return wanted and not given_up and any(are_sent) and None not in are_sent

    def with_array(self, array: Array) -> Submission:
        """The submission with another array of the same number."""
        return replace(self, arrays=[array if one.number == array.number else one for one in self.arrays])

    def write(self) -> None:
        """Write submission.json, whole or not at all."""
        plain = {**asdict(self), "version": VERSION}
        del plain["study"]  # it is where the file is
        self.folder.mkdir(parents=True, exist_ok=True)
        plain["home"] = self.home or os.path.realpath(self.folder)
        atomic_files.write_json(self.folder / SUBMISSION, plain)


@dataclass(frozen=True)
class Place:
    """A run's place in a submission."""

    submission: str
    array: int
    task: int


def read_submission(study: Path, submission_id: str) -> Submission:
    """Read a submission.

    Raises:
        UserError: it is missing or damaged.
    """
    path = study / SUBMISSIONS / submission_id / SUBMISSION
    try:
        with atomic_files.reading(path):
            plain = json.loads(path.read_text(encoding="utf-8"))
        arrays = [shaped(Array, array) for array in plain.pop("arrays")]
        submission: Submission = shaped(Submission, {**plain, "arrays": arrays, "study": study})
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} was damaged ({error}). Its jobs go on; squeue --me lists them") from error
    return _without_jobs(submission) if submission.is_copied else submission


def _without_jobs(submission: Submission) -> Submission:
    """A submission in a copy of its study: its jobs and processes work in the original."""
    error = f"{OF_THE_ORIGINAL} {Path(submission.home or '').parent.parent}, of which this study is a copy"
    arrays = [replace(array, job_id=None, waiter=None, error=error) for array in submission.arrays]
    return replace(submission, arrays=arrays, then=None, notify=None, follow_up=None)


def submissions(study: Path, *, all_of_them: bool = False) -> Iterator[Submission]:
    """Submissions of a study, oldest first, without damaged ones.

    Args:
        all_of_them: raise atomic_files.Unreadable for one that cannot be read; else it is left out too.
    """
    if all_of_them:
        with suppress(FileNotFoundError), atomic_files.reading(study / SUBMISSIONS):
            os.listdir(study / SUBMISSIONS)
    for path in sorted((study / SUBMISSIONS).glob(f"*/{SUBMISSION}")):
        try:
            yield read_submission(study, path.parent.name)
        except atomic_files.Unreadable:
            if all_of_them:
                raise
        except UserError:
            continue


def places(run: Path) -> list[Place]:
    """Places of a run, oldest first; if its file is damaged, by the submissions that name it.

    Raises:
        atomic_files.Unreadable: the file cannot be read.
    """
    try:
        plain = atomic_files.read_object(f"{run}/{JOBS}")
        return [] if plain is None else [shaped(Place, place) for place in plain["places"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return named_places(run.parent).get(run.name, [])


def named_places(study: Path) -> dict[str, list[Place]]:
    """Places of each run that a submission names, oldest first; jobs.json is written later."""
    found: dict[str, list[Place]] = {}
    for submission in submissions(study):
        for array in submission.arrays:
            for task, names in enumerate(array.tasks):
                for name in names:
                    found.setdefault(name, []).append(Place(submission.id, array.number, task))
    return found


def last_place(run: Path) -> tuple[Submission, Array, int] | None:
    """The last submission of a run, its array there, and its task in that; None without one.

    Raises:
        UserError: a submission was damaged.
    """
    for place in reversed(places(run) or named_places(run.parent).get(run.name, [])):
        submission = read_submission(run.parent, place.submission)
        array = array_of(run, submission, place)
        if array is not None:
            return submission, array, place.task
    return None


def array_of(run: Path, submission: Submission, place: Place) -> Array | None:
    """The array of a place; None if it does not name the run, as in a copy of a run's folder."""
    for array in submission.arrays:
        if array.number == place.array:
            own = array.tasks[array.task_of(place.task)] if array.tasks else []
            return array if any(run.name in names for names in (own, *array.tasks)) else None
    return None


def add_place(run: Path, place: Place) -> None:
    """Note that a run is about to be submitted."""
    known = dict.fromkeys((*places(run), place))
    atomic_files.write_json(run / JOBS, {"version": VERSION, "places": [asdict(one) for one in known]})


STOPS_S = 120.0
"""A launcher notes a signal that it passed on when its runs have stopped, at most this much later."""


def note_cancelled(
    submission: Submission, array: Array, asked_s: float, tasks: Iterable[int] | None = None
) -> None:
    """Note when tasks of an array were asked to end (None: all of it)."""
    submission = read_submission(submission.study, submission.id)

    def noted(one: Array) -> Array:
        if one.number != array.number:
            return one
        if tasks is None:
            return replace(one, cancelled_s=one.cancelled_s or round(asked_s, 3))
        return replace(
            one, cancelled_tasks={str(task): round(asked_s, 3) for task in tasks} | one.cancelled_tasks
        )

    replace(submission, arrays=[noted(one) for one in submission.arrays]).write()


def runs_of(submission: Submission) -> list[str]:
    """Names of its runs, in the order of the request."""
    return list(dict.fromkeys(name for array in submission.arrays for task in array.tasks for name in task))


def sweep_of(submission: Submission) -> list[Submission]:
    """The submission after those that its command made before, without those that cannot be read."""
    found = []
    for name in submission.earlier:
        with suppress(UserError):
            found.append(read_submission(submission.study, name))
    return [*found, submission]


def end_errors(study: Path) -> list[str]:
    """Failures at the end of the study's newest submission with `then=` or `notify=`; empty if nothing."""
    errors = [
        one.follow_up_error
        for one in submissions(study)
        if one.then is not None or one.notify is not None or one.follow_up_error is not None
    ]
    return [error for error in errors[-1:] if error is not None]


def find_study(given: str, runs_dir: str | None = None) -> Path:
    """Find a study by its path, or by its name below runs_dir (None: HIGHWATER_RUNS_DIR, else `runs`).

    Raises:
        UserError: there is no such study.
    """
    is_path = given in (".", "..") or given.startswith(("./", "../"))
    root = root_of(runs_dir)
    for path in (path_of(given),) if is_path else (root / given, path_of(given)):
        if is_folder(path):
            return path
    names = sorted(path.name for path in root.glob("*") if path.name[0] != "." and _has_runs(path))
    choices = f"studies there: {', '.join(names)}" if names else "there is no study there yet"
    raise UserError(
        f"{given}: no such study: expected a folder, or a name under {root}; {choices}", code="no-such-study"
    )


def _has_runs(study: Path) -> bool:
    """Whether it has runs, or cannot be read."""
    try:
        return bool(run_folders(study))
    except atomic_files.Unreadable:
        return True


def this_user() -> str:
    """Name of this process's user; the number for an id without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def typed_study(study: Path) -> str:
    """The study as an argument in a shell: its name if `find_study` finds it by that, else its path."""
    try:
        is_named = (root_of() / study.name).samefile(study)
    except (OSError, UserError):
        is_named = False
    return shlex.quote(study.name if is_named else str(study))


def is_run_folder(folder: Path) -> bool:
    """Whether it has a config.yaml, or had one when it was submitted, or cannot be read."""
    try:
        with atomic_files.reading(folder):
            return any((folder / name).is_file() for name in _OF_A_RUN)
    except atomic_files.Unreadable:
        return True


def run_folders(study: Path) -> Sequence[Path]:
    """Run folders of a study, by name, without the conf/ of a checkout that is in runs_dir.

    Raises:
        atomic_files.Unreadable: the study itself cannot be read.
    """
    try:
        with atomic_files.reading(study), os.scandir(study) as entries:
            folders = sorted(entry.path for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [Path(folder) for folder in folders if _is_run(folder)]


def _is_run(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    for file in _OF_A_RUN:
        try:
            os.stat(f"{folder}/{file}")  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # a folder of another user gets a row that says so
            return not name.startswith(".")
        return name != "conf" or not Path(folder, "__init__.py").exists()
    return False
