"""One array of six runs that end in six ways, handed in as a sweep is: `status` tells the end of each."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from recorded_slurm import with_slurm

from conf import Config
from conf.command_line.request import SLURM_LAUNCHER, Launcher
from slurm.records.submissions import Array, Submission
from slurm.status import RunState, study_states
from slurm.submit.submit_runs import check_and_plan, submit_plans
from tests.local_slurm import Cluster
from tests.slurm.real_ends import disk_filling_config, large_config, long_config, stop_until_its_signal
from tests.slurm.real_jobs import PATIENCE_S, Sent
from tests.tiny_run import tiny_config
from training.attempt.run_files import read_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.privileged,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("its_clients"),
]
ROOT = Path(__file__).resolve().parents[2]

ENDS = {
    "success": ("done", ""),
    "exception": ("failed", "Is a directory"),
    "oom": ("oom", "the kernel killed the main process (python, pid "),
    "timeout": ("done", ""),
    "scancel": ("cancelled", "its job was cancelled by root, at step "),
    "disk": ("failed", "No space left on device"),
}
"""Each task of the array, by its end: the state, and words of the reason."""

SUPERVISOR_TOO = "Slurm saw an OOM kill in "
"""Of `oom` where the kernel killed a second time before the first one's memory was free, as on a busy
machine: nobody is left to note the victim.
"""


def configs(folder: Path) -> dict[str, Config]:
    """They ask for the same, or they would be several arrays. Two minutes: the limit comes soon."""
    found = {
        "success": tiny_config(folder),
        "exception": dataclasses.replace(tiny_config(folder), seed=1),
        "oom": large_config(folder),
        "timeout": long_config(folder, seed=2),
        "scancel": long_config(folder, seed=3, steps=1_000_000),
        "disk": disk_filling_config(folder, seed=4),
    }
    asked = {"mem": 600 << 20, "time": "2", "signal_s": 30, "cpus_per_task": 1, "options": ["--hold"]}
    return {
        name: with_slurm(config, **asked, max_idle_attempts=50)  # however slow the machine
        for name, config in found.items()
    }


@contextmanager
def on_the_small_disk(run: Path, where: Cluster) -> Iterator[None]:
    """Its folder lies there from now on."""
    if where.small_disk is None:
        pytest.skip("cannot mount a small file system")
    there = where.small_disk / run.name
    shutil.move(run, there)
    run.symlink_to(there)
    try:
        yield
    finally:
        run.unlink()
        shutil.rmtree(there)


def submitted(asked: dict[str, Config]) -> tuple[Submission, Array]:
    launcher = Launcher(SLURM_LAUNCHER)
    plans, cluster = check_and_plan(list(asked.values()), launcher, is_open=False)
    (sent,) = submit_plans(plans, cluster, launcher, "a test")
    assert sent.submission is not None
    (array,) = sent.submission.arrays
    return sent.submission, array


def test_six_ends(slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At no moment is any of them told to have ended in another way."""
    monkeypatch.chdir(tmp_path)
    where, asked = slurm_cluster, configs(tmp_path)
    submission, array = submitted(asked)
    tasks = dict(zip(asked, range(len(array.tasks)), strict=True))
    jobs = {
        name: Sent(
            where,
            submission.study / array.tasks[task][0],
            f"{array.job_id}_{task}",
            submission.folder / "submitit" / f"{array.job_id}_{task}_0_log.out",
        )
        for name, task in tasks.items()
    }
    try:
        with on_the_small_disk(jobs["disk"].run, where):
            (jobs["exception"].run / "metrics.csv").mkdir()
            for name, job in jobs.items():
                if name != "timeout":  # the others are not to meet the limit, on a slow machine either
                    where.say("scontrol", "update", f"JobId={job.job}", "TimeLimit=30")
            where.say("scontrol", "release", str(array.job_id))
            stop_until_its_signal(jobs["timeout"])
            jobs["scancel"].until_training()
            where.say("scancel", jobs["scancel"].job)
            until_told(submission.study, jobs)
            assert len(jobs["timeout"].starts) > 1, jobs["timeout"].told()
            assert [start.state for start in jobs["oom"].starts] in (["oom"], [None]), jobs["oom"].told()
            assert list((jobs["scancel"].run / "checkpoints").glob("step-*")), "it stopped at a step"
            assert os.strerror(errno.ENOSPC) in jobs["disk"].told()
            code = read_run(jobs["success"].run)["attempts"][0]["code"]
            assert (code["snapshot"], bool(code["commit"])) == (Path(submission.snapshot or "").name, True)
            assert told_by_the_command(submission.study) == {
                entry.name: (entry.state, entry.reason) for entry in study_states(submission.study)
            }
    finally:
        where.say("scancel", str(array.job_id), check=False)


def until_told(study: Path, jobs: dict[str, Sent]) -> None:
    """Until `status` has the end of each, and its words."""
    until_s = time.monotonic() + PATIENCE_S
    names = {job.run.name: name for name, job in jobs.items()}
    while True:
        entries = {names[entry.name]: entry for entry in study_states(study)}
        early = {
            name: entry
            for name, entry in entries.items()
            if entry.state not in ("queued", "running", ENDS[name][0])
        }
        assert not early, all_told(early, jobs)
        open_ones = {name: entry for name, entry in entries.items() if entry.state != ENDS[name][0]}
        if not open_ones:
            break
        assert time.monotonic() < until_s, all_told(open_ones, jobs)
        time.sleep(0.5)
    wrong = {
        name: entry for name, entry in entries.items() if words_of(name, entry) not in (entry.reason or "")
    }
    assert not wrong, all_told(wrong, jobs)


def words_of(name: str, entry: RunState) -> str:
    has_witness = name != "oom" or (entry.folder / "outcome.json").exists()
    return ENDS[name][1] if has_witness else SUPERVISOR_TOO


def all_told(entries: dict[str, RunState], jobs: dict[str, Sent]) -> str:
    return "\n".join(f"{name}: {entry}\n{jobs[name].told()}" for name, entry in entries.items())


def told_by_the_command(study: Path) -> dict[str, tuple[str, str | None]]:
    done = subprocess.run(
        [sys.executable, "-m", "slurm", "status", str(study), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {one["run"]: (one["state"], one["reason"]) for one in json.loads(done.stdout)["runs"]}
