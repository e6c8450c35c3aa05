"""`python -m slurm why`: the cause, the evidence and the next command, on one screen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy, here
from slurm_command import Shown, printed, printed_json, refused

from memory.accounting.sacct import Answer
from tests.golden_text import Golden

A, B, C = "32d-a-11112222", "32d-b-33334444", "32d-c-55556666"
Made = Callable[[MadeStudy, FakeSlurm], None]


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> MadeStudy:
    return MadeStudy(place / "runs" / "sweep", [A, B, C])


def waits(study: MadeStudy, said: FakeSlurm) -> None:
    start = {"start": str(int(NOW_S + 5400)), "submit": str(int(NOW_S - 600))}
    said.wait("4242_0", reason="JobArrayTaskLimit", **start)


def runs_out_of_memory(study: MadeStudy, said: FakeSlurm) -> None:
    study.status(A, "running", age_s=70)
    study.killed_for_memory(A)
    said.row("4242_0", "FAILED", "1:0", Reason="JobHeldUser")
    said.row("4242_0.0", "OUT_OF_MEMORY", "0:125")


def of_a_plain_script(study: MadeStudy, said: FakeSlurm) -> None:
    study.submission = replace(study.submission, command="sbatch slurm/submit_job.sh seed=0")
    study.submission.write()
    runs_out_of_memory(study, said)


def killed_by_a_poll_of_rss(study: MadeStudy, said: FakeSlurm) -> None:
    said.config = "JobAcctGatherParams     = OverMemoryKill\n"
    study.status(A, "running", age_s=900)
    study.lock(A)
    said.row("4242_0", "FAILED", "0:9", MaxRSS="344064K", ReqMem="330M")


def interrupted(study: MadeStudy, said: FakeSlurm) -> None:
    study.status(A, "cancelled", age_s=70, reason="interrupted (Ctrl-C)")
    study.outcome(A, signals_passed_on=[{"signal": "SIGINT"}])
    said.row("4242_0", "FAILED", "130:0")


def supervisor_killed(study: MadeStudy, said: FakeSlurm) -> None:
    study.status(A, "running", age_s=70)
    start = {
        "job_id": "4242_0", "restart": 0, "attempt": 1, "end": "ended", "state": "failed", "host": "n2",
        "reason": "its supervisor was killed by SIGKILL (on n2)", "exit_code": 1,
    }  # fmt: skip
    (study.folder / A / "starts.json").write_text(json.dumps({"starts": [start]}))
    study.wrote(A, "srun: error: n2: task 0: Exited with exit code 1\n")
    said.row("4242_0", "FAILED", "1:0", NodeList="n2")
    said.row("4242_0.0", "FAILED", "1:0", NodeList="n2")


def step_cancelled(study: MadeStudy, said: FakeSlurm) -> None:
    study.status(A, "running", age_s=70)
    study.wrote(A, "srun: error: n1: task 0: Killed\n")
    said.row("4242_0", "FAILED", "9:0")
    said.row("4242_0.batch", "FAILED", "9:0")
    said.row("4242_0.0", "CANCELLED by 0", "0:9")


def never_started(study: MadeStudy, said: FakeSlurm) -> None:
    study.wrote(A, "Lmod has detected the following error: The following module(s) are unknown: cuda\nbye\n")
    said.row("4242_0", "FAILED", "1:0")


def stalls_here(study: MadeStudy, said: FakeSlurm) -> None:
    host, pid, started = here()
    study.status(A, "running", age_s=4000, host=host, pid=pid)
    study.lock(A, host, pid, started)
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 9000)), nodes="n1")


def stalls_on_a_node(study: MadeStudy, said: FakeSlurm) -> None:
    study.status(A, "running", age_s=4000)
    study.lock(A)
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 9000)), nodes="n1", raw="4243")


def has_attempts(study: MadeStudy, said: FakeSlurm) -> None:
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


def spent_its_max_time(study: MadeStudy, said: FakeSlurm) -> None:
    reason = "training.max_time=1h is over: 1 h of training, 600 of 1,000 steps left"
    study.status(A, "timeout", age_s=900, reason=reason)
    said.row("4242_0", "COMPLETED")


def cannot_be_read(study: MadeStudy, said: FakeSlurm) -> None:
    (study.folder / A / "status.json").mkdir()


@pytest.mark.parametrize(
    ("made", "state", "evidence", "next_words"),
    [
        (waits, "queued", "JobArrayTaskLimit", "logs runs/sweep/{A} -f"),
        (runs_out_of_memory, "oom", "4242_0.0 OUT_OF_MEMORY", "resubmit runs/sweep --only oom --mem 1280M"),
        (of_a_plain_script, "oom", "--mem=1280M", "resubmit runs/sweep --only oom --mem 1280M"),
        (killed_by_a_poll_of_rss, "failed", "rss_polling", "resubmit runs/sweep --only failed --mem 448M"),
        (interrupted, "cancelled", "SIGINT", "resubmit runs/sweep --only cancelled"),
        (supervisor_killed, "failed", "4242_0 FAILED", "resubmit runs/sweep --only failed"),
        (step_cancelled, "cancelled", "4242_0.0 CANCELLED", "resubmit runs/sweep --only cancelled"),
        (never_started, "never_started", "4242_0_0_log.err", "resubmit runs/sweep --only never_started"),
        (stalls_here, "stalled", "status.json", "cancel runs/sweep {A}"),
        (stalls_on_a_node, "stalled", "on n1", "cancel runs/sweep {A}"),
        (has_attempts, "timeout", "attempt 2", "resubmit runs/sweep --only timeout --time 0:20:00"),
        (
            spent_its_max_time, "timeout", "training.max_time",
            "resubmit runs/sweep --only timeout {A} training.max_time=null",
        ),
        (cannot_be_read, "unreadable", "status.json", "ls -la runs/sweep/{A}"),
    ],
)  # fmt: skip
def test_cause_evidence_and_next_command(
    study: MadeStudy, said: FakeSlurm, shown: Shown, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, made: Made, state: str, evidence: str, next_words: str,
) -> None:  # fmt: skip
    """The screen holds them, fits 80 columns and 24 lines, and has the state and the command of --json."""
    made(study, said)
    text = shown("why", A)
    assert text.startswith(f"{state}: runs/sweep/{A}\n")
    assert evidence in text
    assert not {"JobHeldUser", "4242_0.batch"} & set(text.split()), "why it waited; a row that adds nothing"
    found = printed_json(capsys, "why", A)
    assert (found["state"], found["run"]) == (state, A)
    step = next_words.replace("{A}", A)
    assert found["next"] == (step if step.startswith("ls") else f"python -m slurm {step}")
    assert text.splitlines()[-1].startswith(f"next: {found['next']}   (")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    for height in (24, 20):
        monkeypatch.setenv("LINES", str(height))
        lines = printed(capsys, "why", A).splitlines()
        assert len(lines) < height
        assert all(len(line) <= 80 for line in lines if "python -m" not in line), lines


def test_jobs_that_wait_before_it_are_counted(
    study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits(study, said)

    def ask(command: list[str], timeout_s: float) -> Answer:
        assert "--partition=main" in command
        return Answer(0, "5000\n4001\n4000\n12\n")

    monkeypatch.setattr("slurm.commands.why.ask_in_unix_time", ask)
    assert printed_json(capsys, "why", A)["queue"][1].split()[0] == "2"


def test_run_that_waits_in_a_job_that_runs(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker has not come to it: the queue has nothing to do with it any more."""
    MadeStudy(place / "runs" / "sweep", [A, B], how="workers")
    said.wait("4242", "RUNNING", "None", start=str(int(NOW_S - 60)), nodes="n1")
    found = printed_json(capsys, "why", "1111")
    assert (found["state"], found["queue"], found["expected_start_s"]) == ("queued", [], None)


