"""`python -m memory run --output DIR -- COMMAND`: any command, its memory sampled from outside."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from experiment_utils.errors import UserError
from experiment_utils.typed_here import as_typed_here
from memory.record.earlier_attempts import attempt_after, keep_earlier
from memory.supervision.child import NOT_EXECUTABLE, NOT_FOUND
from memory.supervision.options import EXPLAIN, command_line

EXAMPLES = """\
examples:
  python -m memory run --output mem -- python train.py --lr 3e-4
  srun bash -c 'python -m memory run --output mem/$SLURM_PROCID -- python train.py'   # one for each task
  python -m memory run --output mem --log -- make test        # also keeps what it prints, in mem/log.txt

While it runs:  python -m memory watch mem      Afterwards:  python -m memory explain mem

The command keeps its stdin, stdout and stderr, gets each signal, and its exit status is the one you see:
127 the command does not exist, 126 it cannot be executed, 2 bad options. After SIGKILL of everything the last
samples are in DIR/memory.ring; otherwise DIR/outcome.json has how it ended. A second run with the same DIR is
the next attempt: these files of the one before move to DIR/attempts/N.

A Python program writes its stacks when memory is nearly out, and for `python -m memory stacks DIR`, after:
  from memory import black_box; black_box.install()"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the `run` command and its options."""
    parser = subparsers.add_parser(
        "run",
        help="run any command, sampled from outside",
        description="Run any command. Its parent, a small process, samples its memory once a second, faster "
        "if the limit is near, and records how it ended.",
        epilog=EXAMPLES,
        usage="python -m memory run --output DIR [--log] [--verbose] -- COMMAND...",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="folder of memory.ring and outcome.json"
    )
    parser.add_argument(
        "--log",
        action="store_true",
        help="copy what the command prints to DIR/log.txt; it has no terminal then",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print how it ended also when all is well, on stderr"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="after --")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Become the supervisor, so that the caller waits for the process that it started.

    Raises:
        UserError: no command, no folder, a Python that cannot be executed, or a system other than Linux.
    """
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise UserError(
            "no command: expected python -m memory run --output DIR -- COMMAND, for example\n"
            "  python -m memory run --output mem -- python train.py",
            code="no-command",
        )
    if not sys.platform.startswith("linux"):
        raise UserError("memory run needs Linux: it reads /proc and cgroups", code="not-linux")
    if not options.output:
        raise UserError("--output is empty: expected a folder, such as --output mem", code="empty-output")
    output = Path(options.output)
    if not shutil.which(command[0]):
        why, exit_code = _cannot_start(command[0])
        print(f"error: {command[0]}: {why}", file=sys.stderr)
        return exit_code
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--output {options.output}: cannot be made: {error.strerror}", code="output-not-made"
        ) from error
    if not os.access(output, os.W_OK | os.X_OK):
        raise UserError(
            f"--output {options.output}: not writable by this user: give another folder",
            code="output-not-writable",
        )
    attempt = attempt_after(output)
    keep_earlier(output, attempt, ["memory.html", *(path.name for path in output.glob("memory*.png"))])
    tell, explain = "always" if options.verbose else "failed", as_typed_here(EXPLAIN)
    line = command_line(command, output, attempt=attempt, tell=tell, log=options.log, explain=explain)
    sys.stdout.flush()
    try:
        return os.execv(line[0], line)
    except OSError as error:
        raise UserError(
            f"{line[0] or 'sys.executable'}: this Python cannot be executed: {error.strerror}",
            code="python-not-executable",
        ) from error


def _cannot_start(program: str) -> tuple[str, int]:
    """Reason and exit code, as a shell has them: only a name with a slash in it is a path."""
    path = Path(program)
    try:
        path.stat()
    except PermissionError:
        return "permission denied", NOT_EXECUTABLE
    except OSError:
        return "no such command in PATH", NOT_FOUND
    if "/" not in program and path.is_file():
        return f"no such command in PATH; the file of this folder is ./{program}", NOT_FOUND
    if path.is_dir() and "/" in program:
        return "it is a folder", NOT_EXECUTABLE
    if path.is_file():
        return "it is not executable (chmod +x?)", NOT_EXECUTABLE
    return "no such command in PATH", NOT_FOUND
