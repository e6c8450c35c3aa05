"""Rows of Slurm's accounting: which of them is of this run, and what they say."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import MB, START_S, explained, killed, oom, ours, outcome, ramp, sample, typed

from memory.sacct import SlurmFacts, parse_sacct, parse_scontrol, real_limit
from memory.slurm_words import requested_memory
from memory.supervision.options import Options
from memory.supervision.outcome import beginning

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
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
    assert ("requeued" in [finding.rule for finding in found.findings]) == ("requeued" in name)


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
    assert "one_of_several" in [finding.rule for finding in found.findings]
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
    assert (found.verdict, found.confidence, typed(found)[-1]) == ("oom_cgroup", "possible", "--mem=6144M")
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


@pytest.mark.parametrize(("days", "override"), [(1, "--time=2-00:00:00"), (365, None)])
def test_time_limit_of_year_is_none(tmp_path: Path, days: int, override: str | None) -> None:
    """As slurmctld writes where there is no limit."""
    assert (real_limit(days * 86400.0) is None) == (override is None)
    times = {"END": START_S + 60, "START": START_S + 60 - days * 86400}
    environment = {f"SLURM_JOB_{name}_TIME": str(int(value)) for name, value in times.items()}
    found = explained(tmp_path, samples=ramp(200, 1015), outcome=killed(environment=environment))
    assert [words for words in typed(found) if words.startswith("--time")] == ([override] if override else [])


@pytest.mark.parametrize(("state", "is_running"), [("RUNNING", True), ("FAILED", False)])
def test_run_whose_job_is_over_does_not_run(tmp_path: Path, state: str, is_running: bool) -> None:
    """It was heard of seconds ago, on another node, where Slurm then killed it with its supervisor."""
    status = {"state": "running", "attempt": 1, "host": "elsewhere", "pid": 7, "heartbeat_s": time.time()}
    found = explained(tmp_path, slurm=accounted(f"42|{state}|0:9||4G|{TIMES}|"), status=status, run=ours())
    assert found.is_running == is_running


def test_killed_worker_goes_before_failed_job(tmp_path: Path) -> None:
    line = "RuntimeError: DataLoader worker (pid 4243) is killed by signal: Killed.\n"
    slurm = accounted(f"42|FAILED|1:0||4G|{TIMES}|")
    parts = {"outcome": outcome(exit_code=1), "samples": ramp(10, 20), "run": ours()}
    found = explained(tmp_path, log=line, slurm=slurm, **parts)
    assert found.verdict == OUTSIDE


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
    ("job", "step", "ended", "verdict", "cause"),
    [
        ("FAILED|9:0", "CANCELLED", KILLED, OUTSIDE, "none"),
        ("FAILED|9:0", "CANCELLED", {"exit_code": 1}, "failed", "none"),
        ("CANCELLED by 0|0:0", "CANCELLED", KILLED, OUTSIDE, "scancel"),
        ("FAILED|9:0", "CANCELLED by 0", KILLED, OUTSIDE, "scancel"),
    ],
)
def test_step_that_srun_ended(
    tmp_path: Path, job: str, step: str, ended: dict[str, Any], verdict: str, cause: str
) -> None:
    """A step of two tasks of which one was killed, as Slurm 22.05 accounts for both."""
    rows = f"42|{job}||4G|{TIMES}|", f"42.0|{step}|0:9|||{TIMES}|"
    found = explained(tmp_path, slurm=accounted(*rows), outcome=of_step("0", **ended), samples=ramp(50, 60))
    assert (found.verdict, found.cause) == (verdict, cause), found.sentence


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


@pytest.mark.parametrize(("ended_s", "verdict"), [(99.5, "timeout"), (90, "failed")])
def test_error_as_time_is_up_may_be_answer_to_that(tmp_path: Path, ended_s: float, verdict: str) -> None:
    rows = [f"42|TIMEOUT|0:0||150M|{at(-30, 100)}|", f"42.batch|CANCELLED|0:15|||{at(-30, 101)}|"]
    end = outcome(**IN_SCRIPT | {"exit_code": 1, "ended_s": START_S + ended_s})
    assert explained(tmp_path, slurm=accounted(*rows), outcome=end, samples=ramp(50, 60)).verdict == verdict


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


@pytest.mark.parametrize(("code", "verdict"), [(0, "healthy"), (1, "oom_cgroup")])
def test_task_that_ended_well_next_to_killed_one(tmp_path: Path, code: int, verdict: str) -> None:
    """One that failed may have done so for lack of it."""
    of_two = {"environment": SCRIPT | {"SLURM_STEP_ID": "3", "SLURM_NTASKS": "2"}, "exit_code": code}
    rows = [f"42|COMPLETED|0:0||150M|{TIMES}|", f"42.3|OUT_OF_MEMORY|0:125|||{TIMES}|"]
    found = explained(
        tmp_path, slurm=accounted(*rows), outcome=outcome(**IN_STEP | of_two), samples=ramp(50, 60)
    )
    assert found.verdict == verdict


KILLED_STEP = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.{}.\n"
ENDED_STEP = (
    "slurmstepd-n1: error: *** STEP 42.{} ON n1 CANCELLED AT 2026-11-24T17:47:54 DUE TO TIME LIMIT ***\n"
)


@pytest.mark.parametrize(
    ("step", "line", "verdict"),
    [(1, KILLED_STEP, "failed"), (3, KILLED_STEP, "oom_cgroup"), (8, ENDED_STEP, "failed"),
     (3, ENDED_STEP, "timeout")],
)  # fmt: skip
def test_line_of_another_step(tmp_path: Path, step: int, line: str, verdict: str) -> None:
    """Where sacct cannot be asked, the job's stderr is of all its steps."""
    of_several = {"environment": SCRIPT | {"SLURM_STEP_ID": "3"}, "exit_code": 1}
    end = outcome(**IN_STEP | of_several)
    found = explained(tmp_path, outcome=end, samples=ramp(50, 60), log=line.format(step))
    assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("has_rows", [True, False])
