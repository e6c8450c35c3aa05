"""Submitting again what is missing of a token set: the command that made it, typed once more."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from experiment_utils.errors import Problem, UserError
from slurm.finding import set_of
from slurm.records import Submission, submissions
from slurm.submit.again import new_mem, new_time
from slurm.submit.frozen import FROZEN
from slurm.tokens.script import MERGE

ENTRY = Path(__file__).resolve().parent.parent.parent / "pretokenize_dataset.py"


def submit_again(study: Path, options: argparse.Namespace) -> int:
    """Type the last command again, where it was typed, with other `slurm.KEY=VALUE`; its exit status.

    study: `.SET.slurm`. options: of `python -m slurm resubmit`.

    Raises:
        UserError: what is asked for is for runs; nothing was submitted of the set, or its folder is gone.
    """
    last = next(reversed(list(submissions(study))), None)
    if last is None:
        raise UserError(f"{set_of(study)}: what was submitted of it cannot be read: type its command again")
    names = [word for word in options.rest if "=" not in word]
    has_code = options.code != FROZEN
    for flag, given in (
        ("RUN", names), ("--only", options.only), ("--launcher", options.launcher), ("--code", has_code),
        ("--again", options.again),
    ):  # fmt: skip
        if given:
            raise UserError(
                Problem(flag, "is for runs: of a token set all that is missing is submitted. Leave it away")
            )
    _, *words = shlex.split(last.command)
    overrides = [word for word in options.rest if "=" in word]
    overrides += _changed(last, options)
    keys = {override.partition("=")[0] for override in overrides}
    kept = [word for word in words[1:] if word.partition("=")[0] not in keys]
    flags = [flag for flag, is_set in (("--dry-run", options.dry_run), ("--json", options.json)) if is_set]
    more = [*kept, *(flag for flag in flags if flag not in kept), *overrides]
    print(f"{last.cwd}: {shlex.join(['python', ENTRY.name, *more])}", file=sys.stderr)
    try:
        return subprocess.run([sys.executable, str(ENTRY), *more], cwd=last.cwd).returncode
    except OSError as error:
        raise UserError(f"{last.cwd}, where it was typed, cannot be used: {error.strerror}") from error


def _changed(last: Submission, options: argparse.Namespace) -> list[str]:
    """`--mem x2` is of what the tasks had the last time."""
    asked = next((array.options for array in last.arrays if array.tasks != [[MERGE]]), {})
    changed = []
    if options.mem is not None:
        changed.append(f"slurm.mem={new_mem(options.mem, None, asked.get('mem')) >> 20}MB")
    if options.time is not None:
        changed.append(f"slurm.time={new_time(options.time, 'auto', asked.get('time'))}")
    return changed
