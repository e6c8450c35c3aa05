"""`resubmit` and `cancel`, on a cluster and in the background of this machine."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from forked import killed_at

import slurm.submit.resubmit_runs
import slurm.submit.submit_runs
from conf.composing.check import to_config
from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError
from experiment_utils.exit_status import exit_status
from experiment_utils.quantities import parse_size
from slurm.commands import cancel, resubmit
from slurm.launch import code_snapshot as snapshot
from slurm.queue.slurm_client import NoAnswer
from slurm.records.start_records import Start, note_start
from slurm.records.submissions import submissions
from slurm.status import study_states
from slurm.submit import cancel_jobs as cancelling
from slurm.submit import frozen_code as frozen
from slurm.submit.resubmit_runs import new_mem, new_time
from tests.golden_text import Golden
from tests.slurm.submit.conftest import Type, in_foreground
from training.attempt.code_version import code_version
from training.attempt.run_files import read_config

real_snapshot = slurm.submit.submit_runs._snapshot


def command(*words: str) -> int:
    """`python -m slurm ...` in this process."""
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    for module in (cancel, resubmit):
        module.add_parser(subparsers)
    options = parser.parse_args(words)
    return exit_status(lambda: int(options.run(options)))


def runs(place: Path) -> list[Path]:
    """By their seeds."""
    found = [path.parent for path in place.glob("runs/default/*/config.yaml")]
    return sorted(found, key=lambda folder: int(read_config(folder)["seed"]))


def status(folder: Path, state: str, reason: str | None = None) -> None:
    atomic_files.write_json(folder / "status.json", {"state": state, "reason": reason})


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one test of this file stands after another, so that a sweep which many look at is made once."""
    return tmp_path_factory.mktemp("ground")


@pytest.fixture
def tmp_path(ground: Path) -> Path:
    """Empty; the sweep as it was made lies beside it."""
    folder = ground / "test"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@pytest.fixture
def ended(type_: Type, cluster: FakeSlurm, place: Path, tmp_path: Path, ground: Path) -> list[Path]:
    """A sweep of four that has ended: done, failed, oom, and one that never began."""
    made = ground / "made"
    if made.exists():
        shutil.copytree(made, tmp_path, symlinks=True, dirs_exist_ok=True)
        return runs(place)
    assert type_("-m", "seed=0,1,2,3", "study.name=default") == 0
    folders = runs(place)
    for folder, state in zip(folders, ("done", "failed", "oom"), strict=False):
        status(folder, state, "why it died")
    cluster.set_state(cluster.jobs[0]["id"], "FAILED")
    shutil.copytree(tmp_path, made, symlinks=True)
    return folders


