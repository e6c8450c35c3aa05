"""Rows of Slurm's accounting: which of them is of this run, and what they say."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import MB, START_S, explained, killed, oom, ours, outcome, ramp, typed

from memory.accounting.sacct import SlurmFacts, parse_sacct, parse_scontrol

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
COLUMNS = "JobID|State|ExitCode|MaxRSS|ReqMem|Elapsed|Timelimit|Start|End|NodeList|Reason"
TIMES = "01:00:20|02:00:00|2026-11-22T08:00:00|2026-11-22T09:00:20|n7"
OUTSIDE = "killed_from_outside"
POLLS = {"gather": "jobacct_gather/linux", "gather_params": "OverMemoryKill"}


def accounted(*rows: str, job: str = "42", columns: str = COLUMNS, **more: str) -> SlurmFacts:
    """Facts of a job out of rows of sacct."""
    return SlurmFacts(job, tuple(parse_sacct("\n".join((columns, *rows)))), "sacct", **more)


def recorded(name: str, job: str, **more: str) -> SlurmFacts:
    """sacct's output of a real cluster."""
    return SlurmFacts(job, tuple(parse_sacct((GOLDEN / f"{name}.txt").read_text())), "sacct", **more)


def at(begin_s: float, end_s: float) -> str:
    """Columns from Elapsed to NodeList, of a row that began and ended that long after a run's begin."""
    begin, end = (datetime.fromtimestamp(START_S + s).isoformat(timespec="seconds") for s in (begin_s, end_s))
    return f"00:01:00|00:05:00|{begin}|{end}|n7"


# a job alone


@pytest.mark.parametrize(
    ("name", "job", "verdict", "cause"),
    [
        ("22.05-srun-oom", "42", "oom_cgroup", "unknown"),
        ("22.05-swallowed", "43", "oom_cgroup", "unknown"),
        ("22.05-timeout", "44", "timeout", "none"),
        ("20.11-reqmem", "45", "healthy", "none"),
        ("23.02-array", "50_2", "oom_cgroup", "unknown"),
        ("23.02-array", "50_1", "healthy", "none"),
        ("23.11-requeued", "60", "healthy", "none"),
        ("24.05-het", "70+0", "failed", "none"),
        ("24.05-het", "70+1", "oom_cgroup", "unknown"),
        ("24.11-cancelled", "80", OUTSIDE, "scancel"),
        ("25.11-oom", "90", "oom_cgroup", "unknown"),
    ],
)
def test_state_of_job(tmp_path: Path, name: str, job: str, verdict: str, cause: str) -> None:
    found = explained(tmp_path, slurm=recorded(name, job))
    assert (found.verdict, found.cause) == (verdict, cause)
    is_requeued = any("sacct --duplicates" in line for each in found.findings for line in each.evidence)
    assert is_requeued == ("requeued" in name)


def test_node_failure_by_scontrol(tmp_path: Path) -> None:
    jobs = parse_scontrol((GOLDEN / "scontrol-job.txt").read_text())
    found = explained(tmp_path, slurm=SlurmFacts("43", tuple(jobs), "scontrol show job"))
    assert (found.verdict, found.cause) == (OUTSIDE, "node_failure")


@pytest.mark.parametrize("sign", ["_", "+"])
def test_array_is_explained_by_task_that_ended_worst(tmp_path: Path, sign: str) -> None:
    rows = [f"42{sign}1|COMPLETED|0:0||4G|{TIMES}|", f"42{sign}2|OUT_OF_MEMORY|0:125||4G|{TIMES}|",
            f"42{sign}3|FAILED|1:0||4G|{TIMES}|"]  # fmt: skip
    found = explained(tmp_path, slurm=accounted(*rows))
    assert found.verdict == "oom_cgroup"
    assert "slurm_notes" in [finding.rule for finding in found.findings]
    assert explained(tmp_path, slurm=accounted(*rows, job=f"42{sign}3")).verdict == "failed"
    step = f"42{sign}2.0|OUT_OF_MEMORY|0:125||4G|{TIMES}|"
    swallowed = [rows[0], f"42{sign}2|COMPLETED|0:0||4G|{TIMES}|", step]
    assert explained(tmp_path, slurm=accounted(*swallowed)).verdict == "oom_cgroup"


def test_last_start_of_requeued_task_counts(tmp_path: Path) -> None:
    late = TIMES.replace("T08", "T10").replace("T09", "T11")
    rows = [f"42_1|NODE_FAIL|0:0||4G|{TIMES}|", f"42_1|COMPLETED|0:0||4G|{late}|",
            f"42_2|COMPLETED|0:0||4G|{late}|"]  # fmt: skip
    assert explained(tmp_path, slurm=accounted(*rows)).verdict == "healthy"


@pytest.mark.parametrize(
    ("row", "is_running"),
    [("42|RUNNING|0:0||4G|00:10:00|01:00:00|2026-11-22T08:00:00|Unknown|n7|", True),
     ("42|PENDING|0:0||4G|00:00:00|01:00:00|Unknown|Unknown|None assigned|Resources", False)],
)  # fmt: skip
def test_job_that_is_not_over(tmp_path: Path, row: str, is_running: bool) -> None:
    found = explained(tmp_path, slurm=accounted(row))
    assert (found.verdict, found.is_running, found.is_waiting) == ("healthy", is_running, not is_running)


