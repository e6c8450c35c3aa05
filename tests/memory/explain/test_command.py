"""`python -m memory explain`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from evidence_builder import killed, oom, ours, outcome, ramp, record, write

from memory.__main__ import main
from tests.golden_text import Golden
from tests.memory.files.test_file_kinds import write as write_kind
from training.attempt.run_files import job_ids

ROOT = Path(__file__).parents[3]
LINE = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been ...\n"
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(
        tmp_path / "runs" / "study" / "32d-1a2b3c4d",
        outcome=killed(**oom()),
        samples=ramp(200, 1020),
        records=[record("end", "first_step", 0, 200, step=0), record("begin", "train", 25, 900, step=1200)],
        run=ours(),
        status={"state": "running", "attempt": 1, "stage": "train"},
    )


def test_death_fits_a_screen(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, golden: Golden
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", str(run)]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) <= 25
    assert max(len(line) for line in shown.splitlines() if not line.startswith("next:")) <= 80
    golden.text(shown)


def test_healthy_run_takes_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, golden: Golden
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write(tmp_path / "run", outcome=outcome(), samples=ramp(100, 300))
    assert main(["explain", str(tmp_path / "run")]) == 0
    golden.text(capsys.readouterr().out)


def test_json_by_the_beginning_of_an_identity(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(run.parents[2])
    assert main(["explain", "1a2b3c4d", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    keys = {"cause", "near_limit", "confidence", "evidence", "advice", "findings", "sentence", "run"}
    assert keys <= set(found)
    assert found["verdict"] == "oom_cgroup"
    assert found["victim"] == {"is_main": True, "pid": 100, "name": "python"}
    assert all(set(advice) == {"text", "override"} for advice in found["advice"])


@pytest.mark.parametrize("how", [[], ["--log"]])
def test_foreign_log_alone(tmp_path: Path, how: list[str], capsys: Capture) -> None:
    log = tmp_path / "slurm-17.out"
    log.write_text("epoch 1\n" + LINE)
    assert main(["explain", *how, str(log)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("oom_cgroup")
    assert "slurm-17.out" in " ".join(shown.split())


@pytest.mark.parametrize(
    "arguments", [[], ["nowhere-at-all"], ["--log", "/no/such/log"]], ids=["nothing", "no run", "no log"]
)
def test_refused_arguments(arguments: list[str], capsys: Capture, golden: Golden) -> None:
    assert main(["explain", *arguments]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    if arguments != ["nowhere-at-all"]:  # tests of experiment_utils have that message
        golden.text(shown)


def test_job_that_slurm_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, golden: Golden
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["explain", "--job", "43"]) == 2
    golden.text(capsys.readouterr().err)


def recorded_sacct(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a sacct into PATH that prints a recorded answer."""
    command = folder / "sacct"
    recorded = ROOT / "tests" / "golden" / "slurm" / f"{name}.txt"
    command.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\nexec /bin/cat {recorded}\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_job_of_a_run_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    recorded_sacct(tmp_path, "24.11-cancelled", monkeypatch)
    run = write(tmp_path / "run", outcome=killed("SIGTERM", environment={"SLURM_JOB_ID": "80"}))
    assert main(["explain", str(run)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("killed_from_outside")
    assert " scancel" in first
    assert "--jobs 80 " in (tmp_path / "asked").read_text()
    (tmp_path / "asked").unlink()
    assert main(["explain", str(run), "--no-sacct"]) == 0
    assert capsys.readouterr().out.startswith("terminated")
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("by_number", [True, False])
def test_job_without_a_supervisor(
    tmp_path: Path, by_number: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    recorded_sacct(tmp_path, "22.05-swallowed", monkeypatch)
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    status = {"state": "running", "attempt": 1, "stage": "train", "heartbeat_s": 1.0}
    run = write(tmp_path / "run", run=ours() | {"attempts": [{"job_ids": job_ids()}]}, status=status)
    assert main(["explain", *(["--job", "43"] if by_number else [str(run)])]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("oom_cgroup")
    assert "43.0 OUT_OF_MEMORY 0:125" in shown


def test_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "rich", "psutil")
    code = f"import sys, memory.commands.explain; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


def test_empty_folder_is_no_run(tmp_path: Path) -> None:
    assert main(["explain", ""]) == main(["explain", str(tmp_path)]) == 2
    (tmp_path / "log.txt").write_text("x\n")
    assert main(["explain", str(tmp_path)]) == 0


@pytest.mark.parametrize("how", [[], ["--log"]])
@pytest.mark.parametrize("kind", ["gzip", "zip", "utf-16", "html", "git-lfs"])
def test_log_of_another_kind_is_named(kind: str, how: list[str], tmp_path: Path, capsys: Capture) -> None:
    log = write_kind(tmp_path / "slurm-4242.out", kind)
    assert main(["explain", *how, str(log)]) == 2
    assert str(log) in capsys.readouterr().err
