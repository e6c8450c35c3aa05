"""A script of the user's own around `python experiments.py`: a job of a real Slurm, known as any other."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from slurm.__main__ import main
from slurm.records.submissions import LOCAL, SLURM, submissions
from slurm.status import study_states
from slurm.submit.resubmit_runs import Again, _by_launcher, find
from tests.local_slurm import SCRIPT, Cluster
from tests.slurm.real_jobs import SOON_S
from tests.tiny_run import write_text

pytestmark = [
    pytest.mark.slow, pytest.mark.privileged, pytest.mark.timeout(1500),
    pytest.mark.usefixtures("its_clients"),
]  # fmt: skip


def until_states(study: Path, *wanted: str) -> None:
    until_s, states = time.monotonic() + SOON_S, []
    while tuple(states) != wanted:
        assert time.monotonic() < until_s, states
        time.sleep(0.5)
        states = sorted(entry.state for entry in study_states(study) if entry.rule != "job_begins")


@pytest.mark.parametrize("sweep", [True, False], ids=["sweep", "one_run"])
def test_script_around_the_command(
    slurm_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], sweep: bool
) -> None:
    """While it runs and when its job was cancelled; what is not done goes to the cluster again."""
    write_text(tmp_path / "my.txt")
    study, seeds = tmp_path / "runs" / "default", "-m seed=0,1,2" if sweep else "seed=0"
    words = (
        "dataset=text dataset.path=my.txt tokenizer=bytes dataset.repeat=true model=32d training.threads=1"
    )
    command = f"{sys.executable} {SCRIPT.parent.parent / 'experiments.py'} {seeds} {words}"
    script = tmp_path / "own.sh"
    script.write_text(f"#!/bin/bash\n{command} training.max_steps=1000000 training.evals=1\n")
    out = f"--output={tmp_path / 'out.txt'}"
    job = slurm_cluster.say(
        "sbatch", "--parsable", f"--chdir={tmp_path}", out, "--mem=600M", "--cpus-per-task=1", str(script)
    )
    waiting = ["queued"] * 2 if sweep else []
    until_states(study, *waiting, "running")
    assert {entry.job for entry in study_states(study)} == {job}
    assert [(one.launcher, one.job) for one in submissions(study)] == [(LOCAL, job)] * sweep
    assert main(["cancel", str(study), "--yes"]) == 1, "it is the user's to end"
    assert f"scancel {job}" in capsys.readouterr().out
    slurm_cluster.say("scancel", job)
    until_states(study, "cancelled", *["cancelled"] * len(waiting))
    assert {entry.source for entry in study_states(study)} <= {"squeue", "sacct"}
    found, left = find(study, (), None)
    assert not left
    ((launcher, _),) = _by_launcher(found, Again())
    assert SLURM in launcher.target.lower()
