"""The Python that a job runs, on a real Slurm: a venv that slurm.setup activates."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from slurm.status import study_states
from tests.local_slurm import Cluster
from tests.tiny_run import write_text

pytestmark = [
    pytest.mark.privileged,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("its_clients"),
]

ASKED = (
    "dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "model.d_model=16", "training.seq_len=16",
    "training.effective_batch=4", "training.eval_tokens=256", "training.evals=1", "training.device=cpu",
    "training.threads=1", "training.max_steps=5", "slurm.time=10", "slurm.cpus_per_task=1",
    "slurm.requeue=false", "hydra/launcher=slurm", "wait=true", "slurm.python=python",
)  # fmt: skip


def venv(folder: Path, *, with_packages: bool) -> Path:
    """An environment, with the packages of this one or with none."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if with_packages:
        (site,) = folder.glob("lib/python*/site-packages")
        # its own .pth files too: they are not read in a folder that a .pth only names
        (site / "packages.pth").write_text(
            f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        )
    return folder


def submit(cluster: Cluster, home: Path, environment: Path, *overrides: str) -> Path:
    """Submit runs that activate the environment, wait for them, and return their study."""
    write_text(home / "my.txt")
    (home / "conf" / "slurm").mkdir(parents=True)
    setup = f"source '{environment}/bin/activate'"
    recipe = f'setup: ["{setup}"]\nsrun_args: [--mpi=none]\n'
    (home / "conf" / "slurm" / "mine.yaml").write_text(recipe)
    entry = Path(__file__).resolve().parents[2] / "experiments.py"
    command = [sys.executable, str(entry), "-m", "--config-dir", "conf", "slurm=mine", *ASKED, *overrides]
    around = {**os.environ, **cluster.variables, "HF_HUB_OFFLINE": "1"}
    subprocess.run(command, cwd=home, env=around, timeout=500)
    return home / "runs" / "default"


@pytest.mark.parametrize("shared", [["slurm.mem=600MB"], ["slurm.pack=2", "slurm.mem=1300MB"]])
def test_a_run_uses_the_venv_that_its_job_activates(
    slurm_cluster: Cluster, tmp_path: Path, shared: list[str]
) -> None:
    environment = venv(tmp_path / "a venv", with_packages=True)
    study = submit(slurm_cluster, tmp_path, environment, "seed=0,1", *shared)
    states = study_states(study)
    assert [one.state for one in states] == ["done", "done"], states
    for run in study.glob("*seed*"):
        assert str(environment / "bin" / "python") in (run / "outcome.json").read_text()
        assert json.loads((run / "run.json").read_text())["attempts"]


def test_a_python_without_packages_is_named_in_the_reason(slurm_cluster: Cluster, tmp_path: Path) -> None:
    environment = venv(tmp_path / "bare", with_packages=False)
    study = submit(slurm_cluster, tmp_path, environment, "slurm.mem=600MB")
    (state,) = study_states(study)
    assert state.state == "never_started"
    reason = state.reason or ""
    assert "slurm.python" in reason
    assert str(environment / "bin" / "python") in reason
