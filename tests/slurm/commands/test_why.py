"""`python -m slurm why`: of what waits, died, stands still, never started, is slow."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy, here
from slurm_command import Shown, refused, told, told_json

from memory.accounting.sacct import Answer
from tests.golden_text import Golden


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> MadeStudy:
    return MadeStudy(place / "runs" / "sweep", ["32d-a-11112222", "32d-b-33334444", "32d-c-55556666"])


A, B, C = "32d-a-11112222", "32d-b-33334444", "32d-c-55556666"


def test_what_waits(study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shown: Shown) -> None:
    said.wait(
        "4242_0", reason="JobArrayTaskLimit", start=str(int(NOW_S + 5400)), submit=str(int(NOW_S - 600))
    )
    answered = said.ask

    def ask(command: list[str], timeout_s: float) -> Answer:
        if "--format=%Q" in command:
            assert "--partition=main" in command
            return Answer(0, "5000\n4001\n4000\n12\n")
        return answered(command, timeout_s)

    monkeypatch.setattr("slurm.commands.why.ask_in_unix_time", ask)
    text = shown("why", "1111")
    for fact in (
        f"queued: runs/sweep/{A}",
        "slurm.parallel", "JobArrayTaskLimit",
        "scontrol update JobId=4242 ArrayTaskThrottle=N",
        f"python -m slurm logs runs/sweep/{A} -f",
    ):  # fmt: skip
        assert fact in text, text


def test_what_waits_in_a_job_that_runs(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """A worker has not come to it: the queue has nothing to do with it any more."""
    MadeStudy(place / "runs" / "sweep", [A, B], how="workers")
    said.wait("4242", "RUNNING", "None", start=str(int(NOW_S - 60)), nodes="n1")
    found = told_json(capsys, "why", "1111")
    assert found["state"] == "queued"
    golden.text(found["reason"])
    assert (found["queue"], found["expected_start_s"]) == ([], None)


def test_what_died(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str], shown: Shown
) -> None:
    study.status(A, "running", age_s=70)
    study.killed_for_memory(A)
    said.row("4242_0", "FAILED", "1:0", Reason="JobHeldUser")
    said.row("4242_0.0", "OUT_OF_MEMORY", "0:125")
    text = shown("why", A)
    for fact in (
        f"oom: runs/sweep/{A}",
        "oom_cgroup",
        "4242_0.0 OUT_OF_MEMORY 0:125",
        "slurm.mem=1280M",
        "python -m slurm resubmit runs/sweep --only oom --mem 1280M",
    ):
        assert fact in text, text
    assert "JobHeldUser" not in text, "why it last waited is not why it died"
    assert "sbatch's" not in text
    found = told_json(capsys, "why", A)
    assert (found["state"], found["explained"]["verdict"], found["run"]) == ("oom", "oom_cgroup", A)
    study.submission = replace(study.submission, command="sbatch slurm/submit_job.sh seed=0")
    study.submission.write()
    text = shown("why", A)


def test_more_memory_for_runs_that_share_it(place: Path, said: FakeSlurm, shown: Shown) -> None:
    """What one of them needs is less than what their job had."""
    study = MadeStudy(place / "runs" / "packed", [A, "b"], how="pack", array={"options": {"mem": "2G"}})
    study.status(A, "running", age_s=70)
    study.killed_for_memory(A)
    said.row("4242", "FAILED", "1:0")
    assert " --mem x2 " in shown("why", f"runs/packed/{A}").splitlines()[-1]


def test_more_memory_for_what_a_poll_of_rss_killed(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    """It counts as failed: submitted again as it was it would end so again."""
    said.config = "JobAcctGatherParams     = OverMemoryKill\n"
    study.status(A, "running", age_s=900)
    study.lock(A)
    said.row("4242_0", "FAILED", "0:9", MaxRSS="344064K", ReqMem="330M")
    shown("why", "1111")


@pytest.mark.parametrize(
    ("word", "typed"),
    [("NODE_FAIL", "'slurm.options=[--exclude=n1]'"), ("PREEMPTED", "slurm.requeue=true")],
)
def test_what_sbatch_takes_is_advised_as_our_key(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str], word: str, typed: str
) -> None:
    """resubmit takes keys, and no option of sbatch but --mem and --time."""
    study.status(A, "running", age_s=70)
    said.row("4242_0", word)
    text = told(capsys, "why", A)
    assert f" {typed}   " in text, text


def test_what_to_change_is_told_once(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    """Of a run that stopped, memory says what to type."""
    study.status(A, "cancelled", age_s=70, reason="interrupted (Ctrl-C)")
    study.outcome(A, signals_passed_on=[{"signal": "SIGINT"}])
    said.row("4242_0", "FAILED", "130:0")
    shown("why", A)


def test_a_run_that_died_with_all_beside_it_does_not_run(
    study: MadeStudy, said: FakeSlurm, shown: Shown
) -> None:
    """Its own files end in the middle: what they say of now is of the past."""
    study.status(A, "running", age_s=20)
    said.row("4242_0", "FAILED", "9:0")
    said.row("4242_0.0", "CANCELLED", "0:9")
    shown("why", A)


def test_a_supervisor_that_was_killed(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    """The run says that it runs; its job saw the end, and srun has a word after it."""
    study.status(A, "running", age_s=70)
    start = {
        "job_id": "4242_0", "restart": 0, "attempt": 1, "end": "ended", "state": "failed", "host": "n2",
        "reason": "its supervisor was killed by SIGKILL (on n2)", "exit_code": 1,
    }  # fmt: skip
    (study.folder / A / "starts.json").write_text(json.dumps({"starts": [start]}))
    study.wrote(A, "srun: error: n2: task 0: Exited with exit code 1\n")
    said.row("4242_0", "FAILED", "1:0", NodeList="n2")
    said.row("4242_0.0", "FAILED", "1:0", NodeList="n2")
    text = shown("why", A)
    assert "4242_0.0" not in text, "the row of its step adds nothing"


def test_a_step_that_was_cancelled(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    """scancel 4242_0.0: only its row says who did that."""
    study.status(A, "running", age_s=70)
    study.wrote(A, "srun: error: n1: task 0: Killed\n")
    said.row("4242_0", "FAILED", "9:0")
    said.row("4242_0.batch", "FAILED", "9:0")
    said.row("4242_0.0", "CANCELLED by 0", "0:9")
    text = shown("why", A)
    assert "4242_0.batch" not in text
    study.status(A, "running", age_s=8)
    shown("why", A)


def test_what_never_started(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    study.wrote(
        A, "Lmod has detected the following error: The following module(s) are unknown: cuda/99\nbye\n"
    )
    said.row("4242_0", "FAILED", "1:0")
    text = shown("why", A)
    assert "4242_0_0_log.err" in text


def test_what_stands_still_here(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    host, pid, started = here()
    study.status(A, "running", age_s=4000, host=host, pid=pid)
    study.lock(A, host, pid, started)
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 9000)), nodes="n1")
    assert "stalled" in shown("why", A).splitlines()[0]


@pytest.mark.parametrize("how", ["pack", "workers"])
def test_of_runs_that_share_a_job_all_are_named_where_one_is_to_be_ended(
    said: FakeSlurm, place: Path, how: str, shown: Shown
) -> None:
    """`cancel` ends none of them alone."""
    study = MadeStudy(place / "runs" / "shared", ["x", "y z"], how=how)
    study.status("x", "running", age_s=4000)
    study.lock("x")
    said.wait("4242", "RUNNING", "None", start=str(int(NOW_S - 9000)), nodes="n1")
    assert "stalled" in shown("why", "runs/shared/x").splitlines()[0]


def test_what_stands_still_on_a_node_is_asked_beside_it(
    study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, shown: Shown
) -> None:
    study.status(A, "running", age_s=4000)
    study.lock(A)
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 9000)), nodes="n1", raw="4243")
    asked: list[list[str]] = []

    def ask(command: list[str], timeout_s: float) -> Answer:
        asked.append(command)
        if len(asked) == 1:
            return Answer(0, 'Current thread (most recent call first):\n  File "data.py", line 7 in read\n')
        return Answer(1, error="srun: error: Unable to create step: nodes busy\n")

    monkeypatch.setattr("slurm.commands.why.ask_in_unix_time", ask)
    shown("why", A)
    assert asked[0][:3] == ["srun", "--jobid=4243", "--overlap"]
    shown("why", A)


def paced(study: MadeStudy, name: str, tokens_per_s: float, host: str) -> None:
    study.status(name, "done" if name != A else "running", host=host)
    rows = [f"{n},{n * tokens_per_s},{n}\n" for n in range(1, 9)]
    (study.folder / name / "metrics.csv").write_text("step,tokens,seconds,tokens_per_s\n")
    with open(study.folder / name / "metrics.csv", "a") as file:
        file.writelines(row.rstrip("\n") + f",{tokens_per_s}\n" for row in rows)


def test_what_is_slow(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
    study.lock(A)
    paced(study, A, 100, "n1")
    paced(study, B, 300, "n2")
    paced(study, C, 320, "n2")
    shown("why", A)
    paced(study, B, 300, "n1")
    shown("why", A)
    paced(study, C, 90, "n1")
    paced(study, B, 300, "n2")
    shown("why", A)


def test_attempts(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str], shown: Shown, golden: Golden
) -> None:
    study.status(A, "timeout", age_s=900, reason="stopped by SIGUSR2", attempt=2)
    said.row("4242_0", "TIMEOUT")
    starts: list[dict[str, Any]] = [
        {"attempt": n, "job_id": "4242_0", "restart": n - 1, "host": f"n{n}", "started_s": NOW_S - 3600 / n,
         "step_after": 100 * n, "end": end, "reason": reason}
        for n, end, reason in (
            (1, "requeued", "stopped by SIGUSR2"), (2, "gave_up", "given up: no step\nforward")
        )
    ]  # fmt: skip
    (study.folder / A / "starts.json").write_text(json.dumps({"version": 1, "starts": starts}))
    shown("why", A)
    found = told_json(capsys, "why", A)
    assert found["state"] == "timeout"
    golden.text(found["reason"])


def test_a_run_whose_own_time_is_over(study: MadeStudy, said: FakeSlurm, shown: Shown) -> None:
    """More of the job's would not help: it counts over all attempts."""
    reason = "training.max_time=1h is over: 1 h of training, 600 of 1,000 steps left"
    study.status(A, "timeout", age_s=900, reason=reason)
    said.row("4242_0", "COMPLETED")
    text = shown("why", A)
    assert "slurm.time" not in text
    again = f"python -m slurm resubmit runs/sweep --only timeout {A} training.max_time=null"
    assert again in text.splitlines()[-1]


def test_bad_input(study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    golden.text("\n".join(refused(capsys, "why", run) for run in ("nosuchrun", "9999", "runs/sweep")))


@pytest.mark.parametrize(
    ("options", "limit", "advised"),
    [
        ({"time": "0:10:00"}, "00:10:00", " --time x2"),
        ({}, "00:10:00", " --time 0:20:00"),  # of a plain script, or the partition's default
        ({}, "UNLIMITED", ""),
    ],
)
def test_twice_of_what_it_had(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str],
    options: dict[str, str], limit: str, advised: str,
) -> None:  # fmt: skip
    """`x2` is of what was asked for: where nothing was, resubmit would refuse it."""
    study = MadeStudy(place / "runs" / "sweep", [A, B], array={"options": options})
    study.status(A, "timeout", age_s=70, reason="stopped by SIGUSR2")
    said.row("4242_0", "TIMEOUT", Timelimit=limit)
    step = told(capsys, "why", A).splitlines()[-1]
    assert f"python -m slurm resubmit runs/sweep --only timeout{advised} " in step