@pytest.mark.parametrize(("code", "confidence"), [("0:15", "certain"), ("143:0", "likely")])
def test_job_that_was_asked_to_stop(tmp_path: Path, code: str, confidence: str) -> None:
    """As `sbatch --signal=B:TERM@60` asks, before the time is up."""
    rows = f"42|FAILED|{code}||4G|{TIMES}|", f"42.batch|CANCELLED|0:15|100000K||{TIMES}|"
    found = explained(tmp_path, slurm=accounted(*rows))
    assert (found.verdict, found.confidence) == ("terminated", confidence)
    assert explained(tmp_path, slurm=accounted(f"42|FAILED|3:0||4G|{TIMES}|")).verdict == "failed"


def test_sigkill_that_slurm_did_not_count(tmp_path: Path) -> None:
    job = f"42|FAILED|137:0||4G|{TIMES}|"
    found = explained(tmp_path, slurm=accounted(job, f"42.batch|FAILED|137:0|4190000K||{TIMES}|"))
    assert (found.verdict, found.confidence, typed(found)[-1]) == ("oom_cgroup", "unknown", "--mem=5G")
    found = explained(tmp_path, slurm=accounted(job, f"42.batch|FAILED|137:0|100000K||{TIMES}|"))
    assert found.verdict == "unknown"
    assert "sacct -j 42 --format=JobID,State%40,ExitCode,MaxRSS,ReqMem" in typed(found)


@pytest.mark.parametrize(
    ("row", "override"),
    [("NODE_FAIL|1:0", "--exclude=n7"), ("TIMEOUT|0:0", "--time=04:00:00"),
     ("CANCELLED by 1000|0:0", "getent passwd 1000")],
)  # fmt: skip
def test_override_is_filled_in_from_row(tmp_path: Path, row: str, override: str) -> None:
    assert typed(explained(tmp_path, slurm=accounted(f"42|{row}||4G|{TIMES}|"))) == [override]


@pytest.mark.parametrize(("state", "is_running"), [("RUNNING", True), ("FAILED", False)])
def test_run_whose_job_is_over_does_not_run(tmp_path: Path, state: str, is_running: bool) -> None:
    """It was heard of seconds ago, on another node, where Slurm then killed it with its supervisor."""
    status = {"state": "running", "attempt": 1, "host": "elsewhere", "pid": 7, "heartbeat_s": time.time()}
    found = explained(tmp_path, slurm=accounted(f"42|{state}|0:9||4G|{TIMES}|"), status=status, run=ours())
    assert found.is_running == is_running


# which row is this run's


SCRIPT = {"SLURM_JOB_ID": "42"}
"""A batch script has no SLURM_STEP_ID in Slurm 22.05: only its cgroup says which step it is."""
IN_SCRIPT = {"environment": SCRIPT, "cgroup_path": "/slurm/uid_0/job_42/step_batch/task_0"}
IN_SHELL = {"environment": SCRIPT | {"SLURM_STEP_ID": "4294967290"}}
IN_STEP = {
    "environment": SCRIPT | {"SLURM_STEP_ID": "3", "SLURM_NTASKS": "1"},
    "cgroup_path": "/slurm/uid_0/job_42/step_3/task_0",
}
ASKED = {"exit_code": None, "signal": "SIGTERM", "signals_passed_on": [{"signal": "SIGTERM"}]}
KILLED = {"exit_code": None, "signal": "SIGKILL"}


def of_step(number: str, **ended: Any) -> dict[str, Any]:
    return outcome(environment=SCRIPT | {"SLURM_STEP_ID": number}, **ended)


