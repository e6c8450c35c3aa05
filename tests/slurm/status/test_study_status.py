"""Every state of the list out of the files and answers that lead to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_studies import DEAD_PID, NOW_S, FakeSlurm, MadeStudy, here, in_the_background

from memory.record.ring import RingWriter
from memory.record.samples import Sample
from slurm.commands.status_table import pace_lines
from slurm.queue.two_phase import study_lock
from slurm.records.submissions import Place, add_place
from slurm.status import RunState, study_states
from tests.golden_text import Golden

Pinned = Callable[..., RunState]


@pytest.fixture
def study(tmp_path: Path) -> MadeStudy:
    return MadeStudy(tmp_path / "runs" / "sweep", ["a", "b"])


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def run_state_of(study: MadeStudy, slurm: FakeSlurm, name: str = "a") -> RunState:
    found = {one.name: one for one in study_states(study.folder, ask=slurm.ask, now_s=NOW_S)}
    return found[name]


@pytest.fixture
def pinned(slurm: FakeSlurm, golden: Golden) -> Pinned:
    """RunState of a run, its reason pinned."""

    def found(study: MadeStudy, name: str = "a") -> RunState:
        entry = run_state_of(study, slurm, name)
        golden.text(str(entry.reason))
        return entry

    return found


def test_one_squeue_and_one_sacct_for_all(study: MadeStudy, slurm: FakeSlurm, golden: Golden) -> None:
    slurm.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 10)), nodes="n1")
    slurm.wait("4242_1", reason="Resources", start=str(int(NOW_S + 7200)))
    a, b = study_states(study.folder, ask=slurm.ask, now_s=NOW_S)
    assert sorted(slurm.calls) == ["sacct", "squeue"]
    assert (a.state, a.job, a.rule) == ("running", "4242_0", "job_begins")
    assert (b.state, b.job) == ("queued", "4242_1")
    golden.text(str(b.reason))
    assert b.expected_start_s == NOW_S + 7200


def test_nobody_is_asked_where_all_are_done(study: MadeStudy, slurm: FakeSlurm) -> None:
    for name in ("a", "b"):
        study.status(name, "done", step=1000)
    assert [one.state for one in study_states(study.folder, ask=slurm.ask)] == ["done", "done"]
    assert slurm.calls == []


def test_the_speed_of_a_first_step_is_compared_with_nobody_s(
    study: MadeStudy, slurm: FakeSlurm, golden: Golden
) -> None:
    header = "step,tokens,seconds,tokens_per_s\n"
    for name, rows in (("a", "1,100,10,10\n"), ("b", "1,100,1,100\n2,200,2,100\n")):
        study.status(name, "running")
        (study.folder / name / "metrics.csv").write_text(header + rows)
    a, b = study_states(study.folder, ask=slurm.ask, now_s=NOW_S)
    assert pace_lines(a, [a, b]) == []
    golden.text("\n".join(pace_lines(b, [a, b])))


def test_a_clock_that_is_ahead_does_not_hide_a_stall(study: MadeStudy, slurm: FakeSlurm) -> None:
    slurm.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 5000)), nodes="n1")
    ahead_s = 3600
    study.status("a", "running", age_s=900, heartbeat_s=NOW_S + ahead_s - 900)
    study.lock("a")
    path = study.folder / "a" / "memory.ring"
    with RingWriter(path, {"pid": 100}) as ring:
        ring.add(Sample(NOW_S + ahead_s))
    os.utime(path, (NOW_S, NOW_S))
    assert run_state_of(study, slurm).state == "stalled"


@pytest.mark.parametrize(
    ("word", "age_s", "state"),
    [
        ("RUNNING", 20, "running"),
        ("CANCELLED by 0", 5, "running"),
        ("CANCELLED by 0", 20, "cancelled"),
        ("OUT_OF_MEMORY", 20, "oom"),
    ],
)
def test_a_step_that_ended_with_its_supervisor_while_its_job_goes_on(
    tmp_path: Path, slurm: FakeSlurm, word: str, age_s: float, state: str, pinned: Pinned
) -> None:
    study = MadeStudy(tmp_path / "sweep", ["a", "b"], how="pack")
    for number, name in enumerate("ab"):
        study.status(name, "running", age_s=age_s if name == "b" else 2)
        study.lock(name)
        facts = {"attempt": 1, "environment": {"SLURM_JOB_ID": "4242", "SLURM_STEP_ID": str(number)}}
        with RingWriter(study.folder / name / "memory.ring", facts):
            pass
        os.utime(study.folder / name / "memory.ring", (NOW_S - age_s, NOW_S - age_s))
    slurm.wait("4242", "RUNNING", "None", start=str(int(NOW_S - 600)), nodes="n1")
    slurm.row("4242", "RUNNING", End="Unknown")
    slurm.row("4242.0", "RUNNING", End="Unknown")
    slurm.row("4242.1", word)
    assert (run_state_of(study, slurm).state, pinned(study, "b").state) == ("running", state)


def test_the_job_of_a_run_is_the_worker_that_took_it(tmp_path: Path, slurm: FakeSlurm) -> None:
    """Whose share it was on paper has ended: scancel of that one would end nothing."""
    study = MadeStudy(tmp_path / "sweep", ["a", "b"], how="workers")
    array = replace(study.submission.arrays[0], tasks=[["b"], ["a"]])
    replace(study.submission, arrays=[array]).write()
    add_place(study.folder / "a", Place(study.submission.id, 0, 1))
    study.status("a", "running")
    start = {"job_id": "4242_0", "restart": 0, "attempt": 1, "started_s": NOW_S - 60, "end": None}
    (study.folder / "a" / "starts.json").write_text(json.dumps({"starts": [start]}))
    slurm.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 500)), nodes="n1")
    slurm.wait("4242_1", "COMPLETED", "None", start=str(int(NOW_S - 500)), nodes="n2")
    found = run_state_of(study, slurm)
    assert (found.state, found.job) == ("running", "4242_0")
    study.status("a", "done")
    slurm.queue = []
    assert run_state_of(study, slurm).job == "4242_0"


def test_a_silent_run_is_not_told_the_error_of_another_of_its_job(tmp_path: Path, slurm: FakeSlurm) -> None:
    """Folders that cannot be written: their job's stderr alone tells, and of the last one the most."""
    study = MadeStudy(tmp_path / "sweep", ["a", "b"], how="workers")
    errors = [f"PermissionError: [Errno 13] '{study.folder / name / '.run.lock.n1'}'" for name in ("a", "b")]
    study.wrote("a", "\n".join(errors))
    slurm.row("4242_0", "FAILED", "1:0")
    for found, error in zip(study_states(study.folder, ask=slurm.ask, now_s=NOW_S), errors, strict=True):
        assert (found.state, str(found.reason).endswith(error)) == ("never_started", True), found.reason


