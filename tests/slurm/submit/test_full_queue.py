"""A queue without room for a sweep: it is sent with fewer tasks, which take one run after another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_slurm import FakeSlurm
from forked import killed_at

from slurm.records.submissions import places, read_submission, runs_of, submissions
from slurm.status import study_states
from slurm.submit.cancel_jobs import cancel
from tests.golden_text import Golden
from tests.slurm.submit.conftest import Type, end

SPLIT = "slurm.by_model={32d: {partition: gpu}, 48d: {partition: main}}"
CLUSTER_FULL = "sbatch: error: Batch job submission failed: Resource temporarily unavailable"


@pytest.mark.parametrize(("most", "tasks"), [(9, 7), (6, 3), (3, 3), (2, 1), (1, 1)])
def test_a_sweep_is_halved_until_the_queue_takes_it(
    type_: Type, cluster: FakeSlurm, place: Path, most: int, tasks: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "slurm")
    cluster.tell("most", str(most))
    assert type_("-m", "seed=range(7)") == 0
    assert [len(job["states"]) for job in cluster.jobs] == [tasks]
    (submission,) = submissions(place / "runs" / "default")
    (array,) = submission.arrays
    assert (len(array.tasks), array.how) == (tasks, "each" if tasks == 7 else "shared")
    assert len(runs_of(submission)) == 7
    assert any("queue" in line for line in caplog.messages) == (tasks < 7)
    for entry in study_states(submission.study):
        (noted,) = places(entry.folder)
        assert entry.name in array.tasks[array.task_of(noted.task)]
        assert entry.job == array.job_of(noted.task)


def test_while_they_wait_nothing_is_sent_again_and_then_what_is_missing(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.tell("most", "2")
    assert type_("-m", "seed=0,1,2,3") == 0
    assert type_("-m", "seed=0,1,2,3") == 0
    assert [len(job["states"]) for job in cluster.jobs] == [2]
    end(cluster, place, {3: "failed"})
    assert type_("-m", "seed=0,1,2,3") == 0
    assert [len(job["states"]) for job in cluster.jobs] == [2, 1]


def test_a_full_queue_refuses_in_its_own_words(
    type_: Type, cluster: FakeSlurm, place: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """The same command again, and resubmit, submit the runs."""
    cluster.tell("most", "0")
    assert type_("-m", "seed=0,1") == 1
    golden.text(capsys.readouterr().out)
    (made,) = submissions(place / "runs" / "default")
    assert [(array.how, len(array.tasks), array.is_sent) for array in made.arrays] == [("each", 2, False)]
    assert {entry.state for entry in study_states(made.study)} == {"never_started"}
    cluster.tell("most", "9")
    assert type_("-m", "seed=0,1") == 0
    assert [len(job["states"]) for job in cluster.jobs] == [2]


def test_a_full_cluster_is_asked_by_test_only(type_: Type, cluster: FakeSlurm) -> None:
    """sbatch tries for two minutes where MaxJobCount is reached; --test-only does not."""
    cluster.tell("refuse_job", CLUSTER_FULL)
    cluster.tell("test_only", CLUSTER_FULL)
    assert type_("-m", "seed=0,1,2,3") == 1
    assert ["--test-only" in call for call in cluster.calls("sbatch")] == [True, False, True, True]


def test_a_partition_without_room_holds_back_its_own_runs_alone(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.tell("most_in", "gpu 0")
    assert type_("-m", "model=32d,48d", "seed=0,1", SPLIT, "then=analysis", "--json") == 1
    (told,) = json.loads(capsys.readouterr().out)
    assert (len(told["submitted"]), len(told["not_submitted"])) == (2, 2)
    sent = [(job["options"]["partition"], "dependency" in job["options"]) for job in cluster.jobs]
    assert sent == [("main", False), ("main", True)]


def test_runs_of_several_ranks_share_no_job(type_: Type, cluster: FakeSlurm) -> None:
    cluster.tell("most", "1")
    ranks = ("slurm.nodes=2", "slurm.tasks_per_node=1")
    assert type_("-m", "seed=0,1", *ranks) == 1
    assert cluster.jobs == []


def test_more_runs_than_an_array_has_tasks_share_one(
    type_: Type, cluster: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.tell("config", "MaxArraySize            = 2\n")
    assert type_("-m", "seed=0,1,2,3,4", "plan=true") == 0
    assert "MaxArraySize" in capsys.readouterr().out
    assert type_("-m", "seed=0,1,2,3,4") == 0
    assert [len(job["states"]) for job in cluster.jobs] == [2]


@pytest.mark.parametrize("at", ["submit:before_sbatch", "submit:after_sbatch"])
def test_a_submitter_killed_between_two_sizes_leaves_no_orphan(
    type_: Type, cluster: FakeSlurm, place: Path, at: str
) -> None:
    cluster.tell("most", "2")
    assert killed_at(at, lambda: type_("-m", "seed=0,1,2,3"), count=2)
    cluster.tell("most", "9")
    assert type_("-m", "seed=0,1,2,3") == 0
    study = place / "runs" / "default"
    sent = [array for one in submissions(study) for array in one.arrays if array.is_sent]
    assert [len(job["states"]) for job in cluster.jobs] == [2 if at == "submit:after_sbatch" else 4]
    assert [(array.job_id, len(array.tasks)) for array in sent] == [
        (str(job["id"]), len(job["states"])) for job in cluster.jobs
    ]
    assert sorted(run for array in sent for task in array.tasks for run in task) == sorted(
        entry.name for entry in study_states(study)
    )


def test_records_of_runs_that_waited_for_room_are_of_runs_that_were_not_submitted(
    type_: Type, cluster: FakeSlurm, place: Path
) -> None:
    """As earlier versions wrote them."""
    cluster.tell("most", "0")
    assert type_("-m", "seed=0,1") == 1
    (made,) = submissions(place / "runs" / "default")
    path = made.folder / "submission.json"
    record = json.loads(path.read_text())
    record["arrays"][0] |= {
        "error": "the queue had no room for it (MaxSubmitJobs, MaxJobCount)",
        "waiter": "n1:1:1",
    }
    path.write_text(json.dumps(record))
    assert read_submission(made.study, made.id).arrays[0].is_sent is False
    assert cancel(made.study) == []
    cluster.tell("most", "9")
    assert type_("-m", "seed=0,1") == 0
    assert [len(job["states"]) for job in cluster.jobs] == [2]
