"""`python -m slurm logs RUN`: all that a run and its jobs wrote, every attempt and rank; -f follows it."""

from __future__ import annotations

import argparse
import json
import shlex
import time
from pathlib import Path

from experiment_utils.errors import UserError
from slurm.arguments import find_run
from slurm.commands.status_table import Next
from slurm.commands.why import look_at_task
from slurm.records.submissions import typed_study
from slurm.status.attempts import read_attempts
from slurm.status.log_files import LogFile, Sieve, lines_of, log_files
from slurm.status.study_status import RunState, state_of_run

EXAMPLES = """\
examples:
  python -m slurm logs runs/lr_sweep/32d-lr0.003-seed1-1a2b3c4d
  python -m slurm logs 4242_3                    the run of a job
  python -m slurm logs 1a2b3c4d -f               follow until the run has ended
  python -m slurm logs 1a2b3c4d --attempt 2      its second attempt only
  python -m slurm logs 1a2b3c4d --json           the files, and their lines

The run's log.txt, then what only its jobs' stdout and stderr have, rank by rank, then the stacks that were
written when memory was nearly out."""
POLL_S = 0.5
_LOOK_S = 15.0
_FIRST_LINES = 50
"""Lines of each file with which -f begins."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its options."""
    parser = subparsers.add_parser(
        "logs",
        help="what a run and its jobs wrote: every attempt and rank",
        description="What a run and its jobs wrote: every attempt and rank, joined.",
        epilog=EXAMPLES,
    )
    parser.add_argument("given", metavar="RUN", help="path, name, beginning of an identity, or job id")
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the run has ended")
    parser.add_argument("--attempt", type=int, metavar="N", help="this attempt only")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print them.

    Raises:
        UserError: the run or the attempt does not exist.
    """
    look, attempt = look_at_task(options.given), options.attempt
    folder = find_run(options.given) if look is None else look.entry.folder
    if options.follow and options.json:
        raise UserError("logs: -f with --json: expected one of them")
    if attempt is not None and attempt not in (known := [one.number for one in read_attempts(folder)]):
        there = f"attempts so far: {', '.join(map(str, known))}" if known else "it has no attempt yet"
        raise UserError(f"--attempt {attempt}: {folder.name} has no such attempt; {there}")
    if options.follow:
        return _follow(folder, attempt)
    shown = set[str]()
    found = [(file, list(lines_of(file, shown, attempt))) for file in log_files(folder, attempt)]
    if options.json:
        plain = [
            {"title": file.title, "path": str(file.path), "attempt": file.attempt, "lines": lines}
            for file, lines in found
        ]
        print(json.dumps({"version": 1, "run": str(folder), "files": plain}, indent=2, ensure_ascii=False))
        return 0
    entry = _entry(folder)
    if not any(lines for _, lines in found):
        print(f"{folder} has written nothing yet: it is {entry.state}: {entry.reason}")
    for file, lines in found:
        if lines:
            print(f"==> {file.title} <==", *lines, "", sep="\n")
    print(_next(entry).line())
    return 0


def _next(entry: RunState) -> Next:
    run = shlex.quote(str(entry.folder))
    if entry.state == "running":
        return Next(f"python -m slurm logs {run} -f", "follow it")
    if entry.state == "done" and look_at_task(str(entry.folder)) is None:
        return Next(f"python -m analysis {typed_study(entry.folder.parent)}", "what its study came to")
    return Next(f"python -m slurm why {run}", "the cause, what to change")


def _entry(folder: Path) -> RunState:
    look = look_at_task(str(folder))
    return state_of_run(folder) if look is None else look.entry


class _Followed:
    """A file that grows."""

    def __init__(self, file: LogFile, sieve: Sieve) -> None:
        self._file, self._sieve = file, sieve
        self._at, self._rest = 0, b""
        self._held: list[str] = []

    def news(self, *, is_last: bool) -> list[str]:
        """Lines that were written since the last call; the last time also one without an end.

        Lines of a file that repeats a log wait for the next call: the log can get them a moment later.
        """
        try:
            with open(self._file.path, "rb") as content:
                if content.seek(0, 2) < self._at:  # it was written again
                    self._at, self._rest = 0, b""
                content.seek(self._at)
                found = content.read()
        except OSError:
            found = b""
        self._at += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        if is_last and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        news = [line.decode(errors="replace") for line in lines]
        if self._file.repeats:
            news, self._held = ([*self._held, *news], []) if is_last else (self._held, news)
        return [line for line in news if self._sieve.passes(line)]


def _follow(folder: Path, attempt: int | None) -> int:
    """Print until the run neither runs nor waits."""
    followed: dict[Path, _Followed] = {}
    shown = set[str]()
    last_title, looked_s, is_live, is_first = "", 0.0, True, True
    while True:
        is_over = not is_live  # read before the files: what was written last is still printed
        for file in log_files(folder, attempt):
            if file.path not in followed:
                followed[file.path] = _Followed(file, Sieve(file, shown, attempt))
            lines = followed[file.path].news(is_last=is_over)
            if is_first and attempt is None:
                lines = lines[-_FIRST_LINES:]
            if lines and file.title != last_title:
                print(f"==> {file.title} <==")
                last_title = file.title
            for line in lines:
                print(line, flush=True)
        is_first = False
        if is_over:
            break
        if looked_s == 0.0 or time.monotonic() - looked_s > _LOOK_S:
            is_live, looked_s = _entry(folder).is_live, time.monotonic()
        else:
            time.sleep(POLL_S)
    entry = _entry(folder)
    print(f"{entry.state}: {entry.reason or folder}")
    print(_next(entry).line(), flush=True)
    return 0
