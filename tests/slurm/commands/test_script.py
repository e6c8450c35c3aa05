"""`python -m slurm script`: the plain sbatch script, and submit_job.sh that it is made of."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conf.schema import Slurm
from experiment_utils.errors import UserError
from slurm.cluster.resources import setup_lines
from slurm.commands.script import TEMPLATE, script
from slurm.in_job.plain import CODE, _runs_dir
from slurm.launch.compose_one import compose
from tests.golden_text import Golden


def sbatch_lines(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_has_the_options_of_a_site(golden: Golden) -> None:
    options = {"partition": "gpu", "mem": "16G", "signal": "USR2@120", "requeue": True, "qos": None}
    text = script(options, ["module load cuda"], ["slurm=mine", "model=256d"])
    assert sbatch_lines(text) == [
        "--job-name=highwater", "--output=slurm-%j.out", "--open-mode=append",
        "--mem=16G", "--partition=gpu", "--requeue", "--signal=USR2@120",
    ]  # fmt: skip
    golden.text("\n".join(line for line in text.splitlines() if line.startswith("# ")))
    assert text.index("cuda") < text.index("srun")
    assert shlex.quote(sys.executable) in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_setup_lines_do_not_run_under_set_eu(tmp_path: Path) -> None:
    """As in the job of a sweep: profiles read variables that are not set, and commands in them fail."""
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$SITE 1"\n')
    (tmp_path / "srun").chmod(0o755)
    text = script({}, ['export SITE="$IS_NOT_SET"here', "false"], [])
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/", "SLURM_JOB_ID": "42"}
    done = subprocess.run(["bash", "-c", text], env=around, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "here 1\n"), done.stderr


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (Slurm(), f"--kill-on-bad-exit=1 {sys.executable} -u"),
        (Slurm(python="my python", srun_args=["--mpi=pmix"]), "--mpi=pmix --kill-on-bad-exit=1 my python -u"),
    ],
)
def test_srun_gets_the_python_and_the_arguments_of_the_site(
    tmp_path: Path, chosen: Slurm, words: str
) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$*"\n')
    (tmp_path / "srun").chmod(0o755)
    text = script({}, setup_lines(chosen), [])
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/", "SLURM_JOB_ID": "42"}
    done = subprocess.run(["bash", "-c", text], env=around, capture_output=True, text=True)
    assert done.stdout.startswith(f"{words} -m slurm.in_job.plain"), done


def test_template_is_valid() -> None:
    text = TEMPLATE.read_text()
    assert {"--requeue", "--open-mode=append", "--signal=USR2@120"} <= {*sbatch_lines(text)}
    assert subprocess.run(["bash", "-n", str(TEMPLATE)]).returncode == 0


@pytest.mark.parametrize("array", [False, True])
def test_later_start_runs_the_code_of_the_first(tmp_path: Path, array: bool) -> None:
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$PYTHONPATH|$HIGHWATER_OUTPUT"\n')
    (tmp_path / "srun").chmod(0o755)
    copy = tmp_path / "a copy"
    copy.mkdir()
    runs_dir = tmp_path / "my runs"
    note = runs_dir / "sweep" / ".submissions" / ("job-40_2" if array else "job-42") / CODE
    note.parent.mkdir(parents=True)
    note.write_text(f"{copy}\n")
    around = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/checkout", "SLURM_JOB_ID": "42"}
    around |= {"SLURM_ARRAY_JOB_ID": "40", "SLURM_ARRAY_TASK_ID": "2"} if array else {}
    out = tmp_path / "out.txt"

    def started(*overrides: str, **more: str) -> list[str]:
        with open(out, "wb") as file:
            command = ["bash", str(TEMPLATE), "model=32d", *overrides]
            assert subprocess.run(command, stdout=file, env=around | more).returncode == 0
        return out.read_text().strip().split("|")

    typed = f"runs_dir={runs_dir}"
    again = {"SLURM_RESTART_COUNT": "1"}
    assert started(typed) == ["/checkout", str(out)], "a job of the same number, of a cluster before this"
    assert started(typed, **again) == [str(copy), str(out)]
    assert started(**again, HIGHWATER_RUNS_DIR=str(runs_dir))[0] == str(copy)
    assert started("runs_dir=~/my runs", **again, HOME=str(tmp_path))[0] == str(copy)
    assert started(**again)[0] == "/checkout"
    copy.rmdir()
    assert started(typed, **again)[0] == "/checkout", "clean removed it"


def test_folder_in_which_the_first_start_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIGHWATER_RUNS_DIR", raising=False)
    assert _runs_dir(["model=32d"]) == Path("runs")
    monkeypatch.setenv("HIGHWATER_RUNS_DIR", "/elsewhere")
    assert _runs_dir(["model=32d"]) == Path("/elsewhere")
    assert _runs_dir(["+runs_dir=there", "model=32d"]) == Path("there")


def test_sweep_is_refused() -> None:
    with pytest.raises(UserError, match=r"experiments.py -m seed=1,2 hydra/launcher=slurm"):
        compose(["-m", "seed=1,2"])
    with pytest.raises(UserError, match=r"modle"):
        compose(["modle=256d"])


def test_outside_of_a_job_it_is_refused(tmp_path: Path, golden: Golden) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slurm.in_job.plain", "model=32d"],
        cwd=TEMPLATE.parent.parent, env={"PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    golden.text(done.stderr)