def test_what_is_not_done_is_submitted_again_as_it_was(
    ended: list[Path], cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    before = [(folder / "config.yaml").read_text() for folder in ended]
    capsys.readouterr()
    assert command("resubmit", "default", "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["submitted"] == [folder.name for folder in ended[1:]]
    assert [(folder / "config.yaml").read_text() for folder in ended] == before
    assert cluster.jobs[1]["options"]["array"] == "0-2%3"
    assert command("resubmit", "default") == 0
    golden.text(capsys.readouterr().out)


def test_those_of_a_state_get_more_memory(
    ended: list[Path], cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("resubmit", "default", "--only", "oom", "--mem", "x2", "--time", "x3") == 0
    job = cluster.jobs[1]
    assert (job["options"]["mem"], job["options"]["time"]) == ("2048M", "0:15:00")
    assert "array" not in job["options"]
    assert to_config(read_config(ended[2])).slurm.mem == 2 << 30
    assert to_config(read_config(ended[1])).slurm.mem == 1 << 30
    cluster.set_state(job["id"], "FAILED")
    assert command("resubmit", "default", "--only", "oom", "--mem", "x2") == 0
    assert cluster.jobs[2]["options"]["mem"] == "4096M"


def test_a_factor_is_of_the_last_job_and_not_of_what_had_no_room(
    ended: list[Path], cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """The command is to be typed again when some have ended, and asked for twice as much each time."""
    again = ("resubmit", "default", "--only", "failed,oom", "--mem", "x2", "--time", "x2")
    cluster.tell("most", "0")
    assert command(*again) == 1
    golden.text(capsys.readouterr().out)
    cluster.tell("most", "9")
    assert command(*again) == 0
    asked = cluster.jobs[1]["options"]
    assert (asked["mem"], asked["time"]) == ("2048M", "0:10:00")


def test_a_dry_run_submits_nothing_and_says_the_command(
    ended: list[Path], cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    capsys.readouterr()
    assert command("resubmit", "default", "--only", "failed,oom", "--mem", "2GB", "--dry-run") == 0
    told = capsys.readouterr().out
    golden.text(told)
    assert len(cluster.jobs) == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--only", "oops"), "--only: no state `oops`"),
        (("optimizer.lr=1",), "optimizer.lr: another value makes another run"),
        (("slurm.memm=1",), "slurm.memm: no such key; nearest: slurm.mem"),
        (("slurm.mem=1GB,2GB",), "slurm.mem: several values; a run has one"),
        (("--mem", "lots"), "--mem: expected a size"),
        (("--mem", "512"), "--mem: must be at least 1MB, got 512: a number alone is bytes, or a factor"),
        (("--time", "soon"), "--time: expected a time limit"),
        (("99999999",), "no run `99999999`"),
        (("plan=true",), "error: plan: "),
        (("wait=true",), "error: wait: "),
        (("runs_dir=elsewhere",), "error: runs_dir: "),
        (("study.name=other",), "error: study.name: "),
        (("--jobs", "0"), "--jobs 0: expected 1"),
        (("--jobs", "2"), "slurm.parallel=N"),
        (("--launcher", "local", "--mem", "1GB"), "--mem: is asked of Slurm"),
        (("--launcher", "local", "--time", "1h"), "--time: is asked of Slurm"),
    ],
)
def test_what_cannot_be_asked_for(
    ended: list[Path],
    cluster: FakeSlurm,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    what: str,
) -> None:
    assert command("resubmit", "default", *words) == 2
    assert what in capsys.readouterr().err
    assert len(cluster.jobs) == 1


def test_from_another_folder_paths_still_mean_what_they_meant(
    ended: list[Path], cluster: FakeSlurm, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert command("resubmit", str(place / "runs" / "default"), "--only", "failed") == 0
    assert cluster.jobs[1]["cwd"] == str(place)
    assert Path.cwd() == elsewhere
    assert not (elsewhere / "runs").exists()


def test_cancel_ends_all_that_is_under_way(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "seed=0,1,2", "then=analysis") == 0
    first, follow_up = (job["id"] for job in cluster.jobs)
    cluster.set_state(first, "COMPLETED", task=0)
    capsys.readouterr()
    assert command("cancel", "default", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cancelled"] == []
    assert cluster.calls("scancel") == []
    assert command("cancel", "default", "--yes", "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)["cancelled"]
    assert answer["runs"] == [folder.name for folder in runs(place)[1:]]
    assert cluster.calls("scancel") == [[str(first), str(follow_up)]]
    (submission,) = submissions(place / "runs" / "default")
    assert [submission.arrays[0].cancelled_at(task) is None for task in range(3)] == [True, False, False]
    assert command("cancel", "default") == 0
    golden.text(capsys.readouterr().out)


def test_cancel_finds_what_its_submitter_died_of(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between sbatch and the record of its answer."""
    assert type_("-m", "seed=0,1", "study.name=default") == 0
    (submission,) = submissions(place / "runs" / "default")
    unheard = [dataclasses.replace(array, job_id=None, submitted_s=None) for array in submission.arrays]
    dataclasses.replace(submission, arrays=unheard).write()
    capsys.readouterr()
    assert command("cancel", "default", "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out)["found"][0]["job"] == str(cluster.jobs[0]["id"])
    assert command("cancel", "default", "--yes") == 0
    assert cluster.calls("scancel") == [[str(cluster.jobs[0]["id"])]]


def test_cancel_of_one_run_ends_its_task_alone(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "seed=0,1,2") == 0
    folder, number = runs(place)[1], cluster.jobs[0]["id"]
    capsys.readouterr()
    assert command("cancel", "default", folder.name, "--dry-run", "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)["found"]
    assert (answer["runs"], answer["tasks"]) == ([folder.name], [f"{number}_1"]), "the others go on"
    assert command("cancel", "default", folder.name.rpartition("-")[2], "--yes") == 0
    golden.text(capsys.readouterr().out)
    assert cluster.calls("scancel") == [[f"{number}_1"]]
    assert cluster.jobs[0]["states"] == ["PENDING", "CANCELLED", "PENDING"]
    (submission,) = submissions(place / "runs" / "default")
    assert [submission.arrays[0].cancelled_at(task) is None for task in range(3)] == [True, False, True]


def test_the_folder_of_a_run_in_place_of_a_study_means_that_run(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """`status RUN` names it so; it was told that nothing of it runs, and that nothing is to be done again."""
    assert type_("-m", "seed=0,1") == 0
    second, number = runs(place)[1], cluster.jobs[0]["id"]
    assert command("cancel", str(second.relative_to(place)), "--yes") == 0
    golden.text(capsys.readouterr().out)
    assert cluster.jobs[0]["states"] == ["PENDING", "CANCELLED"]
    for folder in runs(place):
        status(folder, "cancelled")
    cluster.set_state(number, "CANCELLED")
    assert command("resubmit", str(second)) == 0
    golden.text(capsys.readouterr().out)
    assert len(cluster.jobs[-1]["states"]) == 1


def test_cancel_leaves_what_has_ended_by_itself(type_: Type, cluster: FakeSlurm, place: Path) -> None:
    assert type_("-m", "seed=0,1,2") == 0
    number = cluster.jobs[0]["id"]
    cluster.set_state(number, "FAILED", task=0)
    names = [folder.name for folder in runs(place)]
    assert command("cancel", "default", *names[:2], "--yes") == 0
    assert cluster.calls("scancel") == [[f"{number}_1"]]
    (submission,) = submissions(place / "runs" / "default")
    assert [submission.arrays[0].cancelled_at(task) is None for task in range(3)] == [True, False, True]


def test_a_run_that_shares_its_job_is_not_cancelled_alone(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert type_("-m", "seed=0,1,2", "slurm.pack=2") == 0
    names = [folder.name for folder in runs(place)]
    assert command("cancel", "default", names[0], "--dry-run") == 2
    assert command("cancel", "default", names[0], "--yes") == 2
    golden.text(capsys.readouterr().err)
    assert command("cancel", "default", *names, "--yes") == 0
    assert cluster.jobs[0]["states"] == ["CANCELLED"] * 2


@pytest.mark.parametrize("how", ["slurm.pack=3", "slurm.workers=2"])
def test_a_run_that_is_left_alone_in_its_job_is_cancelled_alone(
    type_: Type, cluster: FakeSlurm, place: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of what is done, or has failed in it, would end with it."""
    assert type_("-m", "seed=0,1,2", "slurm.mem=2GB", how) == 0
    failed, done, left = runs(place)
    over_in_its_job(failed, cluster.jobs[0]["id"])
    assert command("cancel", "default", left.name, "--yes") == 2
    capsys.readouterr()
    assert command("cancel", "default", failed.name, "--yes", "--json") == 0
    assert json.loads(capsys.readouterr().out)["cancelled"] == [], "it has ended, and its job goes on"
    assert "CANCELLED" not in cluster.jobs[0]["states"], "it may be in another job by now"
    status(done, "done")
    assert command("cancel", "default", left.name, "--yes") == 0
    assert set(cluster.jobs[0]["states"]) == {"CANCELLED"}, "of workers any has it"


def over_in_its_job(run: Path, job: int, **more: object) -> None:
    """As the job writes it of a run that failed while others of it go on."""
    start = Start(f"{job}", f"{job}", 0, "n1", 7, 1.0, 1, 0, end="ended", state="failed", reason="it broke")
    note_start(run, dataclasses.replace(start, **more))  # type: ignore[arg-type]
    status(run, "failed", "it broke")


@pytest.mark.parametrize("how", ["slurm.pack=3", "slurm.workers=1"])
def test_what_failed_in_a_job_that_goes_on_is_submitted_again(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], how: str, golden: Golden
) -> None:
    """The job does not take it again, also where it is put back into the queue."""
    assert type_("-m", "seed=0,1,2", "study.name=default", "slurm.mem=2GB", how) == 0
    first = cluster.jobs[0]["id"]
    failed, stopped, _ = runs(place)
    over_in_its_job(failed, first)
    over_in_its_job(stopped, first, signal="SIGUSR2", state="timeout")
    for state in ("RUNNING", "PENDING"):
        cluster.set_state(first, state)
        capsys.readouterr()
        assert command("resubmit", "default", "--only", "failed", "--dry-run", "--json") == 0
        assert [one["run"] for one in json.loads(capsys.readouterr().out)] == [failed.name]
    assert command("resubmit", "default") == 0
    told = capsys.readouterr().out
    golden.text(told)
    assert len(cluster.jobs) == 2
    assert (
        type_("-m", "seed=0,1,2", "study.name=default", "slurm.mem=2GB", how) == 0
    )  # now the new job holds it
    assert len(cluster.jobs) == 2


@pytest.mark.parametrize(("left", "how"), [(1, "each"), (2, "shared")])
def test_memory_is_asked_for_those_that_are_left_of_a_packed_job(
    type_: Type, cluster: FakeSlurm, place: Path, left: int, how: str
) -> None:
    """Of three side by side those that died of it get more, which a node may not have for three."""
    assert type_("-m", "seed=0,1,2", "study.name=default", "slurm.mem=auto", "slurm.pack=3") == 0
    for number, folder in enumerate(runs(place)):
        status(folder, "oom" if number < left else "done")
    cluster.set_state(cluster.jobs[0]["id"], "FAILED")
    assert command("resubmit", "default") == 0
    before, again = (parse_size(job["options"]["mem"]) for job in cluster.jobs)
    assert again < before
    (array,) = max(submissions(place / "runs" / "default"), key=lambda one: one.created_s).arrays
    assert (array.how, sum(map(len, array.tasks))) == (how, left)


def test_a_factor_is_of_what_each_of_a_packed_job_had(type_: Type, cluster: FakeSlurm, place: Path) -> None:
    assert type_("-m", "seed=0,1,2", "study.name=default", "slurm.mem=2GB", "slurm.pack=3") == 0
    for folder, state in zip(runs(place), ("oom", "done", "done"), strict=True):
        status(folder, state)
    cluster.set_state(cluster.jobs[0]["id"], "FAILED")
    cluster.tell("most", "0")
    assert command("resubmit", "default", "--mem", "x2") == 1
    cluster.tell("most", "9")
    assert command("resubmit", "default", "--mem", "x2") == 0
    assert cluster.jobs[1]["options"]["mem"] == "1301M", "of 4 GB, less what 3 steps take, a third"


def test_factors_and_sizes() -> None:
    assert new_mem("x2", "auto", "800M") == 1600 << 20
    assert new_mem("64GB", "auto", None) == 64 << 30
    assert new_mem("x1.5", 4 << 30, None) == 6 << 30
    with pytest.raises(UserError, match="--mem"):
        new_mem("x2", "auto", None)
    assert new_time("x2", "auto", "1-12") == "3-00:00:00"
    assert new_time("90", "auto", None) == "90"
    with pytest.raises(UserError, match="--time"):
        new_time("x2", "auto", None)


def test_runs_that_a_command_works_through_are_left_until_it_is_killed(
    ended: list[Path], cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    from slurm.status import study_states

    waiting = ended[1:]
    for folder in waiting:
        (folder / "status.json").unlink(missing_ok=True)

    def work() -> None:
        in_foreground(waiting, "python experiments.py -m seed=1,2,3")
        os.write(to_test, b"1")
        while True:
            signal.pause()

    from_child, to_test = os.pipe()
    pid = os.fork()
    if pid == 0:
        work()
    try:
        os.read(from_child, 1)
        found = {entry.folder: entry for entry in study_states(ended[0].parent)}
        assert [found[folder].state for folder in waiting] == ["queued"] * 3
        capsys.readouterr()
        assert command("resubmit", "default") == 0
        told = capsys.readouterr().out
        golden.text(told)
        assert command("cancel", "default", "--dry-run") == 0
        assert f"{os.uname().nodename}:{pid}:" in capsys.readouterr().out
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    found = {entry.folder: entry for entry in study_states(ended[0].parent)}
    assert [found[folder].state for folder in waiting] == ["never_started"] * 3
    golden.text(str(found[waiting[0]].reason))
    assert command("resubmit", "default", "--dry-run") == 0
    golden.text(capsys.readouterr().out)


@pytest.mark.parametrize("why", ["host", "user"])
def test_a_process_out_of_reach_keeps_nothing_else_from_being_cancelled(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, why: str, golden: Golden) -> None:  # fmt: skip
    """A run in front of somebody, on another login node or of another user, in a study that has jobs too."""
    assert type_("-m", "seed=0,1") == 0
    study = place / "runs" / "default"
    (study / "tried").mkdir()
    in_foreground([study / "tried"], "another")
    mine = list(submissions(study))[-1]
    if why == "host":
        arrays = [dataclasses.replace(mine.arrays[0], job_id="n9:1:1")]
        dataclasses.replace(mine, arrays=arrays).write()
    else:
        monkeypatch.setattr(os, "kill", _not_yours)
    assert command("cancel", "default", "--dry-run") == 1
    capsys.readouterr()
    assert command("cancel", "default", "--yes") == 1
    told = capsys.readouterr().out
    assert {"host": "n9", "user": mine.user}[why] in told
    golden.text(told, numbers=False)
    assert cluster.jobs[0]["states"] == ["CANCELLED"] * 2


def test_jobs_of_another_user_are_theirs_to_end(
    type_: Type,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    """Slurm has answered, and says no."""

    def denied(command: list[str]) -> str:
        raise NoAnswer(f"scancel: Kill job error on job id {command[1]}: Access/permission denied")

    assert type_("-m", "seed=0,1") == 0
    (submission,) = submissions(place / "runs" / "default")
    dataclasses.replace(submission, user="somebody").write()
    monkeypatch.setattr(cancelling, "ask", lambda command: denied(command) if command[0] == "scancel" else "")
    capsys.readouterr()
    assert command("cancel", "default", "--yes") == 1
    golden.text(capsys.readouterr().out)
    (submission,) = submissions(place / "runs" / "default")
    assert submission.arrays[0].cancelled_s is None


def _not_yours(pid: int, number: int) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_what_cancel_cannot_reach_is_told(
    ended: list[Path], cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """A copy on a node whose slurmd was lost goes on, and Slurm knows nothing of it any more."""
    atomic_files.write_json(
        ended[1] / "status.json",
        {"state": "running", "heartbeat_s": time.time(), "host": "n1", "attempt": 1, "step": 3},
    )
    holder = lock_file.Holder("n1", 4711, 7, "2027-01-15 08:00:00", "136")
    atomic_files.write_json(ended[1] / "run.lock", dataclasses.asdict(holder))
    capsys.readouterr()
    assert command("cancel", "default", "--yes") == 1
    told = capsys.readouterr().out
    golden.text(told)


def test_a_submitter_that_died_early_is_told_and_made_good(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """Between submission.json and the runs' places in it: they go to Slurm again, as they were to."""

    assert killed_at("submit:after_submission", lambda: type_("-m", "seed=0,1"))
    assert not list(place.glob("runs/*/*/jobs.json"))
    (submission,) = submissions(place / "runs" / "default")
    dataclasses.replace(submission, created_s=submission.created_s - 60).write()
    assert {entry.state for entry in study_states(place / "runs" / "default")} == {"never_started"}
    assert command("resubmit", "default") == 0
    golden.text(capsys.readouterr().out)
    assert len(cluster.jobs) == 1


def test_words_may_stand_behind_flags(
    capsys: pytest.CaptureFixture[str], ended: list[Path], golden: Golden
) -> None:
    from slurm.__main__ import main

    assert main(["resubmit", "default", "--dry-run", ended[1].name]) == 0
    golden.text(capsys.readouterr().out)
    with pytest.raises(SystemExit):
        main(["resubmit", "default", "--dry-run", ended[1].name, "--only-oom"])
    golden.text(capsys.readouterr().err)


@pytest.fixture
def with_copies(
    type_: Type, cluster: FakeSlurm, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that failed, submitted with a copy of the code; returns a checkout that has moved on since."""
    monkeypatch.setattr(slurm.submit.submit_runs, "_snapshot", real_snapshot)
    monkeypatch.setattr(slurm.submit.resubmit_runs, "copy_of", frozen.copy_of)
    assert type_("seed=0") == 0
    (run,) = runs(place)
    status(run, "failed")
    cluster.set_state(cluster.jobs[0]["id"], "FAILED")
    (first,) = submissions(place / "runs" / "default")
    now = Path(shutil.copytree(str(first.snapshot), tmp_path / "now"))
    (now / "core.py").chmod(0o644)
    with open(now / "core.py", "a") as file:
        file.write("\nMOVED_ON = True\n")
    monkeypatch.setattr(slurm.submit.resubmit_runs, "moved_on", functools.partial(frozen.moved_on, root=now))
    monkeypatch.setattr(slurm.submit.submit_runs, "take", lambda runs_dir: snapshot.take(runs_dir, root=now))
    return now


@pytest.mark.slow
@pytest.mark.parametrize("code", ["frozen", "now"])
def test_resubmit_runs_the_frozen_copy_or_the_checkout(
    with_copies: Path, place: Path, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    capsys.readouterr()
    assert command("resubmit", "default", "--code", code, "--dry-run") == 0
    assert ("core.py (+2 -0)" in capsys.readouterr().out) is (code == "frozen")
    assert command("resubmit", "default", "--code", code, "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    first, second = submissions(place / "runs" / "default")
    assert (second.snapshot == first.snapshot) is (code == "frozen")
    assert (answer["code"] or {}).get("changes") == (["core.py (+2 -0)"] if code == "frozen" else None)


@pytest.mark.parametrize("typed", ["--again", "again=true"])
def test_resubmit_again_begins_at_step_0_also_runs_that_are_done(
    ended: list[Path], cluster: FakeSlurm, capsys: pytest.CaptureFixture[str], typed: str
) -> None:
    done = ended[0]
    atomic_files.write_json(done / "run.json", {"attempts": [{"attempt": 1}], "results": {"val_loss": 2.0}})
    (done / "checkpoints" / "step-00000002").mkdir(parents=True)
    assert command("resubmit", "default", done.name, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [], "it is done"
    assert command("resubmit", "default", done.name, typed, "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["submitted"] == [done.name]
    assert cluster.jobs[-1]["options"]["mem"] == "1024M"
    assert read_config(done)["again"] is False, "a job that is requeued does not begin again"
    assert not (done / "checkpoints").exists()
    assert (done / "attempts" / "1" / "checkpoints" / "step-00000002").is_dir()
    assert json.loads((done / "attempts" / "1" / "status.json").read_text())["state"] == "done"


@pytest.mark.slow
def test_resubmit_refuses_to_resume_with_other_code(
    with_copies: Path, place: Path, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    (run,) = runs(place)
    (first,) = submissions(place / "runs" / "default")
    before = code_version(Path(str(first.snapshot)))
    attempt = {"attempt": 1, "code": {"hash": before.hash}}
    atomic_files.write_json(run / "run.json", {"attempts": [attempt]})
    (run / "code").mkdir()
    atomic_files.write_json(run / "code" / f"{before.hash}.json", {"files": before.files})
    (run / "checkpoints" / "step-00000001").mkdir(parents=True)
    jobs = len(cluster.jobs)
    assert command("resubmit", "default", "--code", "now") == 2
    assert "core.py" in capsys.readouterr().err
    assert len(cluster.jobs) == jobs
    assert command("resubmit", "default", "code=any", "--code", "now") == 0
    assert len(cluster.jobs) == jobs + 1
