"""The sbatch script of an array of runs.

submitit 1.5.4 writes its `#SBATCH` lines. A task of the array runs `python -m slurm.in_job WORD`, where WORD
names the study, the submission, the array and the task.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from experiment_utils.modules import module_name
from slurm.cluster.job_step import PYTHON, SRUN, default_lines
from slurm.queue.job_entry import setup_lines, word_for
from slurm.records.submissions import Array, Submission

FOLDER = "submitit"
_WRITTEN_BY_SUBMITIT = {"job_name", "nodes", "time", "wckey"}


def submitit_folder(submission: Submission) -> Path:
    """Folder of the submission's scripts and of what its jobs write to stdout and stderr."""
    return submission.folder / FOLDER


def script(submission: Submission, array: Array, setup: Sequence[str]) -> str:
    """Return the script's text. setup: lines of shell before the runs."""
    from submitit.slurm.slurm import _make_sbatch_string

    folder = submitit_folder(submission).absolute()
    given = {
        key.replace("-", "_"): value for key, value in array.options.items() if value not in (None, False)
    }
    ours = {key: given.pop(key, None) for key in _WRITTEN_BY_SUBMITIT}
    output = folder / f"{'%A_%a' if array.is_array else '%j'}_%t_log"
    task = '"$SLURM_ARRAY_TASK_ID"' if array.is_array else "0"
    word = shlex.quote(word_for(submission.study, submission.id, array.number, ""))
    srun = (
        f"{SRUN} --unbuffered --output={shlex.quote(f'{output}.out')} --error={shlex.quote(f'{output}.err')}"
    )
    # PYTHONPATH comes after the user's lines: `module load` puts folders of its own first
    code = [] if submission.snapshot is None else setup_lines(submission.snapshot)
    text = _make_sbatch_string(
        command=f"{srun} {PYTHON} -m {module_name('slurm.in_job')} {word}{task}",
        folder=folder,
        **{**ours, "job_name": array.name, "nodes": ours["nodes"] or 1},
        setup=[*default_lines(), f"cd {shlex.quote(submission.cwd)} || exit 1", *setup, *code],
        map_count=len(array.tasks) if array.is_array else None,
        array_parallelism=array.parallel or len(array.tasks),
        use_srun=False,
        additional_parameters={key.replace("_", "-"): value for key, value in given.items()},
    )
    return f"{text.rstrip()}\n"
