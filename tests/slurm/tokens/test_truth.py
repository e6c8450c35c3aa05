"""What `status`, `why`, `logs`, `cancel` and `resubmit` make of the jobs of a token set."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy

from experiment_utils.lock_file import Holder
from slurm.__main__ import main
from slurm.tokens.truth import look_at_tokens, token_truths
from tests.golden_text import Golden

TASKS = ["00000-of-00003", "00001-of-00003", "00002-of-00003"]


class MadeSet(MadeStudy):
    """`Datasets/huge`, whose three tasks and merge are tasks of job 4242."""

    def __init__(self, place: Path, **more: Any) -> None:
        super().__init__(place / "Datasets" / ".huge.slurm", [*TASKS, "merge"], **more)
        self.tokens = place / "Datasets" / "huge"
        for name in (*TASKS, "merge"):
            (self.folder / name / "config.yaml").unlink()

    def done(self, name: str) -> None:
        folder = self.tokens.with_name(".huge.tasks") / name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")

    def works(self, name: str, age_s: float = 2.0, job: str | None = "4242") -> None:
        """Its process holds the lock, which the process beside it touched so long ago."""
        path = self.tokens.with_name(".huge.tasks") / f".{name}.lock"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(vars(Holder("n1", 100, 1, "2027-01-15 08:00:00", job))))
        os.utime(path, (NOW_S - age_s, NOW_S - age_s))

    def says(self, name: str, text: str) -> None:
        (self.folder / name / "log.txt").write_text(text)


@pytest.fixture
def huge(tmp_path: Path) -> MadeSet:
    return MadeSet(tmp_path)


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm()


def states(huge: MadeSet, slurm: FakeSlurm) -> list[tuple[str, str | None]]:
    return [(one.state, one.reason) for one in token_truths(huge.folder, ask=slurm.ask, now_s=NOW_S)]


def pinned(huge: MadeSet, slurm: FakeSlurm, golden: Golden) -> list[str]:
    """States of the tasks and the merge, their reasons pinned."""
    found = states(huge, slurm)
    golden.text("\n".join(f"{state}: {reason}" for state, reason in found))
    return [state for state, _ in found]


def test_starts_are_counted_over_all_jobs(huge: MadeSet, slurm: FakeSlurm) -> None:
    """Of a task that is done Slurm is asked no more when the others are submitted again."""
    begins = "2027-01-15 07:00:00 job {}, start {}: 00000-of-00003 of huge\n"
    huge.done(TASKS[0])
    huge.says(TASKS[0], begins.format("17_0", 1))
    huge.says(TASKS[1], begins.format("17_1", 1) + "Killed\n" + begins.format("4242_1", 1))
    huge.works(TASKS[1])
    slurm.wait("4242_1", "RUNNING", "None", start=str(int(NOW_S - 100)), nodes="n1")
    slurm.wait("4242_2", reason="Resources")
    slurm.wait("4242_3", reason="Dependency")
    found = token_truths(huge.folder, ask=slurm.ask, now_s=NOW_S)
    assert [truth.attempt for truth in found] == [1, 2, None, None]


def test_done_running_waiting_and_the_merge_behind_them(
    huge: MadeSet, slurm: FakeSlurm, golden: Golden
) -> None:
    huge.done(TASKS[0])
    huge.works(TASKS[1])
    slurm.wait("4242_1", "RUNNING", "None", start=str(int(NOW_S - 100)), nodes="n1")
    slurm.wait("4242_2", reason="Resources")
    slurm.wait("4242_3", reason="Dependency")
    assert pinned(huge, slurm, golden) == ["done", "running", "queued", "queued"]
    assert sorted(slurm.calls) == ["sacct", "squeue"]
    partial = huge.tokens.with_name(".huge.tasks") / f".{TASKS[1]}.partial"
    partial.mkdir()
    (partial / "shard_00000.npy").write_bytes(bytes(3 << 20))
    assert pinned(huge, slurm, golden)[1] == "running"
    huge.works(TASKS[1], age_s=1200)
    slurm.queue = []
    slurm.wait("4242_1", "RUNNING", "None", start=str(int(NOW_S - 5000)), nodes="n1")
    assert pinned(huge, slurm, golden)[1] == "stalled"


def test_each_way_to_die(huge: MadeSet, slurm: FakeSlurm, golden: Golden) -> None:
    huge.says(TASKS[0], "2027-01-15 08:00:00 job 4242_0, start 1\nerror: crawl.txt: no such file\n")
    slurm.row("4242_0", "FAILED", "2:0")
    huge.works(TASKS[1], age_s=100)
    slurm.row("4242_1", "FAILED", "1:0")
    slurm.row("4242_1.0", "OUT_OF_MEMORY", "0:125")
    slurm.row("4242_2", "TIMEOUT")
    huge.says(TASKS[2], "2027-01-15 08:00:00 job 4242_2, start 1\n")
    slurm.row("4242_3", "CANCELLED")
    assert pinned(huge, slurm, golden) == ["failed", "oom", "timeout", "cancelled"]


def test_a_pretokenizer_that_was_killed(huge: MadeSet, slurm: FakeSlurm) -> None:
    """Its job saw that; srun's word comes after it. And a task has no status.json."""
    began = "2027-01-15 08:00:00 job 4242_0, start 1\n"
    ended = "the pretokenizer was ended by SIGKILL"
    kept = f"2027-01-15 08:09:00 {ended}. What it had done is kept: type the same command again\n"
    huge.says(TASKS[0], f"{began}{kept}srun: error: n1: task 0: Exited with exit code 137\n")
    slurm.row("4242_0", "FAILED", "137:0")
    slurm.row("4242_0.0", "FAILED", "137:0")
    found = look_at_tokens(huge.folder, ask=slurm.ask, now_s=NOW_S)[0].truth
    assert (found.state, found.reason, found.source) == ("failed", ended, "log.txt")
    huge.says(TASKS[0], f"{began}{kept}{began.replace('start 1', 'start 2')}error: none\n")
    assert states(huge, slurm)[0] == ("failed", "error: none"), "of the last start"


