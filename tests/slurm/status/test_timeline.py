"""Records of a run are sorted into the starts of its jobs by their stamps, else by their time."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from made_studies import NOW_S, MadeStudy

from memory.accounting.sacct import Job, Row
from slurm.records.stamps import Stamp, stamp_of_variables
from slurm.records.submissions import read_submission
from slurm.status.run_evidence import RunEvidence, read_evidence
from slurm.status.slurm_answers import QueueRow
from slurm.status.timeline import ACCOUNTED, HEARD, NOTED, QUEUED, Event, JobStart, fold

JOB = "4242_0"


def row(restart: int, began_ago_s: float, state: str = "RUNNING") -> Event:
    found = Row(JOB, None, state, start=str(int(NOW_S - began_ago_s)), raw="4243", restarts=restart)
    return Event(ACCOUNTED, Job(found), Stamp(JOB, restart))


def note(restart: int, job: str = JOB, attempt: int = 1, ago_s: float = 900) -> Event:
    facts = {"attempt": attempt, "started_s": NOW_S - ago_s}
    return Event(NOTED, facts, Stamp(job, restart), NOW_S - ago_s, attempt)


def heard(ago_s: float, stamp: Stamp | None = None, attempt: int = 1) -> Event:
    return Event(HEARD, {"state": "running"}, stamp, NOW_S - ago_s, attempt)


def queued(state: str, began_ago_s: float | None = None) -> Event:
    began_s = None if began_ago_s is None else NOW_S - began_ago_s
    return Event(QUEUED, QueueRow(JOB, "4243", state, start_s=began_s))


def shown(starts: tuple[JobStart, ...]) -> list[str]:
    """`4242_0/1 noted heard` for each start."""
    kinds = (ACCOUNTED, NOTED, HEARD, QUEUED)
    return [
        " ".join([f"{start.job}/{start.restart}", *(kind for kind in kinds if getattr(start, kind))])
        for start in starts
    ]


CASES: dict[str, tuple[list[Event], list[str]]] = {
    "nothing is known": ([], ["4242_0/0"]),
    "equal stamps": (
        [row(0, 900), note(0), heard(2, Stamp(JOB, 0)), queued("RUNNING", 900)],
        ["4242_0/0 accounted noted heard queued"],
    ),
    "number of the task": ([row(0, 900), heard(2, Stamp("4243", 0))], ["4242_0/0 accounted heard"]),
    "a clock that is an hour off": (
        [row(0, 900, "REQUEUED"), row(1, 100), heard(3600, Stamp(JOB, 1))],
        ["4242_0/0 accounted", "4242_0/1 accounted heard"],
    ),
    "sacct is late, and the job waits again": (
        [row(0, 900), heard(300, Stamp(JOB, 0)), queued("PENDING")],
        ["4242_0/0 accounted heard", "4242_0/1 queued"],
    ),
    "sacct is late, and the job runs again": (
        [row(0, 900), heard(300, Stamp(JOB, 0)), queued("RUNNING", 20)],
        ["4242_0/0 accounted heard", "4242_0/1 queued"],
    ),
    "sacct is off, and the job runs again": (
        [note(0), queued("RUNNING", 20)], ["4242_0/0 noted", "4242_0/1 queued"],
    ),
    "of an earlier job": (
        [note(2, "4100_7"), heard(300, Stamp("4100_7", 2)), queued("PENDING")],
        ["4100_7/2 noted heard", "4242_0/0 queued"],
    ),
    "by time, in the newest start": (
        [row(0, 900), row(1, 100), heard(50)], ["4242_0/0 accounted", "4242_0/1 accounted heard"],
    ),
    "by time, in the start before": (
        [row(0, 900), row(1, 100), heard(200)], ["4242_0/0 accounted heard", "4242_0/1 accounted"],
    ),
    "by time, within the margin": (
        [row(0, 900), row(1, 100), heard(120)], ["4242_0/0 accounted", "4242_0/1 accounted heard"],
    ),
    "by time, before the submission": ([queued("PENDING"), heard(5000)], ["/0 heard", "4242_0/0 queued"]),
    "by time, of an attempt before": (
        [note(0, attempt=1), note(1, attempt=2, ago_s=10), heard(5, attempt=1)],
        ["4242_0/0 noted heard", "4242_0/1 noted"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_records_are_sorted_into_starts(name: str) -> None:
    """In whatever order they are read."""
    events, expected = CASES[name]
    for ordered in permutations(events):
        assert shown(fold(ordered, JOB, NOW_S - 3600)) == expected


@pytest.mark.parametrize(
    ("variables", "stamp"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": "x"}, None),
        ({"SLURM_JOB_ID": "9"}, Stamp("9", 0)),
        ({"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "2"}, Stamp("9", 2)),
        (
            {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"},
            Stamp("7_3", 0),
        ),
    ],
)
def test_the_stamp_of_slurms_variables(variables: dict[str, Any], stamp: Stamp | None) -> None:
    assert stamp_of_variables(variables) == stamp


def evidence_of(study: MadeStudy) -> RunEvidence:
    return read_evidence(study.folder / "a", read_submission, NOW_S)


def test_the_stamp_of_a_run_comes_from_what_it_wrote_first(tmp_path: Path) -> None:
    """status.json; else the same process in run.json; else starts.json; else the supervisor."""
    study = MadeStudy(tmp_path / "sweep", ["a", "b"])
    folder = study.folder / "a"
    ids = {"SLURM_JOB_ID": "9"}
    study.outcome("a", environment=ids)
    study.status("a", "failed")
    assert evidence_of(study).stamp == Stamp("9", 0)
    (folder / "starts.json").write_text(
        json.dumps({"starts": [{"job_id": JOB, "restart": n, "attempt": n + 1} for n in range(2)]})
    )
    assert evidence_of(study).stamp == Stamp(JOB, 0)
    attempt = {"attempt": 1, "host": "n1", "pid": 100, "job_ids": ids | {"SLURM_RESTART_COUNT": "2"}}
    (folder / "run.json").write_text(json.dumps({"attempts": [attempt]}))
    assert evidence_of(study).stamp == Stamp("9", 2)
    (folder / "run.json").write_text(json.dumps({"attempts": [attempt | {"pid": 101}]}))
    assert evidence_of(study).stamp == Stamp(JOB, 0), "another process had the same number of attempt"
    study.status("a", "failed", job_ids=ids | {"SLURM_RESTART_COUNT": "3"})
    assert evidence_of(study).stamp == Stamp("9", 3)
