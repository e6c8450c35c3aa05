"""squeue and sacct as versions from 20.11 to 25.11 print them, and reasons in words."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.accounting.sacct import Answer, parse_sacct, parse_scontrol
from slurm.records.submissions import Array, Place, Submission
from slurm.status.run_evidence import RunEvidence
from slurm.status.run_history import RunHistory
from slurm.status.slurm_answers import FORMAT, ask_slurm, moment, parse_squeue, tasks_of
from slurm.status.state_table import decide
from slurm.status.timeline import events_of, fold
from slurm.status.waiting_reasons import REASONS, reason_of
from tests.golden_text import Golden

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"


def recording(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()


def test_squeue_of_a_recorded_cluster() -> None:
    found = parse_squeue(recording("22.05-squeue"))
    running, waiting = found["50_1"], found["50_4"]
    assert (running.state, running.nodes, running.raw, running.timelimit_s) == ("RUNNING", "n1", "52", 3600)
    assert found["52"] is running
    assert (waiting.state, waiting.reason, waiting.start_s) == ("PENDING", "JobArrayTaskLimit", None)
    assert found["61"].reason.split(", ") == ["ReqNodeNotAvail", "UnavailableNodes:n[1-3]"]
    assert found["62"].name.split() == ["a|name", "with", "bars"]
    assert found["63"].start_s == 1772449200


def test_ranges_of_tasks() -> None:
    found = parse_squeue(recording("20.11-squeue-ranges"))
    assert [job for job in found if job.startswith("50_")] == [
        "50_3",
        "50_4",
        "50_5",
        "50_9",
        "50_11",
        "50_13",
    ]
    assert list(tasks_of("50_[0-2%2]")) == ["50_0", "50_1", "50_2"]
    assert list(tasks_of("50_[3-5,9...]")) == ["50_3", "50_4", "50_5"]
    assert list(tasks_of("50_7")) == ["50_7"]


@given(st.text())
def test_no_text_is_too_strange(text: str) -> None:
    parse_squeue(text)
    parse_squeue(f"1|1|{text}")
    tasks_of(f"50_[{text}]")
    moment(text)
    assert reason_of(text).words


def test_moments() -> None:
    assert moment("1772445600") == 1772445600
    assert moment("2026-03-02T10:00:00") == datetime(2026, 3, 2, 10).timestamp()
    assert [moment(text) for text in ("N/A", "Unknown", "", "0")] == [None] * 4


def test_one_call_each() -> None:
    asked: list[list[str]] = []

    def ask(command: list[str], timeout_s: float) -> Answer:
        asked.append(command)
        return Answer(0, recording("23.11-requeued") if command[0] == "sacct" else recording("22.05-squeue"))

    found = ask_slurm(["60", "50_1", "50_2"], users=["me"], ask=ask)
    assert sorted(command[0] for command in asked) == ["sacct", "squeue"]
    sacct, squeue = sorted(asked)
    assert sacct[sacct.index("--jobs") + 1] == "60,50"
    assert f"--format={FORMAT}" in squeue
    assert "--user=me" in squeue
    assert [start.row.state for start in found.starts("60")] == ["PREEMPTED", "NODE_FAIL", "COMPLETED"]
    assert found.names["sweep"] == "50"
    assert found.notes == ()


def test_a_pending_range_of_sacct_is_of_each_task() -> None:
    found = ask_slurm(
        ["50"],
        ask=lambda command, _: Answer(0, recording("23.02-array")) if command[0] == "sacct" else Answer(127),
    )
    assert found.queue is None
    assert found.starts("50_7")[-1].row.state == "PENDING"
    assert found.starts("50_2")[-1].row.was_out_of_memory
    assert found.starts("52") == found.starts("50_2")
    assert "squeue" in found.notes[0]


def test_rows_of_tasks_that_are_not_asked_for_are_left_out() -> None:
    """The last task of an array to begin has the array's own number, by which the array is known."""
    rows = ["JobID|JobIDRaw|State", *(f"7_{task}|{70 + task}|COMPLETED" for task in range(4))]
    rows += ["7_4|7|COMPLETED", "7_4.0|7.0|COMPLETED", "7_[5-6%1]|7|PENDING", "8|8|FAILED", "8.0|8.0|FAILED"]
    text = "\n".join(rows)
    found = ask_slurm(
        ["7_2", "7_6", "8"], ask=lambda command, _: Answer(0, text if "sacct" in command else "")
    )
    assert sorted(found.accounting or {}) == ["7", "72", "7_2", "7_4", "7_5", "7_6", "8"]
    assert [len(found.starts(job)[0].steps) for job in ("7_2", "7", "8")] == [0, 1, 1]