def test_killed_by_a_poll_of_rss(study: MadeStudy, slurm: FakeSlurm, pinned: Pinned) -> None:
    """How this Slurm counts memory is asked once, of however many runs, and only where one has died so."""
    slurm.config = "JobAcctGatherParams     = OverMemoryKill\n"
    for task, name in enumerate(("a", "b")):
        study.status(name, "running", age_s=900)
        study.lock(name)
        slurm.row(f"4242_{task}", "FAILED", "0:9", MaxRSS="344064K", ReqMem="330M")
    assert pinned(study).state == "failed"
    assert sorted(slurm.calls) == ["sacct", "scontrol", "squeue"]


def test_no_time_is_left_while_its_job_judges(study: MadeStudy, slurm: FakeSlurm) -> None:
    start = {"job_id": "4242_0", "restart": 0, "attempt": 1, "end": None}
    (study.folder / "a" / "starts.json").write_text(json.dumps({"starts": [start]}))
    slurm.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 500)), nodes="n1")
    rows = "".join(f"{step},{100 * step},{step / 4},100\n" for step in (300, 400))
    (study.folder / "a" / "metrics.csv").write_text("step,tokens,seconds,tokens_per_s\n" + rows)
    study.status("a", "timeout", age_s=3, reason="stopped by SIGUSR2")
    found = run_state_of(study, slurm)
    assert found.progress.eta_s is not None
    assert found.eta_s is None, "it does not go on"


