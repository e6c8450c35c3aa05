"""The plain sbatch script, as it comes and as it is made for a site."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conf import UserError
from slurm.commands.script import TEMPLATE, script
from slurm.one_run import compose


def sbatch_lines(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def test_with_the_options_of_a_site() -> None:
    options = {"partition": "gpu", "mem": "16G", "signal": "USR2@120", "requeue": True, "qos": None}
    text = script(options, ["module load cuda"], ["slurm=mine", "model=256d"])
    assert sbatch_lines(text) == [
        "--job-name=highwater", "--output=slurm-%j.out", "--open-mode=append",
        "--mem=16G", "--partition=gpu", "--requeue", "--signal=USR2@120",
    ]  # fmt: skip
    assert "made by `python -m slurm script slurm=mine model=256d`" in text
    assert text.index("module load cuda") < text.index("exec srun --kill-on-bad-exit=1")
    assert shlex.quote(sys.executable) in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_as_it_comes() -> None:
    text = TEMPLATE.read_text()
    assert {"--requeue", "--open-mode=append", "--signal=USR2@120"} <= {*sbatch_lines(text)}
    assert subprocess.run(["bash", "-n", str(TEMPLATE)]).returncode == 0


def test_a_sweep_is_for_a_launcher() -> None:
    with pytest.raises(UserError, match=r"experiments.py -m seed=1,2 hydra/launcher=slurm"):
        compose(["-m", "seed=1,2"])
    with pytest.raises(UserError, match=r"modle"):
        compose(["modle=256d"])


def test_outside_of_a_job(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slurm.in_job.plain", "model=32d"],
        cwd=TEMPLATE.parent.parent, env={"PATH": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "From a shell: sbatch slurm/submit_job.sh model=32d" in done.stderr
