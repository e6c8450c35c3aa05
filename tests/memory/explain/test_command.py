"""`python -m memory explain`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from evidence_builder import killed, oom, ours, outcome, ramp, record, write

from memory.__main__ import main
from tests.golden_text import Golden
from tests.memory.files.test_file_kinds import write as write_kind
from training.provenance import job_ids

ROOT = Path(__file__).parents[3]
OOM_LINE = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks "
"have been OOM Killed.\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write(
        tmp_path / "runs" / "study" / "32d-1a2b3c4d",
        outcome=killed(**oom()),
        samples=ramp(200, 1020),
        records=[
            record("begin", "first_step", 0, 200, step=0),
            record("end", "first_step", 0, 200, step=0),
            record("begin", "train", 25, 900, step=1200),
        ],
        run=ours(),
        status={"state": "running", "attempt": 1, "stage": "train"},
    )


@dataclass
class Done:
    """What the command printed, and its exit status."""

    returncode: int
    stdout: str
    stderr: str


Explain = Callable[..., Done]


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Explain:
    """The command with these words, and these variables in the environment."""

    def run(*arguments: str | Path, **environment: str) -> Done:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        status = main(["explain", *map(str, arguments)])
        return Done(status, *capsys.readouterr())

    return run


def test_one_screen(run: Path, explain: Explain, golden: Golden) -> None:
    done = explain(run, COLUMNS="110")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) < 45
    assert max(map(len, lines)) <= 120
    golden.text(done.stdout)


def test_json(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {
        "verdict", "cause", "victim", "near_limit", "confidence", "evidence", "advice", "findings",
        "sentence", "run",
    } <= set(found)  # fmt: skip
    assert found["verdict"] == "oom_cgroup"
    assert found["victim"] == {"is_main": True, "pid": 100, "name": "python"}
    assert all(set(advice) == {"text", "override"} for advice in found["advice"])


def test_by_the_beginning_of_an_identity(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(run.parents[2])
    assert main(["explain", "1a2b3c4d"]) == 0
    assert "oom_cgroup" in capsys.readouterr().out


@pytest.mark.parametrize("how", [[], ["--log"]])
def test_a_foreign_log_alone(tmp_path: Path, how: list[str], explain: Explain) -> None:
    log = tmp_path / "slurm-17.out"
    log.write_text("epoch 1\n" + OOM_LINE)
    done = explain(*how, log)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("oom_cgroup")
    assert "slurm-17.out" in " ".join(done.stdout.split())
    assert "--output DIR -- COMMAND" in done.stdout


def test_a_healthy_run_takes_two_lines(tmp_path: Path, explain: Explain, golden: Golden) -> None:
    write(tmp_path / "run", outcome=outcome(), samples=ramp(100, 300))
    told = explain(tmp_path / "run", COLUMNS="110").stdout
    assert len(told.splitlines()) == 5
    golden.text(told)


def test_a_run_of_experiments_without_a_supervisor(tmp_path: Path, explain: Explain) -> None:
    status = {"state": "cancelled", "attempt": 1, "reason": "interrupted (Ctrl-C)", "stage": "train"}
    write(tmp_path / "run", status=status, run=ours(), log="2026-01-01 00:00:00 run x, attempt 1, on cpu\n")
    done = explain(tmp_path / "run")
    assert done.stdout.startswith("terminated")
    assert "interrupted (Ctrl-C)" in done.stdout


@pytest.mark.parametrize(
    "arguments", [[], ["nowhere-at-all"], ["--log", "/no/such/log"]], ids=["nothing", "no run", "no log"]
)
def test_what_cannot_be_used(
    arguments: list[str], capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    assert main(["explain", *arguments]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    if arguments != ["nowhere-at-all"]:  # tests of experiment_utils have that message
        golden.text(told)


def test_a_job_that_slurm_does_not_know(tmp_path: Path, explain: Explain, golden: Golden) -> None:
    done = explain("--job", "43", PATH=str(tmp_path))
    assert done.returncode == 2
    golden.text(done.stderr)


def sacct(folder: Path, name: str) -> str:
    """A PATH whose sacct prints a recorded answer."""
    command = folder / "sacct"
    golden = ROOT / "tests" / "golden" / "slurm" / f"{name}.txt"
    command.write_text(f'#!/bin/sh\necho "$@" >> {folder}/asked\nexec /bin/cat {golden}\n')
    command.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_job_by_its_number(tmp_path: Path, explain: Explain) -> None:
    done = explain("--job", "43", PATH=sacct(tmp_path, "22.05-swallowed"))
    assert done.stdout.startswith("oom_cgroup"), done.stderr
    assert "43.0 OUT_OF_MEMORY 0:125" in done.stdout


def test_a_runs_own_job_is_asked_for(tmp_path: Path, explain: Explain) -> None:
    path = sacct(tmp_path, "24.11-cancelled")
    run = write(tmp_path / "run", outcome=killed("SIGTERM", environment={"SLURM_JOB_ID": "80"}))
    told = explain(run, PATH=path).stdout.splitlines()[0]
    assert told.startswith("killed_from_outside")
    assert " scancel" in told
    assert "--jobs 80 " in (tmp_path / "asked").read_text()
    (tmp_path / "asked").unlink()
    assert explain(run, "--no-sacct", PATH=path).stdout.startswith("terminated")
    assert not (tmp_path / "asked").exists()


def test_the_job_of_a_run_that_nobody_watched_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, explain: Explain
) -> None:
    """Without a supervisor its number stands in run.json alone, where the run itself wrote it."""
    monkeypatch.setenv("SLURM_JOB_ID", "43")
    run = write(
        tmp_path / "run",
        run=ours() | {"attempts": [{"attempt": 1, "job_ids": job_ids()}]},
        status={"state": "running", "attempt": 1, "stage": "train", "heartbeat_s": 1.0},
    )
    done = explain(run, PATH=sacct(tmp_path, "22.05-swallowed"))
    assert done.stdout.startswith("oom_cgroup"), done.stdout
    assert "43.0 OUT_OF_MEMORY 0:125" in done.stdout


def test_it_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "rich", "psutil")
    code = f"import sys, memory.commands.explain; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


def test_an_empty_folder_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in ("", str(tmp_path)):
        assert main(["explain", given]) == 2
        assert "error: " in capsys.readouterr().err
    (tmp_path / "log.txt").write_text("x\n")
    assert main(["explain", str(tmp_path)]) == 0


@pytest.mark.parametrize("how", [[], ["--log"]])
@pytest.mark.parametrize("kind", ["gzip", "zip", "utf-16", "html", "git-lfs"])
def test_a_log_of_another_kind_is_named(
    kind: str, how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write_kind(tmp_path / "slurm-4242.out", kind)
    assert main(["explain", *how, str(log)]) == 2
    assert str(log) in capsys.readouterr().err
