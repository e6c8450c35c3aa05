"""What comes after a sweep: a job that depends on all of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm

import slurm.submit.follow_up
from slurm.commands.status_table import study_json
from slurm.queue.send import sending
from slurm.records.submissions import submissions
from slurm.submit.follow_up import follow_up, send_follow_up, summary
from tests.golden_text import Golden
from tests.slurm.submit.conftest import Type, end


def test_it_waits_for_every_array_and_ends_with_mail(type_: Type, cluster: FakeSlurm, place: Path) -> None:
    mems = "slurm.by_model={32d: {mem: 1GB}, 48d: {mem: 2GB}}"
    assert type_("-m", "model=32d,48d", mems, "notify=me@example.org", "then=analysis") == 0
    first, second, then = cluster.jobs
    assert then["options"]["dependency"] == f"afterany:{first['id']}:{second['id']}"
    assert (then["options"]["mail-user"], then["options"]["mail-type"]) == ("me@example.org", "END,FAIL")
    (submission,) = submissions(place / "runs" / "default")
    assert submission.follow_up == str(then["id"])
    checked = subprocess.run(["bash", "-n", then["script"]], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("answers", [True, False])
def test_it_depends_on_what_is_queued(type_: Type, cluster: FakeSlurm, place: Path, answers: bool) -> None:
    """sbatch can refuse a dependency on a job that Slurm has forgotten; without an answer it is tried."""
    assert type_("seed=0") == type_("seed=1") == 0
    first, second = submissions(place / "runs" / "default")
    cluster.set_state(101, "COMPLETED")
    if not answers:
        cluster.tell("no_squeue", "slurmctld is away")
    second = replace(second, then="analysis", earlier=[first.id])
    with sending(second) as lock:
        send_follow_up(second, lock)
    assert [job["options"]["dependency"] for job in cluster.jobs[2:]] == ["afterany:102"]


def test_a_site_that_takes_the_runs_takes_it_too(type_: Type, cluster: FakeSlurm, place: Path) -> None:
    """Some take no job without --constraint, or none with --mem."""
    assert type_("-m", "seed=0,1", "then=analysis", "slurm.constraint=gpu", "slurm.mem=null") == 0
    assert cluster.jobs[1]["options"]["constraint"] == "gpu"
    assert "mem" not in cluster.jobs[1]["options"]
    assert type_("-m", "seed=2", "then=analysis", "slurm.mem=null", "slurm.options=[--mem-per-cpu=1G]") == 0
    assert cluster.jobs[3]["options"]["mem"] == "1G"


@pytest.mark.parametrize(("asked", "time"), [("10", "0:10:00"), ("2h", "0:30:00")])
def test_it_asks_for_no_more_time_than_the_runs(
    type_: Type, cluster: FakeSlurm, asked: str, time: str
) -> None:
    """Else it can wait for ever (PartitionTimeLimit)."""
    assert type_("seed=0", "then=analysis", f"slurm.time={asked}") == 0
    assert cluster.jobs[1]["options"]["time"] == time


def test_mail_says_what_became_of_it_in_the_jobs_name(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type_("-m", "seed=0,1", "notify=me@example.org") == 0
    end(cluster, place, {1: "failed"})
    (submission,) = submissions(place / "runs" / "default")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    assert follow_up(submission) == 0
    name = "JobName=default: 1 of 2 runs done; 1 failed"
    assert ["update", "JobId=77", name] in cluster.calls("scontrol")


@pytest.mark.parametrize("said", ["Job dependency problem", "AssocMaxSubmitJobLimit"])
def test_a_refusal_of_it_does_not_take_the_runs_back(
    type_: Type, cluster: FakeSlurm, place: Path, golden: Golden, said: str
) -> None:
    """The note has the command that does the same: the same one again submits runs alone."""
    cluster.tell("refuse_dependency", said)
    assert type_("-m", "seed=0,1", "then=analysis", "--json") == 0
    (submission,) = submissions(place / "runs" / "default")
    assert submission.follow_up is None
    assert submission.arrays[0].job_id is not None
    (note,) = study_json(place / "runs" / "default", [])["notes"]
    golden.text(note)


def test_a_webhook_that_nobody_answers_is_told_by_status(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    """A job's output is where nobody looks."""
    assert type_("-m", "seed=0,1", "notify=http://127.0.0.1:1/hook") == 0
    end(cluster, place, {})
    study = place / "runs" / "default"
    (submission,) = submissions(study)
    assert follow_up(submission) == 1
    (note,) = study_json(study, [])["notes"]
    golden.text(note)
    monkeypatch.setattr(slurm.submit.follow_up, "_post", lambda url, told: None)
    assert follow_up(submission) == 0
    assert study_json(study, [])["notes"] == []


def test_a_full_disk_does_not_take_back_what_has_come(
    type_: Type, cluster: FakeSlurm, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    assert type_("-m", "seed=0,1", "notify=http://127.0.0.1:1/hook") == 0
    end(cluster, place, {})
    (submission,) = submissions(place / "runs" / "default")
    monkeypatch.setattr(slurm.submit.follow_up, "_post", lambda url, told: None)
    monkeypatch.setattr(slurm.submit.follow_up.atomic_files, "write_json", full)
    assert follow_up(submission) == 0


@pytest.mark.slow
def test_a_long_list_of_the_dead_is_cut(type_: Type, cluster: FakeSlurm, place: Path) -> None:
    assert type_("-m", "seed=range(25)") == 0
    end(cluster, place, dict.fromkeys(range(25), "failed"))
    (submission,) = submissions(place / "runs" / "default")
    told = summary(submission)
    assert len(told["died"]) == 25
    assert "and 5 more" in told["text"]
