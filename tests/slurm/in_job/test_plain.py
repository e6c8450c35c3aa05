"""A job of a plain script makes its run's folder itself, where others may have died before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_run import write_text

from experiment_utils import atomic_files, lease, lock_file
from slurm.cluster.current_job import Job
from slurm.in_job.plain import submit_from_inside
from slurm.launch.compose_one import compose
from slurm.records.submissions import last_place, run_folders
from slurm.submit.resubmit_runs import new_mem, new_time
from training.attempt.run_files import read_config

TYPED = ["model=32d", "dataset=text", "dataset.path=my.txt", "tokenizer=bytes", "training.max_steps=2"]


def test_a_run_that_was_killed_on_another_node_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL leaves its lock, and the job that is typed with more memory comes to another machine."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "my.txt")
    monkeypatch.setattr(
        "slurm.launch.code_snapshot.take", lambda runs_dir: type("Copy", (), {"path": tmp_path})
    )
    study = submit_from_inside(compose(TYPED), Job("8", "8"), TYPED)
    (folder,) = [path.parent for path in study.glob("*/config.yaml")]
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "8"}
    atomic_files.write_json(folder / "run.lock", holder)
    monkeypatch.setattr(lease, "LAPSE_S", 0.5)
    with (
        lease.Periodic(0.05, lambda: os.utime(folder / "run.lock")),
        pytest.raises(lock_file.LockHeld),
    ):
        submit_from_inside(compose(TYPED), Job("9", "9"), TYPED)
    submit_from_inside(compose(TYPED), Job("9", "9"), TYPED)
    assert not (folder / "run.lock").exists()
    assert read_config(folder)["seed"] == 0


def test_what_the_job_has_is_what_a_factor_is_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`resubmit --mem x2 --time x2` of a run that sbatch was given its memory and time for."""
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "my.txt")
    monkeypatch.setattr(
        "slurm.launch.code_snapshot.take", lambda runs_dir: type("Copy", (), {"path": tmp_path})
    )
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "700")
    told = "#!/bin/sh\n[ \"$2 $3\" = '--jobs=8 --format=%l' ] && echo 1-00:00:00\n"
    (tmp_path / "squeue").write_text(told)
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    study = submit_from_inside(compose(TYPED), Job("8", "8"), TYPED)
    ((_, array, _),) = filter(None, map(last_place, run_folders(study)))
    assert array.options == {"mem": "700M", "time": "1-00:00:00"}
    assert new_mem("x2", None, array.options["mem"]) == 1400 << 20
    assert new_time("x2", "auto", array.options["time"]) == "2-00:00:00"
    (tmp_path / "squeue").write_text("#!/bin/sh\necho UNLIMITED\n")
    assert Job("8", "8").asked_for() == {"mem": "700M"}
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    assert Job("8", "8").asked_for(environment={}) == {}
    by_cpu = {"SLURM_MEM_PER_CPU": "300", "SLURM_CPUS_ON_NODE": "2"}  # --mem-per-cpu
    assert Job("8", "8").asked_for(environment=by_cpu) == {"mem": "600M"}
    assert Job("8", "8").asked_for(environment={"SLURM_MEM_PER_NODE": "0"}) == {}  # all of the node