@pytest.mark.parametrize(
    ("step", "verdict"), [("1", "healthy"), ("0", "oom_cgroup"), ("4294967291", "healthy")]
)
def test_kill_in_another_step(tmp_path: Path, step: str, verdict: str, has_rows: bool) -> None:
    """43.0 was killed; the script went on with another step, or by itself."""
    ended = outcome(environment={"SLURM_JOB_ID": "43", "SLURM_STEP_ID": step}, exit_code=int(step == "0"))
    log = "srun: error: n1: task 0: Out Of Memory\n" + KILLED_STEP.format(0).replace("42.", "43.")
    slurm = recorded("22.05-swallowed", "43") if has_rows else None
    assert explained(tmp_path, slurm=slurm, outcome=ended, samples=ramp(50, 60), log=log).verdict == verdict


@pytest.mark.parametrize(
    ("step", "verdict"),
    [((20, 40), "oom_cgroup"), ((0, 60), "oom_cgroup"), ((60, 63), "healthy"), ((-5, 0), "healthy")],
)
def test_killed_step_that_script_started(tmp_path: Path, step: tuple[float, float], verdict: str) -> None:
    rows = [f"42|COMPLETED|0:0||150M|{at(-30, 100)}|", f"42.batch|COMPLETED|0:0|||{at(-30, 100)}|",
            f"42.1|OUT_OF_MEMORY|0:125|||{at(*step)}|"]  # fmt: skip
    found = explained(tmp_path, slurm=accounted(*rows), outcome=outcome(**IN_SCRIPT), samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("with_step", [True, False])
def test_step_that_script_started_is_no_neighbour(tmp_path: Path, with_step: bool) -> None:
    rows = [f"42|OUT_OF_MEMORY|0:125||1G|{at(-30, 100)}|", f"42.batch|OUT_OF_MEMORY|0:125|||{at(-30, 100)}|",
            f"42.1|OUT_OF_MEMORY|0:125|||{at(20, 40)}|"]  # fmt: skip
    grown = ramp(100, 1000, 40, tree_anon_bytes=20 << 20, tree=())
    end = outcome(**IN_SCRIPT | oom() | {"exit_code": 1, "signal": None})
    found = explained(tmp_path, slurm=accounted(*rows[: 2 + with_step]), outcome=end, samples=grown)
    assert (found.verdict, found.cause == "neighbours") == ("oom_cgroup", not with_step)


def test_script_ended_with_its_supervisor(tmp_path: Path) -> None:
    """Another command of it had been killed before; nobody is left to write outcome.json."""
    rows = [f"42|TIMEOUT|0:0||150M|{at(-30, 31)}|", f"42.batch|OUT_OF_MEMORY|0:125|||{at(-30, 32)}|"]
    facts = IN_SCRIPT | {"attempt": 1, "started_s": START_S, "pid": 100}
    found = explained(tmp_path, slurm=accounted(*rows), samples=ramp(50, 60), ring_facts=facts)
    assert found.verdict == "timeout"


# a poll of RSS that kills


@pytest.mark.parametrize(
    ("params", "rss_kb", "verdict"),
    [
        ("OverMemoryKill", 455476, OUTSIDE),
        ("OverMemoryKill", 420000, "oom_cgroup"),
        ("", 455476, "oom_cgroup"),
    ],
)
def test_rss_above_request(tmp_path: Path, params: str, rss_kb: int, verdict: str) -> None:
    rows = f"42|FAILED|0:9||435M|{TIMES}|", f"42.batch|CANCELLED by 0|0:9|{rss_kb}K||{TIMES}|"
    slurm = accounted(*rows, **POLLS | {"gather_params": params})
    found = explained(tmp_path, slurm=slurm, samples=ramp(50, 400), run=ours())
    assert (found.verdict, found.cause == "rss_polling") == (verdict, verdict == OUTSIDE)


@pytest.mark.parametrize(
    ("params", "u_gb", "cause"),
    [("OverMemoryKill", 0, "rss_polling"), ("OverMemoryKill", 60, "rss_polling"), ("", 0, "scancel")],
)
def test_poll_goes_before_cancelled(tmp_path: Path, params: str, u_gb: int, cause: str) -> None:
    slurm = recorded("24.11-cancelled", "80", **POLLS | {"gather_params": params})
    samples = [
        sample(at, u_gb * 1024 or 300, limit=64 << 30, tree_rss_bytes=(1 + at) << 28) for at in range(20)
    ]
    found = explained(
        tmp_path, slurm=slurm, outcome=killed(limit_bytes=64 << 30, limit_at="host"), samples=samples
    )
    assert (found.verdict, found.cause) == (OUTSIDE, cause)


STEPS = "JobID|State|ExitCode|MaxRSS|ReqMem|AllocTRES"
POLLED = (
    "42|FAILED|9:0||600M|cpu=1,mem=600M,node=1",
    "42.batch|FAILED|9:0|22748K||cpu=1,mem=600M,node=1",
    "42.0|CANCELLED by 0|0:9|172616K||cpu=1,mem=150M,node=1",
)


@pytest.mark.parametrize("maps", [True, False])
def test_poll_compares_step_with_request_of_srun(tmp_path: Path, maps: bool) -> None:
    """Of its job's 600 MB it had not taken a third."""
    samples = [sample(at, 10 * at, limit=64 << 30, tree_rss_bytes=10 * at * MB) for at in range(16)]
    if maps:
        samples = [replace(one, tree_anon_bytes=MB, tree_file_bytes=one.tree_rss_bytes) for one in samples]
    ended = of_step("0", limit_at="host", limit_bytes=64 << 30, **KILLED)
    found = explained(
        tmp_path, slurm=accounted(*POLLED, columns=STEPS, **POLLS), outcome=ended, samples=samples
    )
    assert (found.verdict, found.cause) == (OUTSIDE, "rss_polling")
    assert ("os.pread" in typed(found)) == maps, "what maps nothing has nothing to gain by it"


@pytest.mark.parametrize("watched", [True, False])
def test_poll_of_step_is_cause_of_job_and_script(tmp_path: Path, watched: bool) -> None:
    script = of_step("4294967291", exit_code=137, limit_bytes=64 << 30, limit_at="host")
    parts = {"outcome": script, "samples": ramp(50, 60)} if watched else {}
    found = explained(tmp_path, slurm=accounted(*POLLED, columns=STEPS, **POLLS), **parts)
    assert (found.verdict, found.cause) == (OUTSIDE, "rss_polling")
    assert typed(found)[-1] == "--mem=253M", "more than the poll had found"


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
    assert typed(explained(tmp_path / "job", slurm=slurm))[-1] == "--mem=225M"
    script = of_step("4294967291", exit_code=1, limit_bytes=600 * MB, limit_at="/slurm/uid_0/job_42")
    found = explained(tmp_path / "script", slurm=slurm, outcome=script, samples=ramp(50, 160))
    assert (found.verdict, typed(found)) == ("oom_cgroup", ["--mem=225M"])


def test_request_is_kept_with_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--mem-per-gpu too: without it nobody knows afterwards what was asked for."""
    asked = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_GPU": "2048", "SLURM_GPUS_ON_NODE": "2"}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    kept = beginning(Options(("true",), str(tmp_path)), 0.0)["environment"]
    assert kept == asked
    assert requested_memory(kept) == (4 << 30, "--mem-per-gpu x 2")
