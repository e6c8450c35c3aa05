"""What squeue lists of ours, among jobs of others."""

from __future__ import annotations

from pathlib import Path

import pytest

import slurm.submit.in_flight
from slurm.records.submissions import SLURM, Array, Submission
from slurm.submit.in_flight import task_states


def submission(name: str, array: Array) -> tuple[Submission, Array]:
    made = Submission(name, Path("runs/s"), SLURM, 0.0, "me", "host", "/", "", [array])
    return made, array


def test_jobs_of_plain_scripts_share_a_name_and_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that had ended was running as long as another was, of anybody."""
    rows = (
        "highwater|177|N/A|RUNNING|None", "highwater|180|4|PENDING|Priority", "ours|182|1|RUNNING|None",
        "late|183|0|PENDING|DependencyNeverSatisfied",
    )  # fmt: skip
    told = "".join(f"{row}\n" for row in rows)

    def ask(command: list[str]) -> str:
        assert command[0] == "squeue"
        return "" if any(word.startswith("--jobs") for word in command) else told

    monkeypatch.setattr(slurm.submit.in_flight, "ask", ask)
    plain = [
        submission(f"job-{job}", Array(0, "highwater", [["a"]], job_id=job))
        for job in ("175", "177", "180_3", "180_4")
    ]
    array = submission("one", Array(0, "ours", [["a"], ["b"]], job_id="182"))
    unheard = submission("two", Array(0, "late", [["c"], ["d"]]))
    assert task_states([*plain, array, unheard]) == {
        "177": "RUNNING",
        "180_4": "PENDING",
        "182_1": "RUNNING",
        "late_0": "blocked",
    }


@pytest.mark.parametrize(
    ("name", "cwd", "script"),
    [
        ("job-177", "/", "/job.sh"),
        ("job-177", "/other", "/job.sh"),
        ("job-177", "/", "/runs/s/.submissions/two/submitit/0.sh"),
        ("job-180_4", "/", "/job.sh"),
    ],
)
def test_a_plain_job_that_is_not_found_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, cwd: str, script: str
) -> None:
    """squeue takes `a,b` for two names, and its user may have renamed it: `slurm cancel` passed it over."""
    number = name.removeprefix("job-")
    job, _, task = number.partition("_")

    def ask(command: list[str]) -> str:
        is_by_number = f"--jobs={number}" in command
        return f"{job}|{task or 'N/A'}|RUNNING|{cwd}|{script}\n" if is_by_number else ""

    monkeypatch.setattr(slurm.submit.in_flight, "ask", ask)
    found = task_states([submission(name, Array(0, "a,b", [["a"]], job_id=number))])
    is_ours = cwd == "/" and script == "/job.sh"
    assert found == ({number: "RUNNING"} if is_ours else {})
