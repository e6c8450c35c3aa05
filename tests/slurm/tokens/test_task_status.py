"""`status`, `why` and `logs` of a token set: a task is judged as a run is, and is done when its files are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy

from slurm.__main__ import main
from slurm.tokens.task_status import token_run_states
from tests.golden_text import Golden

TASKS = ["00000-of-00003", "00001-of-00003", "00002-of-00003"]


class MadeSet(MadeStudy):
    """`Datasets/huge`, whose three tasks are those of job 4242."""

    def __init__(self, place: Path, **more: Any) -> None:
        super().__init__(place / "Datasets" / ".huge.slurm", TASKS, **more)
        self.tokens = place / "Datasets" / "huge"
        for name in TASKS:
            (self.folder / name / "config.yaml").unlink()

    def done(self, name: str) -> None:
        folder = self.tokens.with_name(".huge.tasks") / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")

    def says(self, name: str, text: str) -> None:
        (self.folder / name / "log.txt").write_text(text)


@pytest.fixture
def huge(tmp_path: Path) -> MadeSet:
    return MadeSet(tmp_path)


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def states(huge: MadeSet, slurm: FakeSlurm) -> list[str]:
    return [one.state for one in token_run_states(huge.folder, ask=slurm.ask, now_s=NOW_S)]


def test_done_running_and_waiting(huge: MadeSet, slurm: FakeSlurm) -> None:
    huge.done(TASKS[0])
    huge.status(TASKS[1], "running", stage="tokenize", step=None, total_steps=None, attempt=2)
    slurm.wait("4242_1", "RUNNING", "None", start=str(int(NOW_S - 100)), nodes="n1")
    slurm.wait("4242_2", reason="Resources")
    found = token_run_states(huge.folder, ask=slurm.ask, now_s=NOW_S)
    assert [one.state for one in found] == ["done", "running", "queued"]
    assert found[1].attempt == 2
    assert sorted(slurm.calls) == ["sacct", "squeue"]
    huge.status(TASKS[1], "running", age_s=1200, stage="tokenize")
    slurm.queue = []
    slurm.wait("4242_1", "RUNNING", "None", start=str(int(NOW_S - 5000)), nodes="n1")
    assert states(huge, slurm)[1] == "stalled"


def test_each_way_to_die(huge: MadeSet, slurm: FakeSlurm) -> None:
    error = "error: code-7"
    huge.says(TASKS[0], f"2027-01-15 08:00:00 job 4242_0, start 1\n{error}\n")
    huge.status(TASKS[0], "failed", age_s=100)
    slurm.row("4242_0", "FAILED", "2:0")
    huge.status(TASKS[1], "running", age_s=100)
    slurm.row("4242_1", "FAILED", "1:0")
    slurm.row("4242_1.0", "OUT_OF_MEMORY", "0:125")
    huge.status(TASKS[2], "running", age_s=100)
    slurm.row("4242_2", "TIMEOUT")
    found = token_run_states(huge.folder, ask=slurm.ask, now_s=NOW_S)
    assert [one.state for one in found] == ["failed", "oom", "timeout"]
    assert found[0].reason == error


def test_a_set_that_is_made(huge: MadeSet, slurm: FakeSlurm) -> None:
    huge.tokens.mkdir()
    manifest = huge.tokens / "manifest.json"
    manifest.write_text("{}")
    os.utime(manifest, (NOW_S - 7200, NOW_S - 7200))
    assert states(huge, slurm)[0] != "done", "it is older than this submission"
    os.utime(manifest, (NOW_S - 60, NOW_S - 60))
    assert states(huge, slurm) == ["done"] * 3


@pytest.mark.parametrize("given", ["Datasets/huge", "huge", "Datasets/.huge.slurm"])
def test_status_by_the_set_s_path_or_name(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], given: str, golden: Golden
) -> None:
    huge = MadeSet(place)
    huge.done(TASKS[0])
    said.wait("4242_1", reason="Resources")
    said.wait("4242_2", reason="Resources")
    assert main(["status", given]) == 0
    if given == "huge":
        golden.text(capsys.readouterr().out)
    capsys.readouterr()
    assert main(["status", given, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["study"] == "Datasets/huge"
    assert "token" in plain["kind"]
    assert [one["state"] for one in plain["runs"]] == ["done", "queued", "queued"]


def test_all_tasks_done_and_no_set(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    huge = MadeSet(place)
    for name in TASKS:
        huge.done(name)
    assert main(["status", "huge"]) == 0
    golden.text(capsys.readouterr().out)


def test_all_studies_and_all_sets(place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    huge = MadeSet(place)
    huge.done(TASKS[0])
    for task in (1, 2):
        said.wait(f"4242_{task}")
    MadeStudy(place / "runs" / "sweep", ["a"]).status("a", "done")
    assert main(["status", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [one["counts"] for one in plain["token_sets"]] == [{"done": 1, "queued": 2}]


def test_why_and_logs_of_the_task_that_died(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    huge = MadeSet(place, array={"options": {"mem": "600M"}})
    huge.says(TASKS[1], "begun\nslurmstepd: error: Detected 1 oom_kill event\n")
    huge.status(TASKS[1], "running", age_s=100, stage="tokenize")
    said.row("4242_1", "OUT_OF_MEMORY", "0:125")
    for given in ("Datasets/huge", f"Datasets/.huge.slurm/{TASKS[1]}"):
        assert main(["why", given]) == 0
        golden.text(capsys.readouterr().out)
        assert main(["logs", given]) == 0
        golden.text(capsys.readouterr().out)


def test_a_study_of_the_same_name_goes_before(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    MadeSet(place)
    MadeStudy(place / "runs" / "huge", ["a"])
    assert main(["status", "huge"]) == 0
    assert capsys.readouterr().out.startswith("huge: 1 run: ")
