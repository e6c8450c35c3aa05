"""Submitting in two phases: a run is in a queue once, every job is known, whoever died when."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fake_slurm import FakeSlurm

from conf import Config
from conf.schema import Slurm
from experiment_utils import atomic_files, lease, lock_file
from experiment_utils.errors import UserError
from slurm.queue.arrays import Asked
from slurm.records.start_records import Start, note_start
from slurm.records.submissions import SLURM, places, runs_of, submissions
from slurm.submit.batch import Order, Submitted, submit
from slurm.submit.cancel_jobs import cancel
from slurm.submit.submit_runs import render
from tests.golden_text import Golden
from training.attempt.run_files import run_folder

ROOT = Path(__file__).resolve().parents[3]


SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in --output|--error) shift;; esac; shift; done
exec "$@"
"""
"""The command behind its options."""


@dataclass(frozen=True)
class Planned:
    """What submitting reads of a plan."""

    config: Config
    identity: str
    folder: Path


def planned(runs_dir: Path, seed: int, **slurm: Any) -> Planned:
    config = Config(runs_dir=str(runs_dir), seed=seed, slurm=Slurm(**slurm))
    identity = f"{seed:08d}" * 8
    return Planned(config, identity, run_folder(config, identity))


ORDER = Order(SLURM, "the command", ROOT, then="analysis")


def asked(plans: list[Planned], order: Order = ORDER) -> Order:
    """Seeds above 1 ask for more memory: another array."""
    names = {plan.folder.name: {"mem": "2G" if plan.config.seed > 1 else "1G"} for plan in plans}
    return replace(order, asked={name: Asked(name, options) for name, options in names.items()})


def submit_all(plans: list[Planned], order: Order = ORDER) -> Submitted:
    return submit(plans, asked(plans, order))  # type: ignore[arg-type]


@pytest.fixture
def plans(tmp_path: Path) -> list[Planned]:
    return [planned(tmp_path / "runs", seed) for seed in range(4)]


def in_queue(cluster: FakeSlurm, study: Path) -> list[str]:
    """Runs that jobs of the cluster would run, by what the jobs' submissions say. Every job must be known."""
    known = {array.name: array for one in submissions(study) for array in one.arrays}
    follow_ups = [one.follow_up for one in submissions(study)]
    found = []
    for job in cluster.jobs:
        if not job["script"].startswith(f"{study}/"):
            continue
        if job["name"].endswith("-then"):
            assert str(job["id"]) in follow_ups, "an orphan"
            continue
        array = known[job["name"]]
        assert array.job_id == str(job["id"]), "an orphan"
        assert len(array.tasks) == len(job["states"])
        found += [run for task in array.tasks for run in task]
    return found