@pytest.mark.parametrize("output", [None, "logs/mine.txt"])
def test_what_the_script_of_a_plain_job_says_is_read(
    tmp_path: Path, slurm: FakeSlurm, output: str | None, golden: Golden
) -> None:
    study = MadeStudy(
        tmp_path / "s", ["a"], cwd=str(tmp_path), output=output, command="sbatch slurm/submit_job.sh"
    )
    study.status("a", "cancelled", age_s=500, reason="stopped by SIGTERM")
    start = {"job_id": "4242", "restart": 0, "attempt": 1, "end": "ended", "state": "cancelled"}
    (study.folder / "a" / "starts.json").write_text(json.dumps({"starts": [start]}))
    said = "  File plain.py\nSyntaxError: invalid syntax\nsrun: error: n1: task 0: Exited with exit code 1\n"
    (tmp_path / "logs").mkdir()
    (tmp_path / (output or "slurm-4242.out")).write_text(f"step 9\n{said}")
    slurm.row("4242", "FAILED", "1:0", Restarts="1", Start=str(int(NOW_S - 100)))
    found = run_state_of(study, slurm)
    assert found.state == "failed"
    golden.text(str(found.reason))


def test_slurm_is_silent(study: MadeStudy, slurm: FakeSlurm, golden: Golden) -> None:
    slurm.queue = slurm.accounting = None
    study.status("a", "running")
    study.lock("a")
    a, b = study_states(study.folder, ask=slurm.ask, now_s=NOW_S)
    assert (a.state, b.state) == ("running", "queued")
    golden.text("\n".join([str(b.reason), *b.notes]))
    study.status("a", "running", age_s=4000)
    assert run_state_of(study, slurm).state == "stalled"


def test_sacct_is_off(study: MadeStudy, slurm: FakeSlurm) -> None:
    slurm.accounting = None
    slurm.wait("4242_0", "TIMEOUT", "TimeLimit", start=str(int(NOW_S - 900)))
    study.status("a", "running", age_s=100)
    study.lock("a")
    assert run_state_of(study, slurm).state == "timeout"
    slurm.queue = []
    assert run_state_of(study, slurm).state == "failed"


def test_sacct_is_slow(study: MadeStudy, slurm: FakeSlurm, golden: Golden) -> None:
    slurm.late = {"sacct"}
    slurm.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 10)))
    found = run_state_of(study, slurm)
    assert found.state == "running"
    golden.text(found.notes[0])


def test_runs_of_this_machine_in_the_background(tmp_path: Path, slurm: FakeSlurm) -> None:
    host, pid, started = here()
    study = in_the_background(tmp_path / "sweep", ["a", "b", "c"], f"{host}:{pid}:{started}")
    study.status("a", "running")
    study.lock("a", host, pid, started)
    study.status("b", "running", age_s=100)
    study.lock("b", host, DEAD_PID, 1)
    found = study_states(study.folder, ask=slurm.ask, now_s=NOW_S)
    assert [one.state for one in found] == ["running", "failed", "queued"]
    assert slurm.calls == []
    assert all(one.job is None for one in found)
    gone = in_the_background(tmp_path / "other", ["c"], f"{host}:{DEAD_PID}:7")
    assert run_state_of(gone, slurm, "c").state == "never_started"


def test_runs_that_were_never_submitted(tmp_path: Path, pinned: Pinned) -> None:
    study = MadeStudy(tmp_path / "sweep", [])
    config = study.run("a") / "config.yaml"
    os.utime(config, (NOW_S - 3, NOW_S - 3))
    found = pinned(study)
    assert (found.state, found.launcher) == ("queued", None)
    os.utime(config, (NOW_S - 900, NOW_S - 900))
    found = pinned(study)
    assert (found.state, found.is_live) == ("never_started", False)


