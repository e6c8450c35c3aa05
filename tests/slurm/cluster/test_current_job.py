"""The job that a process is in: its environment, what Slurm says of it, another start of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm.cluster import current_job as job_module
from slurm.cluster.current_job import Answer, Job

ME = Job("42_1", "43", restart=1)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(0, "43 RUNNING\n"), False),
        (Answer(0, "43 COMPLETING\n"), False),
        (Answer(0, "43 PENDING\n"), True),
        (Answer(0, "43 COMPLETED\n42 RUNNING\n"), True),
        (Answer(0, ""), True),
        (Answer(1, "", "slurm_load_jobs error: Invalid job id specified"), True),
        (Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller"), None),
        (Answer(127, "", "squeue: No such file or directory"), None),
    ],
)
def test_whether_slurm_knows_it_as_ended(answer: Answer, expected: bool | None) -> None:
    assert job_module.has_ended("43", lambda command: answer) is expected


def test_the_job_of_an_environment() -> None:
    assert Job.of({}) is None
    assert Job.of({"SLURM_JOB_ID": "7"}) == Job("7", "7")
    array = {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    assert Job.of({**array, "SLURM_RESTART_COUNT": "3", "SLURM_PROCID": "1"}) == Job("7_2", "9", 3, 1)


@pytest.mark.parametrize(
    ("answer", "array"),
    [
        (Answer(0, "92\n"), None),  # sbatch was typed in a task of array 91, and handed its variables on
        (Answer(0, "91\n"), "91"),
        (Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller"), "91"),
    ],
)
def test_variables_of_another_array(answer: Answer, array: str | None) -> None:
    around = {"SLURM_JOB_ID": "92", "SLURM_ARRAY_JOB_ID": "91", "SLURM_ARRAY_TASK_ID": "0", "HOME": "/h"}
    job_module.leave_other_array(around, lambda command: answer)
    assert around.get("SLURM_ARRAY_JOB_ID") == array
    assert Job.of(around) == (Job("92", "92") if array is None else Job("91_0", "92"))
    assert around["HOME"] == "/h"


@pytest.mark.parametrize(
    ("told", "preempted", "goes_on"),
    [
        ("JobId=7 JobState=RUNNING PreemptTime=2026-11-22T08:00:00 Command=/a b=c", True, False),
        ("JobId=7 JobState=RUNNING PreemptTime=None", False, True),
        ("JobId=7 JobState=RUNNING", False, True),
        ("JobId=7 JobState=COMPLETING PreemptTime=2026-11-22T08:00:00", False, False),
        ("JobId=7 JobState=CANCELLED PreemptTime=None", False, False),
    ],
)
def test_preempted_or_to_go_on(told: str, preempted: bool, goes_on: bool) -> None:
    job = Job("7", "7")
    assert job.is_being_preempted(lambda command: Answer(0, told)) is preempted
    assert job.is_to_go_on(lambda command: Answer(0, told)) is goes_on
    assert job.is_being_preempted(lambda command: Answer(1)) is None
    assert job.is_to_go_on(lambda command: Answer(1)) is None


def test_a_question_that_the_signal_to_the_step_has_ended_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm and srun signal all of a step: the second SIGTERM ends the scontrol that the first has begun."""
    asked, scontrol = tmp_path / "asked", tmp_path / "scontrol"
    told = "JobId=7 JobState=RUNNING PreemptTime=2026-11-22T08:00:00"
    scontrol.write_text(
        f"#!/bin/sh\nif [ -e {asked} ]; then echo '{told}'; else touch {asked}; kill $$; fi\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert Job("7", "7").is_being_preempted() is True
    scontrol.write_text("#!/bin/sh\nkill $$\n")
    assert Job("7", "7").is_being_preempted() is None


def test_requeue_asks_again_for_the_task() -> None:
    asked: list[list[str]] = []
    answers = iter([Answer(1, "", "Unable to contact"), Answer(0)])

    def ask(command: list[str]) -> Answer:
        if "show" in command:
            return Answer(0, "JobId=43 JobState=RUNNING")
        asked.append(command)
        return next(answers)

    assert ME.requeue(ask, pause_s=0) is None
    assert asked == [["scontrol", "requeue", "42_1"]] * 2, "43 may be the number of a whole array"
    assert ME.requeue(lambda command: Answer(1, "", "disabled"), 0) == "disabled"
    waits = Answer(1, "", "Job is pending execution for job 42_1")
    assert ME.requeue(lambda command: waits, 0) is None, "another run of the job has asked"


@pytest.mark.parametrize(
    ("told", "is_taken"),
    [
        ("JobState=COMPLETING Reason=None Restarts=1", False),
        ("JobState=CANCELLED,COMPLETING Reason=None Restarts=1", False),
        ("JobState=RUNNING Reason=None Restarts=1", True),
        ("JobState=COMPLETING Reason=None Restarts=2", True),  # scontrol requeue
        ("JobState=COMPLETING Reason=TimeLimit Restarts=1", True),
        ("JobState=COMPLETING Reason=None Restarts=1 PreemptTime=2026-11-26T02:07:47", True),
        ("JobState=COMPLETING Reason=None Restarts=1 PreemptTime=2026-11-26T02:07:32", False),
    ],
)
def test_a_job_that_was_cancelled_is_not_put_back(told: str, is_taken: bool) -> None:
    """As a real Slurm 22.05 shows one that ends: of all that it may be the same state."""
    asked: list[str] = []

    def ask(command: list[str]) -> Answer:
        asked.append(command[1])
        return Answer(0, f"JobId=43 PreemptTime=None {told} EndTime=2026-11-26T02:07:47")

    assert (ME.requeue(ask, 0) is None) == is_taken
    assert ("requeue" in asked) == is_taken


@pytest.mark.parametrize(
    "away",
    [
        Answer(1, "", "Unable to contact slurm controller (connect failure) for job 42_1"),
        Answer(1, "", "Unexpected message received for job 42_1"),  # just after its start (22.05.8)
        Answer(124, "", "scontrol did not answer within 20 s"),
    ],
)
def test_a_slurmctld_that_is_away_is_waited_for(away: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job ended, and its run was not gone on with."""
    answers = iter([*[away] * 8, Answer(0, "JobState=RUNNING"), Answer(0)])
    assert ME.requeue(lambda command: next(answers), pause_s=0) is None
    monkeypatch.setattr(job_module, "_AWAY_S", 0.0)
    assert ME.requeue(lambda command: away, pause_s=0) == away.error


@pytest.mark.parametrize(
    ("told", "left_s"),
    [("0:12\n", 12), ("1-02:00:00\n", 93600), ("UNLIMITED\n", None), ("INVALID\n", None), ("", None)],
)
def test_how_long_a_job_has_yet(told: str, left_s: float | None) -> None:
    assert ME.left_s(lambda command: Answer(0, told)) == left_s
    assert ME.left_s(lambda command: Answer(1, "0:12")) is None
