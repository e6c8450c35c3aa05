"""`python -m slurm cancel`: its answer about runs that no job of the study holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy
from slurm_command import typed

from tests.golden_text import Golden


def test_runs_that_have_ended_or_are_out_of_reach_are_named(
    place: Path, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:  # fmt: skip
    """One has failed in a job that runs others; one is a copy on a node that Slurm has lost."""
    study = MadeStudy(place / "runs" / "sweep", ["a", "b", "c"], how="pack")
    said.wait("4242", "RUNNING", "None", start=str(int(NOW_S - 300)), nodes="n1")
    study.status("a", "failed", age_s=70, reason="ValueError: no")
    study.outcome("a", environment={"SLURM_JOB_ID": "4242"})
    study.status("b", "running")
    study.lock("b", "n1", 4711, job="4240")
    monkeypatch.setattr("slurm.submit.cancel_jobs.found_under_way", lambda study, runs: [])
    assert typed("cancel", "sweep", "a", "b", "--yes") == 1, "b lives on"
    golden.text(capsys.readouterr().out)


def test_a_run_on_a_node_that_slurm_lost_is_named_although_its_job_waits_again(
    place: Path, said: FakeSlurm, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = MadeStudy(place / "runs" / "sweep", ["a"])
    said.wait("4242_0", "PENDING", "BeginTime")
    study.status("a", "running")
    study.lock("a", "n2", 4711, job="4242")
    monkeypatch.setattr("slurm.submit.cancel_jobs.found_under_way", lambda study, runs: [])
    monkeypatch.setattr("slurm.queue.slurm_client.ask", lambda command: "4242 PENDING\n")
    capsys.readouterr()
    assert typed("cancel", "sweep", "--yes") == 1
    assert "kill 4711" in capsys.readouterr().out
