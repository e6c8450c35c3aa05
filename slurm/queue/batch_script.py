"""The sbatch script of an array, as submitit writes it.

Parts of submitit 1.5.4 that are used: the script, and its `_submit` module, which loads
`FOLDER/JOB_submitted.pkl` in the job. submitit gives a pickle that name after sbatch has answered; if it dies
in between, the job waits a minute for the file and fails. Here the pickles are written before, under names of
our own, and the script's first lines link them to the name that only the job knows.
"""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from slurm.records.submissions import Array, Submission

FOLDER = "submitit"
_WRITTEN_BY_SUBMITIT = {"job_name", "nodes", "time", "wckey"}


def submitit_folder(submission: Submission) -> Path:
    """Folder of submitit's files; no other user can write there, since its pickles are run."""
    return submission.folder / FOLDER


def script(
    submission: Submission, array: Array, setup: Sequence[str], *, python: str = sys.executable
) -> str:
    """The text of an array's script.

    Args:
        setup: lines of shell before the runs.
    """
    from submitit.slurm.slurm import _make_sbatch_string

    folder = submitit_folder(submission).absolute()
    given = {
        key.replace("-", "_"): value for key, value in array.options.items() if value not in (None, False)
    }
    ours = {key: given.pop(key, None) for key in _WRITTEN_BY_SUBMITIT}
    ours["job_name"] = array.name
    lines = [*_at_home(submission), *setup, *_with_the_snapshot(submission), *_link(folder, array)]
    text = _make_sbatch_string(
        command=f"{shlex.quote(python)} -u -m submitit.core._submit {shlex.quote(str(folder))}",
        folder=folder,
        **{**ours, "nodes": ours["nodes"] or 1},
        setup=lines,
        map_count=len(array.tasks) if array.is_array else None,
        array_parallelism=array.parallel or len(array.tasks),
        srun_args=["--kill-on-bad-exit=1"],
        additional_parameters={key.replace("_", "-"): value for key, value in given.items()},
    )
    return text if text.endswith("\n") else text + "\n"


def write_pickles(submission: Submission, array: Array) -> None:
    """Write one pickle for each task: a function's name and a string."""
    from submitit.core.utils import DelayedSubmission

    from slurm.queue.job_entry import start, word_for

    importlib.import_module(start.__module__)  # else it would be pickled as code
    folder = submitit_folder(submission)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    for task in range(len(array.tasks)):
        word = word_for(submission.study, submission.id, array.number, task)
        DelayedSubmission(start, word).dump(folder / f"{array.number}-{task}.pkl")


def _at_home(submission: Submission) -> list[str]:
    return [f"cd {shlex.quote(submission.cwd)} || exit 1"]


def _with_the_snapshot(submission: Submission) -> list[str]:
    """After the user's lines: `module load` puts folders of its own before ours."""
    from slurm.queue.job_entry import setup_lines

    return [] if submission.snapshot is None else setup_lines(submission.snapshot)


def _link(folder: Path, array: Array) -> list[str]:
    quoted = shlex.quote(str(folder))
    if not array.is_array:
        return [f'ln -sfn {array.number}-0.pkl {quoted}/"$SLURM_JOB_ID"_submitted.pkl']
    job = '"${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"'
    return [f'ln -sfn {array.number}-"$SLURM_ARRAY_TASK_ID".pkl {quoted}/{job}_submitted.pkl']
