"""The srun and the Python of a job, as bash makes them of the lines of its script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conf.schema import Slurm
from slurm.cluster.job_step import PYTHON, SRUN, chosen_lines, default_lines, python_of, srun_arguments
from slurm.in_job.slots import step_command

PLAIN = ["--kill-on-bad-exit=1"]


def words_of_step(tmp_path: Path, *setup: str) -> tuple[list[str], str]:
    """(arguments that srun gets, SRUN_ARGS in its environment)"""
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/bash\nprintf "%s\\0" "$HIGHWATER_SRUN_ARGS" "$@"\n')
    srun.chmod(0o755)
    script = "\n".join(["set -eu", *default_lines(), *setup, f"exec {SRUN} {PYTHON} -m x"])
    around = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": "/home/me", "HIGHWATER_SRUN_ARGS": ""}
    out = subprocess.check_output(["bash", "-c", script], env=around, text=True)
    environment, *words = out.split("\0")[:-1]
    return words, environment


@pytest.mark.parametrize(
    ("python", "words"),
    [
        (None, [sys.executable]),
        ("python", ["python"]),
        ("~/venv/bin/python", ["/home/me/venv/bin/python"]),
        ("apptainer exec 'my image.sif' python", ["apptainer", "exec", "my image.sif", "python"]),
    ],
)
def test_a_job_runs_the_python_that_was_asked_for(
    tmp_path: Path, python: str | None, words: list[str]
) -> None:
    wanted = Slurm(python=python)
    assert words_of_step(tmp_path, *chosen_lines(wanted))[0] == [*PLAIN, *words, "-u", "-m", "x"]
    assert (python or sys.executable) in python_of(wanted)


def test_arguments_reach_srun_and_the_srun_of_runs_that_share_a_job(tmp_path: Path) -> None:
    asked = ["--mpi=pmix", "--container-image 'my image'"]
    words, environment = words_of_step(tmp_path, *chosen_lines(Slurm(srun_args=asked)))
    arguments = ["--mpi=pmix", "--container-image", "my image"]
    assert words == [*arguments, *PLAIN, sys.executable, "-u", "-m", "x"]
    assert srun_arguments({"HIGHWATER_SRUN_ARGS": environment}) == arguments
    assert srun_arguments({}) == []
    shared = step_command("word", 0, 2, {"HIGHWATER_SRUN_ARGS": environment})
    assert shared[: 1 + len(arguments)] == ["srun", *arguments]


def test_a_run_without_either_has_the_script_of_before() -> None:
    assert chosen_lines(Slurm()) == []
