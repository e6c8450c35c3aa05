"""The sbatch script of an array of tasks, and of the merge: shell that can be read, and sent by hand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm.cluster.sbatch_words import directives
from slurm.in_job.start import setup_lines
from slurm.records import Array, Submission

LOG = "log.txt"
MERGE = "merge"
"""In place of a task: the job that makes one set of what all have made."""


def script(
    submission: Submission, array: Array, setup: Sequence[str], arguments: Sequence[str], output: Path
) -> str:
    """The text. setup: lines of shell before it. arguments: of pretokenize_dataset.py; output: the set."""
    study = shlex.quote(str(submission.study.absolute()))
    names = [name for task in array.tasks for name in task]
    python = shlex.join(["srun", "--kill-on-bad-exit=1", sys.executable, "-u", "-m"])
    if names == [MERGE]:
        program = shlex.join(["pretokenize_dataset", *arguments])
    else:
        program = f'slurm.in_job.tokens {shlex.quote(str(output.absolute()))} "$task" {shlex.join(arguments)}'
    lines = [
        f"cd {shlex.quote(submission.cwd)} || exit 1",
        *setup,
        *([] if submission.snapshot is None else setup_lines(submission.snapshot)),
        f"exec {python} {program}",
    ]
    options = {
        "job-name": array.name,
        "output": str(submission.folder.absolute() / "%j.out"),
        "open-mode": "append",
        **({"array": _indices(array)} if array.is_array else {}),
        **array.options,
    }
    return "\n".join(
        [
            f"#!/bin/bash\n{directives(options)}tasks=({' '.join(names)})",
            "task=${tasks[${SLURM_ARRAY_TASK_ID:-0}]}",
            f'exec >> {study}/"$task"/{LOG} 2>&1',
            *lines,
            "",
        ]
    )


def _indices(array: Array) -> str:
    at_a_time = "" if array.parallel is None else f"%{array.parallel}"
    return f"0-{len(array.tasks) - 1}{at_a_time}"