def test_a_submitter_that_died_before_the_run_heard_of_it(
    tmp_path: Path, slurm: FakeSlurm, pinned: Pinned
) -> None:
    """Between submission.json and the runs' places in it."""
    study = MadeStudy(tmp_path / "sweep", ["a"], array={"job_id": None})
    (study.folder / "a" / "jobs.json").unlink()
    found = pinned(study)
    assert (found.state, found.is_live, found.launcher) == ("never_started", False, "slurm")
    slurm.wait("77", name="sweep", raw="77")
    assert (run_state_of(study, slurm).state, run_state_of(study, slurm).job) == ("queued", "77")


def test_a_submitter_that_lives_or_that_nobody_can_ask_slurm_about(
    tmp_path: Path, slurm: FakeSlurm, pinned: Pinned
) -> None:
    study = MadeStudy(tmp_path / "sweep", ["a"], array={"job_id": None})
    slurm.queue = None
    assert pinned(study).state == "queued"
    slurm.queue = []
    with study_lock(study.folder):
        assert pinned(study).state == "queued"
    assert run_state_of(study, slurm).state == "never_started"


def test_a_launcher_of_another_machine_is_missed(tmp_path: Path, slurm: FakeSlurm) -> None:
    study = in_the_background(tmp_path / "sweep", ["a"], "elsewhere:77:7")
    alive = study.submission.folder / "alive"
    for age_s, state in ((20, "queued"), (900, "never_started")):
        alive.touch()
        os.utime(alive, (NOW_S - age_s, NOW_S - age_s))
        assert run_state_of(study, slurm).state == state


@pytest.mark.parametrize(
    "plain",
    [
        3, [], {"places": 4}, {"places": [7]}, {"places": [{"submission": True, "array": 0, "task": 0}]},
        {"places": [{"submission": [], "array": 0, "task": 0}]},
        {"places": [{"submission": "x", "array": "0", "task": 0}]},
    ],
)  # fmt: skip
def test_files_of_another_shape(study: MadeStudy, slurm: FakeSlurm, plain: object) -> None:
    """They can be read, and are not what was written: of one run alone, or of what all were submitted by."""
    slurm.wait("4242_0", "RUNNING", "None", start=str(int(NOW_S - 30)), nodes="n1")
    for name in ("jobs.json", "starts.json"):
        (study.folder / "a" / name).write_text(json.dumps(plain))
    assert run_state_of(study, slurm).state == "running", "its submission names it"
    path = study.submission.folder / "submission.json"
    for key, value in (("created_s", "1"), ("study", 3), ("arrays", 5), ("cwd", None), ("command", [])):
        path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
        assert study_states(study.folder, ask=slurm.ask, now_s=NOW_S)


def test_an_attempt_that_has_not_restored_yet_is_as_far_as_its_checkpoint(
    study: MadeStudy, slurm: FakeSlurm, pinned: Pinned
) -> None:
    study.status("a", "running", age_s=60, attempt=10, step=None, stage="build_model")
    slurm.row("4242_0", "CANCELLED by 0")
    assert run_state_of(study, slurm).progress.step is None
    (study.folder / "a" / "checkpoints" / "step-00001143").mkdir(parents=True)
    assert pinned(study).progress.step == 1143


def test_a_job_that_was_started_by_hand(tmp_path: Path, slurm: FakeSlurm) -> None:
    study = MadeStudy(tmp_path / "sweep", [])
    study.run("a")
    study.status("a", "running", age_s=900)
    study.outcome("a", exit_code=1, environment={"SLURM_JOB_ID": "99"})
    slurm.row("99", "PREEMPTED")
    found = run_state_of(study, slurm)
    assert (found.state, found.job, found.launcher) == ("preempted", "99", "slurm")
