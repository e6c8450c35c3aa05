"""Submit what is missing of a token set: the command that made it, typed once more."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from experiment_utils.errors import Problem, UserError
from experiment_utils.modules import entry_words
from slurm.arguments import set_of
from slurm.records.submissions import submissions
from slurm.submit.frozen_code import FROZEN
from slurm.submit.resubmit_runs import new_mem, new_time


def submit_again(study: Path, options: argparse.Namespace) -> int:
    """Type the last command of `.SET.slurm` again, with the options of `resubmit`; returns its exit status.

    Raises:
        UserError: a flag is for runs, or what was submitted cannot be read.
    """
    last = next(reversed(list(submissions(study))), None)
    if last is None or not Path(last.cwd).is_dir():
        raise UserError(f"{set_of(study)}: the record of its jobs cannot be read: type its command again")
    overrides = [word for word in options.rest if "=" in word]
    for_runs = {
        "RUN": len(overrides) < len(options.rest), "--only": options.only, "--launcher": options.launcher,
        "--code": options.code != FROZEN, "--again": options.again,
    }  # fmt: skip
    what = "is for runs: of a token set all that is missing is submitted. Remove it"
    if wrong := [Problem(flag, what) for flag, is_given in for_runs.items() if is_given]:
        raise UserError(*wrong)
    had = last.arrays[0].options
    if options.mem is not None:
        overrides.append(f"slurm.mem={new_mem(options.mem, None, had.get('mem')) >> 20}MB")
    if options.time is not None:
        overrides.append(f"slurm.time={new_time(options.time, 'auto', had.get('time'))}")
    keys = {override.partition("=")[0] for override in overrides}
    words = [word for word in shlex.split(last.command)[2:] if word.partition("=")[0] not in keys]
    words += [*["--dry-run"] * options.dry_run, *["--json"] * options.json, *overrides]
    print(f"{last.cwd}: {shlex.join(['python', 'pretokenize_dataset.py', *words])}", file=sys.stderr)
    return subprocess.run(
        [sys.executable, *entry_words("pretokenize_dataset"), *words], cwd=last.cwd
    ).returncode