def test_a_job_that_ended_before_its_task_said_a_word(
    huge: MadeSet, slurm: FakeSlurm, golden: Golden
) -> None:
    slurm.row("4242_0", "NODE_FAIL")
    slurm.row("4242_1", "FAILED")
    assert pinned(huge, slurm, golden)[:2] == ["node_failed", "never_started"]


def test_a_set_that_is_made(huge: MadeSet, slurm: FakeSlurm) -> None:
    huge.tokens.mkdir()
    manifest = huge.tokens / "manifest.json"
    manifest.write_text("{}")
    os.utime(manifest, (NOW_S - 7200, NOW_S - 7200))
    assert states(huge, slurm)[0][0] != "done", "of an older text: it was there before this was submitted"
    os.utime(manifest, (NOW_S - 60, NOW_S - 60))
    assert [state for state, _ in states(huge, slurm)] == ["done"] * 4


def test_what_the_queue_had_no_room_for(tmp_path: Path, slurm: FakeSlurm, golden: Golden) -> None:
    study = MadeStudy(tmp_path / ".huge.slurm", [TASKS[0]])
    slurm.wait("4242", name="sweep")
    made_s = json.loads(next(study.folder.rglob("submission.json")).read_text())["created_s"]
    found = token_truths(study.folder, ask=slurm.ask, now_s=made_s + 1)
    assert [one.state for one in found] == ["queued", "never_started", "never_started", "never_started"]
    golden.text(str(found[1].reason))


@pytest.mark.parametrize("given", ["Datasets/huge", "huge", "Datasets/.huge.slurm"])
def test_status_by_the_set_s_path_or_name(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], given: str, golden: Golden
) -> None:
    huge = MadeSet(place)
    huge.done(TASKS[0])
    said.wait("4242_1", reason="Resources")
    said.wait("4242_2", reason="Resources")
    said.wait("4242_3", reason="Dependency")
    assert main(["status", given]) == 0
    if given == "huge":
        golden.text(capsys.readouterr().out)
    capsys.readouterr()
    assert main(["status", given, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["study"] == "Datasets/huge"
    assert "token" in plain["kind"]
    assert [one["state"] for one in plain["runs"]] == ["done", "queued", "queued", "queued"]


def test_all_studies_and_all_sets(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    huge = MadeSet(place)
    huge.done(TASKS[0])
    for task in (1, 2, 3):
        said.wait(f"4242_{task}")
    assert main(["status"]) == 0
    golden.text(capsys.readouterr().out)
    MadeStudy(place / "runs" / "sweep", ["a"]).status("a", "done")
    assert main(["status"]) == 0
    golden.text(capsys.readouterr().out)
    assert main(["status", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert [one["counts"] for one in plain["token_sets"]] == [{"done": 1, "queued": 3}]


def test_why_and_logs_of_the_task_that_died(
    place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    huge = MadeSet(place, array={"options": {"mem": "600M"}})
    huge.says(TASKS[1], "begun\nslurmstepd: error: Detected 1 oom_kill event\n")
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
