"""What was asked of a cluster or of this machine: written before it is asked, completed by the answer.

    runs/STUDY/.submissions/ID/submission.json    one submission: its arrays, their tasks, their job ids
    runs/STUDY/RUN/jobs.json                      the run's place in each submission, newest last

A submission stands on the disk, each of its runs with it, before the first sbatch; an array gets its job id
from the answer. Where the submitter died in between, the name of the array finds its job (squeue --name).
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
"""An array's error in a copy of its study begins so."""


@dataclass(frozen=True)
class Array:
    """One sbatch: a job array, or of one task a plain job; of the local launcher, its one process.

    number: its place in the submission. name: of the job, unique among all submissions. tasks: for each the
    names of the runs that it is for, below the study; of several runs, `how` they share it. options: of
    sbatch, without dashes. parallel: tasks at a time; of the local launcher: runs side by side. job_id: of
    the array, `4242`, without a task; None: not known to have been submitted; of the local launcher
    `HOST:PID:STARTED_AT`. error: why it was not submitted: what sbatch said where it refused. waiter: of runs
    that the queue had no room for, the command that waits to submit them, written in the same way.
    cancelled_s: when `slurm cancel` ended all of it; cancelled_tasks: of a job array when it ended which of
    its tasks.
    """

    number: int
    name: str
    tasks: list[list[str]]
    options: dict[str, Any] = field(default_factory=dict)
    how: str = "each"
    """How the runs of a task share it: `each`: one run; `ensemble`: its runs as one program; `shared`: its
    slots take any missing run of the array, those of the task first. Of earlier versions: `pack`: the runs of
    the task in parallel; `workers`: as `shared` with one slot."""
    slots: int = 1
    """Runs in parallel in one task of `shared`."""
    parallel: int | None = None
    job_id: str | None = None
    submitted_s: float | None = None
    error: str | None = None
    waiter: str | None = None
    cancelled_s: float | None = None
    cancelled_tasks: dict[str, float] = field(default_factory=dict)

    @property
    def is_sent(self) -> bool | None:
        """Whether it was submitted; None where its submitter died before it could say."""
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
        """Whether runs of a task end by themselves, and the job goes on for others."""
        return self.takes_any or self.how == "pack"

    def job_of(self, task: int) -> str | None:
        """As Slurm writes it: `4242_3`, or `4242` of a plain job."""
        return f"{self.job_id}_{task}" if self.job_id and self.is_array else self.job_id

    def cancelled_at(self, task: int) -> float | None:
        """Unix time; None of a task that `slurm cancel` has not ended."""
        return self.cancelled_tasks.get(str(task), self.cancelled_s)


