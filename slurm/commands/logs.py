"""`python -m slurm logs RUN`: all that a run and its jobs wrote, every attempt and rank; -f as it comes."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.arguments import find_run
from slurm.commands.why import look_at_task
from slurm.status.attempts import read_attempts
from slurm.status.log_files import LogFile, Sieve, lines_of, log_files
from slurm.status.study_status import RunState, state_of_run

EXAMPLES = """\
examples:
  python -m slurm logs runs/lr_sweep/32d-lr0.003-seed1-1a2b3c4d
  python -m slurm logs 1a2b3c4d -f               as it comes, until the run has ended
  python -m slurm logs 1a2b3c4d --attempt 2      of its second attempt alone
  python -m slurm logs 1a2b3c4d --json           which files, and their lines

The run's log.txt, then what its jobs wrote to stdout and stderr and the log does not have, rank by rank, then
the stacks of when memory was nearly out."""
POLL_S = 0.5
_LOOK_S = 15.0
_FIRST_BYTES = 8 << 10


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """What a user may type."""
    parser = subparsers.add_parser(
        "logs",
        help="what a run and its jobs wrote: every attempt and rank",
        description="What a run and its jobs wrote: every attempt and rank, joined.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("given", metavar="RUN", help="path, name below runs_dir, or beginning of an identity")
    parser.add_argument("-f", "--follow", action="store_true", help="as it comes, until the run has ended")
    parser.add_argument("--attempt", type=int, metavar="N", help="of this attempt alone")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print.

    Raises:
        UserError: there is no such run or attempt, or it wrote nothing.
    """
    folder = _folder(options.given)
    if options.follow and options.json:
        raise UserError("logs: -f with --json: expected one of them")
    if options.attempt is not None:
        _check_attempt(folder, options.attempt)
    if options.follow:
        return _follow(folder, options.attempt)
    files = log_files(folder, options.attempt)
    known: set[str] = set()
    told = [(file, list(lines_of(file, known, options.attempt))) for file in files]
    if options.json:
        plain = [
            {"title": file.title, "path": str(file.path), "attempt": file.attempt, "lines": lines}
            for file, lines in told
        ]
        print(json.dumps({"version": 1, "run": str(folder), "files": plain}, indent=2, ensure_ascii=False))
        return 0
    entry = _entry(folder)
    if not any(lines for _, lines in told):
        print(f"{folder} has written nothing yet: it is {entry.state}: {entry.reason}")
    for file, lines in told:
        if lines:
            print(f"==> {file.title} <==", *lines, "", sep="\n")
    print(_next(entry))
    return 0


def _next(entry: RunState) -> str:
    run = shlex.quote(str(entry.folder))
    if entry.state == "running":
        return f"next: python -m slurm logs {run} -f   (what it writes, as it comes)"
    told = {"queued": "why it waits", "blocked": "why it waits", "stalled": "what it does"}
    return f"next: python -m slurm why {run}   ({told.get(entry.state, 'what became of it')})"


def _folder(given: str) -> Path:
    """Of a run, or of a task of a token set; of a set that of the task that one wants to know of first.

    Raises:
        UserError: there is none.
    """
    look = look_at_task(given)
    return find_run(given) if look is None else look.entry.folder


def _entry(folder: Path) -> RunState:
    look = look_at_task(str(folder))
    return state_of_run(folder) if look is None else look.entry


def _check_attempt(folder: Path, number: int) -> None:
    there = [one.number for one in read_attempts(folder)]
    if number not in there:
        told = f"attempts so far: {', '.join(map(str, there))}" if there else "it has no attempt yet"
        raise UserError(f"--attempt {number}: {folder.name} has no such attempt; {told}")


class _Followed:
    """A file that grows. begin: what stands before is not told, of a log only noted.

    Of a file that repeats a log, lines wait for the next look: the log may get them a moment later.
    """

    def __init__(self, file: LogFile, sieve: Sieve, begin: int) -> None:
        self._file, self._sieve, self._begin = file, sieve, begin
        self._at, self._rest = begin if file.repeats else 0, b""
        self._held: list[str] = []

    def news(self, *, is_last: bool) -> list[str]:
        """Whole lines that came since, the last time also one without an end; a file that was made anew is
        read from its beginning.
        """
        came = self._came(is_last)
        if self._file.repeats:
            before, self._held = self._held, came
            came = [*before, *came] if is_last else before
        return [line for line in came if self._sieve.passes(line)]

    def _came(self, is_last: bool) -> list[str]:
        try:
            with open(self._file.path, "rb") as content:
                size = content.seek(0, 2)
                if size < self._at:
                    self._at, self._begin, self._rest = 0, 0, b""
                content.seek(self._at)
                found = content.read()
        except OSError:
            return []
        at = self._at - len(self._rest)
        self._at += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        if is_last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        told = []
        for line in lines:
            text = line.decode(errors="replace")
            if at >= self._begin:
                told.append(text)
            else:
                self._sieve.passes(text)
            at += len(line) + 1
        return told


def _follow(folder: Path, attempt: int | None) -> int:
    """Until the run is neither running nor waiting, and nothing more comes. attempt: of that one alone."""
    followed: dict[Path, _Followed] = {}
    known: set[str] = set()
    last_title, looked_s, is_live = "", 0.0, True
    is_first = True
    while True:
        is_over = not is_live  # looked at before the files: what was written last is still told
        for file in log_files(folder, attempt):
            if file.path not in followed:
                begin = _begin(file.path) if is_first and attempt is None else 0
                followed[file.path] = _Followed(file, Sieve(file, known, attempt), begin)
            lines = followed[file.path].news(is_last=is_over)
            if lines and file.title != last_title:
                print(f"==> {file.title} <==")
                last_title = file.title
            for line in lines:
                print(line, flush=True)
        is_first = False
        if is_over:
            break
        if time.monotonic() - looked_s > _LOOK_S or looked_s == 0.0:
            is_live, looked_s = _entry(folder).is_live, time.monotonic()
        else:
            time.sleep(POLL_S)
    entry = _entry(folder)
    print(f"{entry.state}: {entry.reason or folder}")
    print(_next(entry), flush=True)
    return 0


def _begin(path: Path) -> int:
    """Where the last lines of a long file begin."""
    try:
        with open(path, "rb") as content:
            size = content.seek(0, 2)
            if size <= _FIRST_BYTES:
                return 0
            content.seek(size - _FIRST_BYTES)
            return size - _FIRST_BYTES + len(content.readline())
    except OSError:
        return 0