@pytest.mark.parametrize(
    ("step", "ended", "verdict"),
    [("0", {"exit_code": 0}, "healthy"), ("1", {"exit_code": 1}, "failed"),
     ("3", {"exit_code": None, "signal": "SIGTERM"}, "timeout")],
)  # fmt: skip
def test_end_of_other_steps_is_not_end_of_this_one(
    tmp_path: Path, step: str, ended: dict[str, Any], verdict: str
) -> None:
    """Slurm 22.05 counts a step as CANCELLED that its job's end ended."""
    rows = [f"42|TIMEOUT|0:0||4G|{TIMES}|", f"42.batch|CANCELLED|0:15|||{TIMES}|",
            f"42.0|COMPLETED|0:0|||{TIMES}|", f"42.1|FAILED|1:0|||{TIMES}|",
            f"42.2|OUT_OF_MEMORY|0:125|||{TIMES}|", f"42.3|CANCELLED|0:15|||{TIMES}|"]  # fmt: skip
    found = explained(tmp_path, slurm=accounted(*rows), outcome=of_step(step, **ended), samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize(
    ("ended", "state", "verdict"),
    [
        (IN_SCRIPT, "TIMEOUT", "healthy"),
        (IN_SCRIPT | {"exit_code": 1}, "TIMEOUT", "failed"),
        (IN_SCRIPT | {"exit_code": 1}, "CANCELLED by 0", "failed"),
        (IN_SCRIPT | ASKED, "TIMEOUT", "timeout"),
        (IN_SCRIPT, "OUT_OF_MEMORY", "healthy"),
        (IN_SHELL, "OUT_OF_MEMORY", "healthy"),
        (IN_STEP, "OUT_OF_MEMORY", "healthy"),
        (IN_STEP | {"exit_code": 1}, "OUT_OF_MEMORY", "failed"),
    ],
)
def test_other_commands_of_script(tmp_path: Path, ended: dict[str, Any], state: str, verdict: str) -> None:
    """Steps before this one and a command after it were killed for memory, before the job was ended."""
    rows = [f"42|{state}|0:0||150M|{at(-30, 100)}|", f"42.batch|OUT_OF_MEMORY|0:125|||{at(-30, 101)}|",
            f"42.interactive|OUT_OF_MEMORY|0:125|||{at(-30, 101)}|",
            f"42.0|COMPLETED|0:0|||{at(-30, -20)}|", f"42.1|OUT_OF_MEMORY|0:125|||{at(-20, 0)}|",
            f"42.3|COMPLETED|0:0|||{at(0, 60)}|", f"42.4|OUT_OF_MEMORY|0:125|||{at(70, 80)}|"]  # fmt: skip
    found = explained(tmp_path, slurm=accounted(*rows), outcome=outcome(**ended), samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "COMPLETED"])
@pytest.mark.parametrize(
    ("step", "verdict"), [("0", "healthy"), ("1", "oom_cgroup"), ("2", "failed"), ("3", OUTSIDE)]
)
def test_step_that_was_asked_for(tmp_path: Path, step: str, verdict: str, state: str) -> None:
    """`--job 42.3`."""
    rows = [f"42|{state}|0:0||150M|{TIMES}|", f"42.batch|{state}|0:0|||{TIMES}|",
            f"42.0|COMPLETED|0:0|||{TIMES}|", f"42.1|OUT_OF_MEMORY|0:125|||{TIMES}|",
            f"42.2|FAILED|1:0|||{TIMES}|", f"42.3|CANCELLED by 0|0:9|||{TIMES}|"]  # fmt: skip
    assert explained(tmp_path, slurm=replace(accounted(*rows), step=step)).verdict == verdict


KILLED_STEP = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.{}.\n"
ENDED_STEP = (
    "slurmstepd-n1: error: *** STEP 42.{} ON n1 CANCELLED AT 2026-11-24T17:47:54 DUE TO TIME LIMIT ***\n"
)


@pytest.mark.parametrize(
    ("step", "verdict"),
    [((20, 40), "oom_cgroup"), ((0, 60), "oom_cgroup"), ((60, 63), "healthy"), ((-5, 0), "healthy")],
)
def test_killed_step_that_script_started(tmp_path: Path, step: tuple[float, float], verdict: str) -> None:
    rows = [f"42|COMPLETED|0:0||150M|{at(-30, 100)}|", f"42.batch|COMPLETED|0:0|||{at(-30, 100)}|",
            f"42.1|OUT_OF_MEMORY|0:125|||{at(*step)}|"]  # fmt: skip
    found = explained(tmp_path, slurm=accounted(*rows), outcome=outcome(**IN_SCRIPT), samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


# a poll of RSS that kills


STEPS = "JobID|State|ExitCode|MaxRSS|ReqMem|AllocTRES"
POLLED = (
    "42|FAILED|9:0||600M|cpu=1,mem=600M,node=1",
    "42.batch|FAILED|9:0|22748K||cpu=1,mem=600M,node=1",
    "42.0|CANCELLED by 0|0:9|172616K||cpu=1,mem=150M,node=1",
)


KILLED_STEPS = (
    "42|FAILED|1:0||600M|cpu=1,mem=600M,node=1",
    "42.batch|FAILED|1:0|||cpu=1,mem=600M,node=1",
    "42.0|OUT_OF_MEMORY|0:125|||cpu=1,mem=150M,node=1",
)


def test_memory_is_advised_for_step_with_limit_of_its_own(tmp_path: Path) -> None:
    """Of its srun, and no more than that: not of the script in its job of 600 MB."""
    slurm = accounted(*KILLED_STEPS, columns=STEPS)
    own = {"limit_bytes": 150 * MB, "limit_at": "/slurm/uid_0/job_42/step_0"}
    step = killed(**oom() | {"peak_unreclaimable_bytes": 150 * MB} | own)
    assert typed(explained(tmp_path / "step", slurm=slurm, outcome=step))[-1] == "--mem=192M"
    assert typed(explained(tmp_path / "job", slurm=slurm))[-1] == "--mem=192M"
    script = of_step("4294967291", exit_code=1, limit_bytes=600 * MB, limit_at="/slurm/uid_0/job_42")
    found = explained(tmp_path / "script", slurm=slurm, outcome=script, samples=ramp(50, 160))
    assert (found.verdict, typed(found)) == ("oom_cgroup", ["--mem=192M"])
