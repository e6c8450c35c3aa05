"""The logs of a run and the output of its jobs, without the lines that are in both."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from experiment_utils.run_folder import RunFolder
from slurm.records.submissions import SLURM, places, read_submission
from slurm.status.attempts import read_attempts

_ATTEMPT_BEGINS = re.compile(r"\battempt (\d{1,9}), on ")
_STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
_OF_SUBMITIT = re.compile(r"^(?P<job>\d+(?:_\d+)?)_(?P<rank>\d+)_log\.(?P<stream>out|err)$")
_BLACK_BOX = re.compile(r"^memory\.blackbox\.(\d+)\.txt$")


@dataclass(frozen=True)
class LogFile:
    """One file of output."""

    title: str
    path: Path
    attempt: int | None = None
    """The only attempt in it; None: several, or not known."""
    repeats: bool = False
    """Whether it has lines of log.txt too, which are left out."""
    first: int = 1
    """Attempt of its first lines."""


def log_files(folder: Path, attempt: int | None = None) -> list[LogFile]:
    """Files of a run: its own log, those of other ranks, stdout and stderr of each job, black boxes.

    attempt: only files that are, or can be, of this one.
    """
    own, first = [], 1
    of_attempts = (*RunFolder(folder).attempt_folders(), folder)
    for place in of_attempts:
        paths = sorted(place.glob("log*.txt"), key=_log_first)
        own += [LogFile(str(path.relative_to(folder)), path, first=first) for path in paths]
        if (place / "log.txt").exists() and place != folder:
            first = int(place.name) + 1
    attempts = read_attempts(folder)
    jobs = {one.job: one.number for one in attempts if one.job}
    numbers = {} if len(attempts) > len(jobs) else jobs
    of_jobs = [LogFile(title, path, numbers.get(job), True) for title, path, job in _of_jobs(folder)]
    boxes = [
        LogFile(f"{path.name}: stacks when memory was nearly out", path, int(match[1]))
        for place in of_attempts
        for path in sorted(place.glob("memory.blackbox.*.txt"))
        if (match := _BLACK_BOX.match(path.name))
    ]
    found = [*own, *of_jobs, *boxes]
    return [one for one in found if attempt is None or one.attempt in (None, attempt)]


class Sieve:
    """Which lines of a file are shown."""

    def __init__(self, file: LogFile, known: set[str], attempt: int | None = None) -> None:
        """known: messages that were shown: lines of logs are added, a file that repeats them leaves them out.
        attempt: only its lines, of a log that has several.
        """
        self._file, self._known, self._attempt = file, known, attempt
        self._current = file.first

    def passes(self, line: str) -> bool:
        """Whether the next line is shown; called for each line of the file in order."""
        message = _STAMP.sub("", line)
        if self._file.repeats:
            return message not in self._known
        begins = _ATTEMPT_BEGINS.search(line)
        self._current = int(begins[1]) if begins else self._current
        self._known.add(message)
        return self._attempt in (None, self._current, self._file.attempt)


def lines_of(file: LogFile, known: set[str], attempt: int | None = None) -> Iterator[str]:
    """The lines of a file that a `Sieve` lets through."""
    sieve = Sieve(file, known, attempt)
    try:
        with open(file.path, encoding="utf-8", errors="replace") as content:
            for line in content:
                line = line.rstrip("\n")
                if sieve.passes(line):
                    yield line
    except OSError as error:
        yield f"({file.path} cannot be read: {error.strerror})"


def _of_jobs(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """(title, path, job) for every submission of the run, oldest first."""
    seen: set[Path] = set()
    for place in places(folder):
        try:
            submission = read_submission(folder.parent, place.submission)
        except Exception:  # damaged: the names of its jobs are lost
            continue
        array = next((one for one in submission.arrays if one.number == place.array), None)
        if submission.launcher != SLURM:
            for path in sorted(submission.folder.glob("*.txt")):
                yield f"the launcher of {submission.id}", path, ""
            continue
        job = array.job_of(place.task) if array else None
        if array is None or job is None:
            continue
        tasks = range(len(array.tasks)) if array.takes_any else (place.task,)
        for name in [array.job_of(task) or "" for task in tasks]:
            for path in sorted((submission.folder / "submitit").glob(f"{name}_*_log.*"), key=_rank_first):
                match = _OF_SUBMITIT.match(path.name)
                if match is None or match["job"] != name or path in seen:
                    continue
                seen.add(path)
                stream = {"out": "stdout", "err": "stderr"}[match["stream"]]
                yield f"job {name}, rank {match['rank']}, {stream}", path, name
        plain = submission.output_of(job)
        if os.access(plain, os.F_OK):
            yield f"job {job}, the script's output", plain, job


def _rank_first(path: Path) -> tuple[int, int, str]:
    match = _OF_SUBMITIT.match(path.name)
    return (int(match["rank"]), match["stream"] != "out", "") if match else (1 << 30, 0, path.name)


def _log_first(path: Path) -> tuple[bool, str]:
    return path.name != "log.txt", path.name