def test_runs_that_share_a_job_get_a_factor_of_its_memory(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one of them needs is less than what their job had."""
    study = MadeStudy(place / "runs" / "packed", [A, "b"], how="pack", array={"options": {"mem": "2G"}})
    study.status(A, "running", age_s=70)
    study.killed_for_memory(A)
    said.row("4242", "FAILED", "1:0")
    assert printed_json(capsys, "why", A)["next"].endswith(" --only oom --mem x2")


@pytest.mark.parametrize(
    ("word", "typed"),
    [("NODE_FAIL", "'slurm.options=[--exclude=n1]'"), ("PREEMPTED", "slurm.requeue=true")],
)
def test_options_of_sbatch_are_advised_as_keys(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str], word: str, typed: str
) -> None:
    study.status(A, "running", age_s=70)
    said.row("4242_0", word)
    advice = printed_json(capsys, "why", A)["explained"]["advice"]
    assert typed in [one["override"] for one in advice]


@pytest.mark.parametrize("how", ["pack", "workers"])
def test_runs_that_end_together_are_cancelled_by_name(
    said: FakeSlurm, place: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cancel` ends none of them alone."""
    study = MadeStudy(place / "runs" / "shared", ["x", "y z"], how=how)
    study.status("x", "running", age_s=4000)
    study.lock("x")
    said.wait("4242", "RUNNING", "None", start=str(int(NOW_S - 9000)), nodes="n1")
    found = printed_json(capsys, "why", "runs/shared/x")
    assert (found["state"], found["next"].partition("runs/shared ")[2]) == ("stalled", "x 'y z'")


@pytest.mark.parametrize("code", [0, 1])
def test_stacks_of_a_stalled_run_are_asked_in_its_job(
    study: MadeStudy, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, code: int,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    stalls_on_a_node(study, said)
    asked: list[list[str]] = []

    def ask(command: list[str], timeout_s: float) -> Answer:
        asked.append(command)
        return Answer(code, 'File "data.py", line 7 in read\n', "srun: error: nodes busy\n")

    monkeypatch.setattr("slurm.commands.why.ask_in_unix_time", ask)
    stack = printed_json(capsys, "why", A)["stack"]
    assert asked[0][:3] == ["srun", "--jobid=4243", "--overlap"]
    assert ("data.py" in stack[0], "python -m memory stacks" in stack[-1]) == (code == 0, code != 0)


def paced(study: MadeStudy, name: str, tokens_per_s: float, host: str) -> None:
    study.status(name, "done" if name != A else "running", host=host)
    rows = [f"{n},{n * tokens_per_s},{n},{tokens_per_s}\n" for n in range(1, 9)]
    (study.folder / name / "metrics.csv").write_text("step,tokens,seconds,tokens_per_s\n" + "".join(rows))


@pytest.mark.parametrize(
    ("of_b", "of_c", "lines"),
    [((300, "n2"), (320, "n2"), 2), ((300, "n1"), (320, "n2"), 2), ((300, "n2"), (90, "n1"), 2),
     ((110, "n2"), (120, "n2"), 1)],
)  # fmt: skip
def test_slow_run_is_compared_with_others_on_its_node(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden,
    of_b: tuple[float, str], of_c: tuple[float, str], lines: int,
) -> None:  # fmt: skip
    said.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
    study.lock(A)
    for name, pace in ((A, (100, "n1")), (B, of_b), (C, of_c)):
        paced(study, name, *pace)
    found = printed_json(capsys, "why", A)["progress"]
    assert len(found) == 1 + lines
    golden.text("\n".join(found))


@pytest.mark.parametrize(
    ("options", "limit", "advised"),
    [
        ({"time": "0:10:00"}, "00:10:00", " --time x2"),
        ({}, "00:10:00", " --time 0:20:00"),  # of a plain script, or the partition's default
        ({}, "UNLIMITED", ""),
    ],
)
def test_twice_the_time_that_it_had(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str],
    options: dict[str, str], limit: str, advised: str,
) -> None:  # fmt: skip
    """resubmit refuses `x2` of a limit that was not asked for."""
    study = MadeStudy(place / "runs" / "sweep", [A, B], array={"options": options})
    study.status(A, "timeout", age_s=70, reason="stopped by SIGUSR2")
    said.row("4242_0", "TIMEOUT", Timelimit=limit)
    assert printed_json(capsys, "why", A)["next"].endswith(f" --only timeout{advised}")


def test_bad_input(study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    golden.text("\n".join(refused(capsys, "why", run) for run in ("nosuchrun", "9999", "runs/sweep")))
