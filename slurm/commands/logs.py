"""`python -m slurm logs RUN`: all that a run and its jobs wrote, every attempt and rank; -f as it comes."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path

from conf import UserError
from slurm.commands.why import look_at_task
from slurm.finding import find_run
from slurm.truth.attempts import read_attempts
from slurm.truth.log_files import LogFile, lines_of, log_files
from slurm.truth.study import Truth, run_truth

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
        return _follow(folder)
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
    truth = _truth(folder)
    if not any(lines for _, lines in told):
        print(f"{folder} has written nothing yet: it is {truth.state}: {truth.reason}")
    for file, lines in told:
        if lines:
            print(f"==> {file.title} <==", *lines, "", sep="\n")
    print(_next(truth))
    return 0


def _next(truth: Truth) -> str:
    run = shlex.quote(str(truth.folder))
    if truth.state == "running":
        return f"next: python -m slurm logs {run} -f   (what it writes, as it comes)"
    told = {"queued": "why it waits", "blocked": "why it waits", "stalled": "what it does"}
    return f"next: python -m slurm why {run}   ({told.get(truth.state, 'what became of it')})"


def _folder(given: str) -> Path:
    """Of a run, or of a task of a token set; of a set that of the task that one wants to know of first.

    Raises:
        UserError: there is none.
    """
    look = look_at_task(given)
    return find_run(given) if look is None else look.truth.folder


def _truth(folder: Path) -> Truth:
    look = look_at_task(str(folder))
    return run_truth(folder) if look is None else look.truth


def _check_attempt(folder: Path, number: int) -> None:
    there = [one.number for one in read_attempts(folder)]
    if number not in there:
        told = f"attempts so far: {', '.join(map(str, there))}" if there else "it has no attempt yet"
        raise UserError(f"--attempt {number}: {folder.name} has no such attempt; {told}")


class _Followed:
    """A file that grows. Of one that was there from the beginning only the end is told."""

    def __init__(self, file: LogFile, begin: int) -> None:
        self.file, self._at, self._rest = file, begin, b""

    def news(self) -> list[str]:
        """Whole lines that came since; a file that was made anew is read from its beginning."""
        try:
            with open(self.file.path, "rb") as content:
                size = content.seek(0, 2)
                if size < self._at:
                    self._at, self._rest = 0, b""
                content.seek(self._at)
                found = content.read()
        except OSError:
            return []
        self._at += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def _follow(folder: Path) -> int:
    """Until the run is neither running nor waiting, and nothing more comes."""
    followed: dict[Path, _Followed] = {}
    last_title, looked_s, is_live = "", 0.0, True
    is_first = True
    try:
        while True:
            is_over = not is_live  # looked at before the files: what was written last is still told
            for file in log_files(folder):
                if file.path not in followed:
                    followed[file.path] = _Followed(file, _begin(file.path) if is_first else 0)
                lines = followed[file.path].news()
                if lines and file.title != last_title:
                    print(f"==> {file.title} <==")
                    last_title = file.title
                for line in lines:
                    print(line, flush=True)
            is_first = False
            if is_over:
                break
            if time.monotonic() - looked_s > _LOOK_S or looked_s == 0.0:
                is_live, looked_s = _truth(folder).is_live, time.monotonic()
            else:
                time.sleep(POLL_S)
    except KeyboardInterrupt:
        return 0
    truth = _truth(folder)
    print(f"{truth.state}: {truth.reason or folder}")
    print(_next(truth), flush=True)
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