@pytest.mark.parametrize("has_accounting", [True, False])
def test_a_slurmctld_that_is_away_is_asked_once(has_accounting: bool) -> None:
    """Each client looks for it for 9 to 18 seconds, one after the other."""
    asked = []

    def ask(command: list[str], timeout_s: float) -> Answer:
        asked.append(command[0])
        if command[0] == "sacct":
            return (
                Answer(0, recording("23.11-requeued"))
                if has_accounting
                else Answer(1, "", "sacct: error: no")
            )
        return Answer(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n")

    found = ask_slurm(["60"], ask=ask)
    assert found.gathering() == {}
    assert (found.queue, found.accounting is not None) == (None, has_accounting)
    assert "scontrol" not in asked


@pytest.mark.parametrize(
    "error", ["Slurm accounting storage is disabled", "error: Problem talking to the database"]
)
@pytest.mark.parametrize("code", [0, 1])
def test_accounting_that_does_not_answer_is_no_answer(error: str, code: int) -> None:
    if code == 0 and "error" not in error:
        return
    found = ask_slurm(
        ["60"],
        ask=lambda command, _: Answer(code, "", f"sacct: {error}\n") if command[0] == "sacct" else Answer(0),
    )
    assert found.accounting is None
    assert error in found.notes[0]


WORDS = [
    "(Priority)",
    "None",
    "QOSMaxCpuPerUserLimit",
    "QOSMaxGRESPerUser",
    "QOSMaxWallDurationPerJobLimit",
    "QOSGrpNodeLimit",
    "QOSMinMemory",
    "QOSMaxJobsPerUserLimit",
    "AssocGrpCPURunMinutesLimit",
    "AssocMaxMemPerNode",
    "MaxGRESPerAccount",
    "job_requeued_in_held_state",
    "launch_failed_requeued_held",
    "ReqNodeNotAvail, UnavailableNodes:n[1-3]",
    "SomethingNew",
]


def test_reasons_in_words(golden: Golden) -> None:
    golden.text("\n".join(f"{word}: {reason_of(word).words}" for word in WORDS))


def test_what_can_never_start_says_what_to_change() -> None:
    assert all(reason.change for reason in REASONS.values() if reason.never)


@pytest.mark.parametrize(
    ("file", "job", "state", "silent"),
    [
        ("20.11-reqmem", "45", "failed", "never_started"),
        ("21.08-preempted", "46", "preempted", "preempted"),
        ("22.05-srun-oom", "42", "oom", "oom"),
        ("22.05-swallowed", "43", "oom", "oom"),
        ("22.05-timeout", "44", "timeout", "timeout"),
        ("23.02-array", "50_1", "failed", "never_started"),
        ("23.02-array", "50_2", "oom", "oom"),
        ("23.02-array", "50_7", "queued", "queued"),
        ("24.05-het", "70+1", "oom", "oom"),
        ("24.11-cancelled", "80", "cancelled", "cancelled"),
        ("25.05-node-fail", "95_3", "node_failed", "node_failed"),
        ("25.05-node-fail", "95_4", "queued", "queued"),
        ("25.11-oom", "90", "oom", "oom"),
        ("25.11-squeue", "95_3", "node_failed", "node_failed"),
        ("25.11-squeue", "95_4", "queued", "queued"),
        ("25.11-squeue", "95_5", "queued", "queued"),
        ("25.11-squeue", "97", "queued", "queued"),
        ("20.11-squeue-ranges", "50_11", "queued", "queued"),
        ("20.11-scontrol-held", "80520_114", "queued", "queued"),
        ("scontrol-job", "43", "node_failed", "node_failed"),
    ],
)
def test_states_of_every_version(file: str, job: str, state: str, silent: str) -> None:
    """Of a run that said `running` long ago, and of one that said nothing."""
    text, is_queue = recording(file), "squeue" in file
    queue = parse_squeue(text) if is_queue else {}
    jobs = [] if is_queue else parse_scontrol(text) if "scontrol" in file else parse_sacct(text)
    starts = tuple(found for found in jobs if job in tasks_of(found.row.job))
    assert job in queue or starts
    array = Array(0, "train", [["a"]], job_id=job)
    made = Submission("1", Path("s"), "slurm", 0.0, "me", "here", "/", "x", [array])
    spoke = {"state": "running", "attempt": 1, "heartbeat_s": 1772446700.0}
    for status, wanted in ((spoke, state), ({}, silent)):
        silent_s = 9000.0 if status else None
        known = RunEvidence(
            Path("s/a"), status, silent_s=silent_s, submission=made, array=array, place=Place("1", 0, 0)
        )
        found = fold(events_of(known, job, queue.get(job), starts), job, made.created_s)
        history = RunHistory(known, 1772999999.0, found, is_queue, not is_queue)
        assert decide(history).state == wanted, status


def test_the_readme_names_each_file_and_its_source() -> None:
    readme = (GOLDEN / "README.md").read_text()
    rows = [line for line in readme.splitlines() if line.startswith("| `")]
    assert all(len([cell for cell in row.split("|") if cell.strip()]) == 3 for row in rows)
    assert [path.name for path in GOLDEN.glob("*.txt") if f"`{path.name}`" not in readme] == []