@dataclass(frozen=True)
class Submission:
    """launcher: SLURM or LOCAL. cwd: where the user stood: what paths are relative to. command: as typed.
    snapshot: folder of the code that runs. then, notify: what the sweep's end is to do, as configured;
    follow_up: job id of what does it; follow_up_error: why there is none. makes: of tasks of a token set, a
    name of all that decides its bytes. output: of a plain job, where its script writes; None: not told.
    earlier: ids of what the same command submitted before, as the queue had room: one sweep with this.
    home: absolute path of its folder when it was written, by which a copy of the study is recognized.
    """

    id: str
    study: Path
    launcher: str
    created_s: float
    user: str
    host: str
    cwd: str
    command: str
    arrays: list[Array]
    snapshot: str | None = None
    then: str | None = None
    notify: str | None = None
    follow_up: str | None = None
    follow_up_error: str | None = None
    makes: str | None = None
    output: str | None = None
    earlier: list[str] = field(default_factory=list)
    home: str | None = None
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
        """Of a plain job: as told, else by the name that sbatch gives it."""
        return Path(self.cwd, self.output or f"slurm-{job}.out")

    @property
    def wants_follow_up(self) -> bool:
        """Whether its end is still to be submitted, once its arrays are: it waits for all of them."""
        given_up = self.follow_up is not None or self.follow_up_error is not None
        wanted = self.launcher == SLURM and (self.then is not None or self.notify is not None)
        told = [array.is_sent for array in self.arrays]
        return wanted and not given_up and any(told) and None not in told

    def write(self) -> None:
        """Whole or not at all; safe to call again."""
        plain = {**asdict(self), "version": VERSION}
        del plain["study"]  # where it lies
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
    """Raises UserError: it is missing, or was damaged; names the file."""
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
    """Of a study, oldest first; damaged ones are left out: `read_submission` reports them.

    Args:
        all_of_them: what cannot be read raises atomic_files.Unreadable; else it is left out too.
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
    """Of a run, oldest first; of a file that is damaged, those by the submissions that name it.

    Raises:
        atomic_files.Unreadable: the file cannot be read.
    """
    try:
        plain = atomic_files.read_object(f"{run}/{JOBS}")
        return [] if plain is None else [shaped(Place, place) for place in plain["places"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return named_places(run.parent).get(run.name, [])


def named_places(study: Path) -> dict[str, list[Place]]:
    """Of each run that submissions of the study name, oldest first: also where the submitter died before the
    run heard of it.
    """
    found: dict[str, list[Place]] = {}
    for submission in submissions(study):
        for array in submission.arrays:
            for task, names in enumerate(array.tasks):
                for name in names:
                    found.setdefault(name, []).append(Place(submission.id, array.number, task))
    return found


def last_place(run: Path) -> tuple[Submission, Array, int] | None:
    """Of a run: its last submission, its array there, and its task of that; None where there is none.

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
    array = next((one for one in submission.arrays if one.number == place.array), None)
    if array is None or not 0 <= place.task < len(array.tasks):
        return None
    return array if run.name in array.tasks[place.task] else None


def add_place(run: Path, place: Place) -> None:
    """Note that a run is about to be submitted."""
    known = dict.fromkeys((*places(run), place))
    atomic_files.write_json(run / JOBS, {"version": VERSION, "places": [asdict(one) for one in known]})


STOPS_S = 120.0
"""A launcher notes a signal that it has passed on when its runs have stopped: so long ago at most."""


def note_cancelled(
    submission: Submission, array: Array, asked_s: float, tasks: Iterable[int] | None = None
) -> None:
    """Write down what was asked to end, and when: tasks of an array (None: all of it)."""
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
    """Names of its runs, in the order they were asked for."""
    return list(dict.fromkeys(name for array in submission.arrays for task in array.tasks for name in task))


def sweep_of(submission: Submission) -> list[Submission]:
    """With what its command submitted before, oldest first; without what cannot be read any more."""
    found = []
    for name in submission.earlier:
        with suppress(UserError):
            found.append(read_submission(submission.study, name))
    return [*found, submission]


def find_study(given: str, runs_dir: str | None = None) -> Path:
    """STUDY is a path, or a name under `runs_dir` (None: HIGHWATER_RUNS_DIR, else `runs`).

    Raises:
        UserError: there is none; names those that there are.
    """
    is_path = given in (".", "..") or given.startswith(("./", "../"))
    root = root_of(runs_dir)
    for path in (path_of(given),) if is_path else (root / given, path_of(given)):
        if is_folder(path):
            return path
    there = sorted(path.name for path in root.glob("*") if path.name[0] != "." and _has_runs(path))
    told = f"studies there: {', '.join(there)}" if there else "there is no study there yet"
    raise UserError(
        f"{given}: no such study: expected a folder, or a name under {root}; {told}", code="no-such-study"
    )


def _has_runs(study: Path) -> bool:
    """Whether it holds runs, or cannot be looked into."""
    try:
        return bool(run_folders(study))
    except atomic_files.Unreadable:
        return True


def this_user() -> str:
    """The name of who runs this; of a user id without a name, as in a container, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def typed_study(study: Path) -> str:
    """STUDY for a shell, as `find_study` takes it: its name where that leads there, else its path."""
    try:
        is_named = (root_of() / study.name).samefile(study)
    except (OSError, UserError):
        is_named = False
    return shlex.quote(study.name if is_named else str(study))


def is_run_folder(folder: Path) -> bool:
    """Whether it has a config.yaml, or had one when it was submitted, or cannot be looked into."""
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