def test_the_intent_is_on_the_disk_before_sbatch_is_called(
    cluster: FakeSlurm, plans: list[Planned], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def on_point(name: str) -> None:
        if name == "submit:before_sbatch" and not seen:
            (submission,) = submissions(plans[0].folder.parent)
            seen.append(runs_of(submission))
            assert all(array.is_sent is None for array in submission.arrays)
            assert all(places(plan.folder)[-1].submission == submission.id for plan in plans)

    monkeypatch.setattr(atomic_files, "on_point", on_point)
    done = submit_all(plans)
    assert seen == [[plan.folder.name for plan in plans]]
    assert done.sent == seen[0]
    first, second, then = cluster.jobs
    assert (first["options"]["mem"], second["options"]["mem"]) == ("1G", "2G")
    assert first["options"]["array"] == "0-1%2"
    assert then["options"]["dependency"] == f"afterany:{first['id']}:{second['id']}"


def test_asking_again_submits_nothing_while_they_wait_or_run_and_then_what_is_missing(
    cluster: FakeSlurm, plans: list[Planned]
) -> None:
    submit_all(plans)
    names = [plan.folder.name for plan in plans]
    cluster.set_state(101, "RUNNING", task=0)
    assert submit_all(plans).left == dict.fromkeys(names, "queued") | {names[0]: "running"}
    atomic_files.write_json(plans[0].folder / "status.json", {"state": "done"})
    atomic_files.write_json(plans[1].folder / "status.json", {"state": "failed"})
    cluster.set_state(101, "COMPLETED")
    done = submit_all(plans)
    assert done.left == {names[0]: "done", names[2]: "queued", names[3]: "queued"}
    assert done.sent == [names[1]]
    assert [place.task for place in places(plans[1].folder)] == [1, 0]


def test_a_job_that_was_renamed_is_not_submitted_twice(cluster: FakeSlurm, plans: list[Planned]) -> None:
    submit_all(plans)
    for job in cluster.jobs[:2]:
        cluster.rename(job["id"], "mine")
    assert set(submit_all(plans).left.values()) == {"queued"}
    assert len(cancel(plans[0].folder.parent)) == 2


def test_a_job_of_a_cluster_that_counts_anew_is_not_ours(cluster: FakeSlurm, plans: list[Planned]) -> None:
    submit_all(plans)
    for job in cluster.jobs[:2]:
        cluster.rename(job["id"], "somebody-elses", script="/home/other/job.sh")
    assert len(submit_all(plans).sent) == len(plans)


def test_a_study_that_cannot_be_written_is_told_and_the_same_command_again_goes_on(
    cluster: FakeSlurm, plans: list[Planned], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder cannot be made, or its disk is full once sbatch has answered."""
    study = plans[0].folder.parent
    study.parent.mkdir()
    study.write_text("a file is in its place")
    with pytest.raises(UserError) as error:
        submit_all(plans)
    assert error.value.codes == ["study-not-written"]
    study.unlink()
    write = atomic_files.write_json

    def full(path: Path, value: object) -> None:
        if path.name == "submission.json" and cluster.jobs:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_json", full)
        with pytest.raises(UserError) as error:
            submit_all(plans)
        assert error.value.codes == ["study-not-written"]
    submit_all(plans)
    assert sorted(in_queue(cluster, study)) == sorted(plan.folder.name for plan in plans)


def test_what_was_cancelled_on_a_full_disk_is_ended_and_that_is_said(
    cluster: FakeSlurm, plans: list[Planned], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    submit_all(plans)
    study = plans[0].folder.parent

    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_json", full)
        results = cancel(study)
        golden.text(results[0].error or "")
    assert len(results) == 2
    assert len(cluster.calls("scancel")) == 1
    monkeypatch.setattr(lock_file, "create", lambda path: full(path, None))
    with golden.refused("study-not-written"):
        cancel(study)


LOST = "Socket timed out on send/recv operation"


@pytest.mark.parametrize(
    "words", [LOST, "Unable to contact slurm controller (receive failure)", "Connection reset by peer",
              "Zero Bytes were transmitted or received", "SIGKILL"],
)  # fmt: skip
def test_a_job_that_sbatch_did_not_hear_of_is_found_by_its_name_and_not_made_twice(
    cluster: FakeSlurm, plans: list[Planned], words: str
) -> None:
    cluster.tell("lost", words)
    done = submit_all(plans[:2])
    study, names = plans[0].folder.parent, [plan.folder.name for plan in plans[:2]]
    assert done.sent == names
    assert not done.not_sent
    (cluster.folder / "lost").unlink()
    assert submit_all(plans[:2]).left == dict.fromkeys(names, "queued")
    assert in_queue(cluster, study) == names
    assert len([job for job in cluster.jobs if job["name"].endswith("-then")]) == 1


def test_while_slurm_does_not_tell_whether_there_is_a_job_that_is_said_and_nothing_sent(
    cluster: FakeSlurm, plans: list[Planned], golden: Golden
) -> None:
    cluster.tell("lost", LOST)
    cluster.tell("no_squeue_after_sbatch", LOST)
    done = submit_all(plans)  # two arrays: the second is not tried
    names = [plan.folder.name for plan in plans]
    assert done.unheard == names[:2]
    told = list(render([done]))
    assert LOST in told[0]
    golden.text("\n".join(told))
    with pytest.raises(UserError) as error:
        submit_all(plans)
    assert error.value.codes == ["no-answer"]
    (cluster.folder / "no_squeue_after_sbatch").unlink()
    (cluster.folder / "lost").unlink()
    again = submit_all(plans)
    assert again.left == dict.fromkeys(names[:2], "queued")
    assert again.sent == names[2:]
    assert sorted(in_queue(cluster, done.study)) == names
    # the end waits for all arrays: also for that which was found later
    ends = [job["options"]["dependency"] for job in cluster.jobs if job["name"].endswith("-then")]
    assert sorted(ends) == ["afterany:101", "afterany:103"]


@pytest.mark.parametrize(
    ("said", "asks_for_it"), [(LOST, True), ("Unable to contact slurm controller (connect failure)", False)]
)
def test_what_was_lost_on_its_way_is_submitted_by_the_same_command_again(
    cluster: FakeSlurm, plans: list[Planned], golden: Golden, said: str, asks_for_it: bool
) -> None:
    """A controller that was never reached has no job of it, and is not asked for one."""
    cluster.tell("lost_without_job", said)
    done = submit_all(plans[:2])
    assert (done.sent, done.unheard) == ([], [])
    (why,) = set(done.not_sent.values())
    golden.text(why)
    assert bool(cluster.calls("squeue")) == asks_for_it
    (cluster.folder / "lost_without_job").unlink()
    assert submit_all(plans[:2]).sent == [plan.folder.name for plan in plans[:2]]


def points_of(plans: list[Planned]) -> list[str]:
    seen: list[str] = []
    atomic_files.on_point = seen.append
    try:
        submit_all(plans)
    finally:
        atomic_files.on_point = None
    return seen


def fork_and_die(work: Callable[[], object], at: int) -> None:
    """In a process that SIGKILL ends at its point number `at`."""
    pid = os.fork()
    if pid == 0:
        count = iter(range(10**6))

        def on_point(name: str) -> None:
            if next(count) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        atomic_files.on_point = on_point
        try:
            work()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize(
    "steps",
    [
        ("submit:after_places", "submit:after_sbatch"),
        pytest.param(None, marks=pytest.mark.slow, id="all"),
    ],
)
def test_a_submitter_killed_at_any_step_leaves_no_orphan_and_nothing_is_submitted_twice(
    tmp_path: Path, cluster: FakeSlurm, steps: tuple[str, ...] | None
) -> None:
    def at(name: str) -> list[Planned]:
        return [planned(tmp_path / name, seed) for seed in range(3)]

    points = points_of(at("undisturbed"))
    assert points.count("submit:after_sbatch") == 3
    # of the many writes of one kind the first: the others are the same again
    chosen = [n for n, name in enumerate(points) if name not in points[:n] or name.startswith("submit:")]
    assert len({points[n] for n in chosen}) > 8
    if steps is not None:
        chosen = [points.index(step) for step in steps]
    for number in chosen:
        plans = at(f"killed{number}")
        fork_and_die(lambda plans=plans: submit_all(plans), number)  # type: ignore[misc]
        done = submit_all(plans)
        study = plans[0].folder.parent
        assert sorted(in_queue(cluster, study)) == [plan.folder.name for plan in plans], points[number]
        assert not done.not_sent
        assert submit_all(plans).sent == []


@pytest.mark.parametrize("slow", ["slow_before", "slow_after"])
def test_an_sbatch_that_outlives_its_submitter_is_waited_for(
    cluster: FakeSlurm, plans: list[Planned], slow: str
) -> None:
    """The submitter is killed while its sbatch hangs; that still makes its job."""
    cluster.tell(slow, "1.5")
    pid = os.fork()
    if pid == 0:
        submit_all(plans)
        os._exit(0)
    deadline = time.monotonic() + 20
    while not cluster.calls("sbatch") and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    cluster.tell(slow, "0")
    done = submit_all(plans)
    study = plans[0].folder.parent
    assert sorted(in_queue(cluster, study)) == [plan.folder.name for plan in plans]
    assert set(done.left.values()) == {"queued"}


def test_ctrl_c_waits_until_sbatch_has_answered(cluster: FakeSlurm, plans: list[Planned]) -> None:
    cluster.tell("slow_after", "0.5")

    def interrupt() -> None:
        while not cluster.jobs:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        submit_all(plans)
    thread.join()
    cluster.tell("slow_after", "0")
    submit_all(plans)
    assert sorted(in_queue(cluster, plans[0].folder.parent)) == [plan.folder.name for plan in plans]


def test_a_task_of_a_job_is_given_its_own_word(
    cluster: FakeSlurm, plans: list[Planned], tmp_path: Path
) -> None:
    """The script is run as a job, with a module in place of ours that prints its argument."""
    submit_all(plans[:2])
    (tmp_path / "slurm" / "in_job").mkdir(parents=True)
    for name in ("__init__.py", "in_job/__init__.py"):
        (tmp_path / "slurm" / name).touch()
    (tmp_path / "slurm" / "in_job" / "__main__.py").write_text("import sys\nprint('word', sys.argv[1])\n")
    text = Path(cluster.jobs[0]["script"]).read_text().replace(str(ROOT), str(tmp_path))
    srun = cluster.bin / "srun"
    srun.write_text(SRUN)
    text = text.replace(f"{tmp_path}/.venv", f"{ROOT}/.venv")
    done = subprocess.run(
        ["bash", "-c", text],
        env=os.environ | {"SLURM_JOB_ID": "8", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1",
                          "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "1",
                          "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"},
        capture_output=True, text=True,
    )  # fmt: skip
    (submission,) = submissions(plans[0].folder.parent)
    assert f"word {plans[0].folder.parent}|{submission.id}|0|1" in done.stdout, done.stderr
    assert sys.executable in text


@pytest.mark.parametrize("state", ["running", "cancelled", "failed", None])
def test_a_run_on_a_lost_node_is_missing_once_slurm_says_that_its_job_has_ended(
    cluster: FakeSlurm, plans: list[Planned], state: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its last attempt took the lock and came to no word: its status is of an earlier one."""
    monkeypatch.setattr(lease, "LAPSE_S", 0.3)
    submit_all(plans[:1])
    folder = plans[0].folder
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "101"}
    atomic_files.write_json(folder / "run.lock", holder)
    if state is not None:
        atomic_files.write_json(folder / "status.json", {"state": state})
    cluster.set_state(101, "RUNNING")
    assert submit_all(plans[:1]).left == {folder.name: "running"}
    cluster.set_state(101, "NODE_FAIL")
    assert submit_all(plans[:1]).sent == [folder.name]


@pytest.mark.parametrize("lives", [True, False])
def test_a_run_whose_job_has_ended_and_who_lives_on_is_left(
    cluster: FakeSlurm, plans: list[Planned], monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    """Its slurmd was lost: two would train in one folder."""
    monkeypatch.setattr(lease, "LAPSE_S", 2.0)
    submit_all(plans[:1])
    folder = plans[0].folder
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "101"}
    atomic_files.write_json(folder / "run.lock", holder)
    atomic_files.write_json(folder / "status.json", {"state": "running"})
    cluster.set_state(101, "CANCELLED")
    with lease.Periodic(0.1, lambda: os.utime(folder / "run.lock")) if lives else nullcontext():
        done = submit_all(plans[:1])
    assert done.left == ({folder.name: "running"} if lives else {})
    assert done.sent == ([] if lives else [folder.name])


@pytest.mark.parametrize("end", ["ended", "requeued", None])
def test_a_run_that_was_killed_beside_others_of_its_job_is_submitted_again_while_they_go_on(
    cluster: FakeSlurm, plans: list[Planned], end: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SIGKILL leaves its lock behind, and its status says that it runs."""
    monkeypatch.setattr(lease, "LAPSE_S", 0.3)
    packed = {plan.folder.name: Asked(plan.folder.name, {"mem": "1G"}, pack=2) for plan in plans[:2]}
    order = replace(ORDER, asked=packed)
    submit(plans[:2], order)  # type: ignore[arg-type]
    cluster.set_state(101, "RUNNING")
    folder = plans[0].folder
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "101"}
    atomic_files.write_json(folder / "run.lock", holder)
    atomic_files.write_json(folder / "status.json", {"state": "running"})
    start = Start(
        "101", "101", 0, "n7", 4, 1.0, 1, 0, step_after=0, ended_s=2.0 if end else None, end=end, state="oom"
    )
    note_start(folder, start)
    done = submit(plans[:2], order)  # type: ignore[arg-type]
    assert done.sent == ([folder.name] if end == "ended" else [])
    assert done.left[plans[1].folder.name] == "running"


def test_a_run_that_another_machine_works_on_without_slurm_is_left(
    cluster: FakeSlurm, plans: list[Planned]
) -> None:
    folder = plans[0].folder
    folder.mkdir(parents=True)
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": None}
    atomic_files.write_json(folder / "run.lock", holder)
    atomic_files.write_json(folder / "status.json", {"state": "running"})
    assert submit_all(plans[:1]).left == {folder.name: "running"}
