"""Which job of several is told of, what is not over yet, and what can be typed for it."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import GB, MB, START_S, explained, killed, oom, ours, outcome, ramp, record, sample

from memory.explain.text import as_text
from memory.sacct import SlurmFacts, parse_sacct

COLUMNS = (
    "JobID|State|ExitCode|MaxRSS|ReqMem|Elapsed|Timelimit|Start|End|NodeList|Reason"
)  # fmt: skip
BEGIN = "2026-11-22T08:00:00"
TIMES = "01:00:20|02:00:00|2026-11-22T08:00:00|2026-11-22T09:00:20|n7"
FOREIGN = {"limit_at": "/docker/abc", "cgroup_path": "/docker/abc"}


def told(*rows: str, job: str = "42") -> SlurmFacts:
    return SlurmFacts(job, tuple(parse_sacct("\n".join((COLUMNS, *rows)))), "sacct")


def typed(found: Any) -> list[str]:
    return [advice.override for advice in found.advice if advice.override]


@pytest.mark.parametrize("sign", ["_", "+"])
def test_an_array_is_told_of_by_the_task_that_ended_worst(tmp_path: Path, sign: str) -> None:
    rows = [f"42{sign}1|COMPLETED|0:0||4G|{TIMES}|", f"42{sign}2|OUT_OF_MEMORY|0:125||4G|{TIMES}|",
            f"42{sign}3|FAILED|1:0||4G|{TIMES}|"]  # fmt: skip
    found = explained(tmp_path, slurm=told(*rows))
    assert found.verdict == "oom_cgroup"
    assert f"42{sign}2" in found.sentence
    assert any(f"42{sign}3 FAILED" in line for line in found.evidence)
    swallowed = [
        rows[0],
        f"42{sign}2|COMPLETED|0:0||4G|{TIMES}|",
        f"42{sign}2.0|OUT_OF_MEMORY|0:125||4G|{TIMES}|",
    ]
    assert explained(tmp_path, slurm=told(*swallowed)).verdict == "oom_cgroup"
    asked = explained(tmp_path, slurm=told(*rows, job=f"42{sign}3"))
    assert asked.verdict == "failed"


def test_of_a_task_that_was_requeued_the_last_start_counts(tmp_path: Path) -> None:
    late = TIMES.replace("T08", "T10").replace("T09", "T11")
    rows = [f"42_1|NODE_FAIL|0:0||4G|{TIMES}|", f"42_1|COMPLETED|0:0||4G|{late}|",
            f"42_2|COMPLETED|0:0||4G|{late}|"]  # fmt: skip
    assert explained(tmp_path, slurm=told(*rows)).verdict == "healthy"


@pytest.mark.parametrize(
    ("row", "head", "words"),
    [
        (f"42|RUNNING|0:0||4G|00:10:00|01:00:00|{BEGIN}|Unknown|n7|", "running", ("RUNNING", "n7")),
        ("42|PENDING|0:0||4G|00:00:00|01:00:00|Unknown|Unknown|None assigned|Resources", "waiting",
         ("PENDING", "(Resources)", "queue")),
    ],
)  # fmt: skip
def test_a_job_that_is_not_over(tmp_path: Path, row: str, head: str, words: tuple[str, ...]) -> None:
    found = explained(tmp_path, slurm=told(row))
    shown = as_text(found)
    assert shown.splitlines()[0] == head
    assert (found.is_running, found.is_waiting) == (head == "running", head == "waiting")
    assert all(word in shown for word in words)


@pytest.mark.parametrize(("code", "confidence"), [("0:15", "certain"), ("143:0", "likely")])
def test_accounting_alone_tells_who_was_asked_to_stop(tmp_path: Path, code: str, confidence: str) -> None:
    """As `sbatch --signal=B:TERM@60` asks, before the time is up."""
    job = f"42|FAILED|{code}||4G|{TIMES}|"
    found = explained(tmp_path, slurm=told(job, f"42.batch|CANCELLED|0:15|100000K||{TIMES}|"))
    assert (found.verdict, found.confidence) == ("terminated", confidence)
    assert "SIGTERM" in found.sentence
    failed = explained(tmp_path, slurm=told(f"42|FAILED|3:0||4G|{TIMES}|"))
    assert failed.verdict == "failed"


@pytest.mark.parametrize(
    ("step", "ended", "verdict"),
    [
        ("0", {"exit_code": 0}, "healthy"),
        ("1", {"exit_code": 1}, "failed"),
        ("3", {"exit_code": None, "signal": "SIGTERM"}, "timeout"),
    ],
)
def test_what_ended_other_steps_or_the_job_later_is_no_end_of_a_step(
    tmp_path: Path, step: str, ended: dict[str, Any], verdict: str
) -> None:
    """As a real Slurm 22.05 told a script of several steps: Slurm counts a step as CANCELLED that its job's
    end ended, also where that exits by itself in its grace time.
    """
    rows = [f"42|TIMEOUT|0:0||4G|{TIMES}|", f"42.batch|CANCELLED|0:15|||{TIMES}|",
            f"42.0|COMPLETED|0:0|||{TIMES}|", f"42.1|FAILED|1:0|||{TIMES}|",
            f"42.2|OUT_OF_MEMORY|0:125|||{TIMES}|", f"42.3|CANCELLED|0:15|||{TIMES}|"]  # fmt: skip
    end = outcome(environment={"SLURM_JOB_ID": "42", "SLURM_STEP_ID": step}, **ended)
    found = explained(tmp_path, slurm=told(*rows), outcome=end, samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


KILLED = {"exit_code": None, "signal": "SIGKILL"}


@pytest.mark.parametrize(
    ("job", "step", "ended", "verdict", "cause"),
    [
        ("FAILED|9:0", "CANCELLED", KILLED, "killed_from_outside", "none"),
        ("FAILED|9:0", "CANCELLED", {"exit_code": 1}, "failed", "none"),
        ("CANCELLED by 0|0:0", "CANCELLED", KILLED, "killed_from_outside", "scancel"),
        ("FAILED|9:0", "CANCELLED by 0", KILLED, "killed_from_outside", "scancel"),
    ],
)
def test_a_step_that_srun_ended_was_cancelled_by_nobody(
    tmp_path: Path, job: str, step: str, ended: dict[str, Any], verdict: str, cause: str
) -> None:
    """As a real Slurm 22.05 told a step of two tasks of which one was killed: of it, and of the other."""
    end = outcome(environment={"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0"}, **ended)
    rows = f"42|{job}||4G|{TIMES}|", f"42.0|{step}|0:9|||{TIMES}|"
    found = explained(tmp_path, slurm=told(*rows), outcome=end, samples=ramp(50, 60))
    assert (found.verdict, found.cause) == (verdict, cause), found.sentence


def at(begin_s: float, end_s: float) -> str:
    """Columns from Elapsed to NodeList, of a row that began and ended so long after a run's begin."""
    begin, end = (datetime.fromtimestamp(START_S + s).isoformat(timespec="seconds") for s in (begin_s, end_s))
    return f"00:01:00|00:05:00|{begin}|{end}|n7"


SCRIPT = {"SLURM_JOB_ID": "42"}
"""A batch script has no SLURM_STEP_ID in Slurm 22.05: only its cgroup tells which step it is."""
IN_SCRIPT = {"environment": SCRIPT, "cgroup_path": "/slurm/uid_0/job_42/step_batch/task_0"}
IN_SHELL = {"environment": SCRIPT | {"SLURM_STEP_ID": "4294967290"}}
IN_STEP = {
    "environment": SCRIPT | {"SLURM_STEP_ID": "3", "SLURM_NTASKS": "1"},
    "cgroup_path": "/slurm/uid_0/job_42/step_3/task_0",
}
ASKED = {"exit_code": None, "signal": "SIGTERM", "signals_passed_on": [{"signal": "SIGTERM"}]}


@pytest.mark.parametrize(
    ("ended", "state", "verdict"),
    [
        (IN_SCRIPT, "TIMEOUT", "healthy"),
        (IN_SCRIPT, "CANCELLED by 0", "healthy"),
        (IN_SCRIPT | {"exit_code": 1}, "TIMEOUT", "failed"),
        (IN_SCRIPT | {"exit_code": 1}, "CANCELLED by 0", "failed"),
        (IN_SCRIPT | ASKED, "TIMEOUT", "timeout"),
        (IN_SCRIPT, "OUT_OF_MEMORY", "healthy"),
        (IN_SHELL, "OUT_OF_MEMORY", "healthy"),
        (IN_STEP, "OUT_OF_MEMORY", "healthy"),
        (IN_STEP | {"exit_code": 1}, "OUT_OF_MEMORY", "failed"),
    ],
)
def test_a_command_of_a_script_is_not_told_by_what_became_of_others(
    tmp_path: Path, ended: dict[str, Any], state: str, verdict: str
) -> None:
    """As a real Slurm 22.05 told a script of several commands, of which steps before this one and a command
    after it were killed for memory, before the job itself was ended.
    """
    rows = [f"42|{state}|0:0||150M|{at(-30, 100)}|", f"42.batch|OUT_OF_MEMORY|0:125|||{at(-30, 101)}|",
            f"42.interactive|OUT_OF_MEMORY|0:125|||{at(-30, 101)}|",
            f"42.0|COMPLETED|0:0|||{at(-30, -20)}|", f"42.1|OUT_OF_MEMORY|0:125|||{at(-20, 0)}|",
            f"42.3|COMPLETED|0:0|||{at(0, 60)}|", f"42.4|OUT_OF_MEMORY|0:125|||{at(70, 80)}|"]  # fmt: skip
    found = explained(tmp_path, slurm=told(*rows), outcome=outcome(**ended), samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize("state", ["OUT_OF_MEMORY", "COMPLETED"])
@pytest.mark.parametrize(
    ("step", "verdict"),
    [("0", "healthy"), ("1", "oom_cgroup"), ("2", "failed"), ("3", "killed_from_outside")],
)
def test_a_step_that_was_asked_for_is_told_of_by_its_own_row(
    tmp_path: Path, step: str, verdict: str, state: str
) -> None:
    """`--job 42.3`: as told by a real Slurm of a job whose other steps were killed for memory."""
    rows = [f"42|{state}|0:0||150M|{TIMES}|", f"42.batch|{state}|0:0|||{TIMES}|",
            f"42.0|COMPLETED|0:0|||{TIMES}|", f"42.1|OUT_OF_MEMORY|0:125|||{TIMES}|",
            f"42.2|FAILED|1:0|||{TIMES}|", f"42.3|CANCELLED by 0|0:9|||{TIMES}|"]  # fmt: skip
    found = explained(tmp_path, slurm=replace(told(*rows), step=step))
    assert found.verdict == verdict, found.sentence


def test_a_log_that_tells_of_other_steps_alone(tmp_path: Path) -> None:
    """Where sacct cannot be asked, the job's stderr is of all its steps."""
    killed_step = "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=42.{}.\n"
    ended_step = "slurmstepd-n1: error: *** STEP 42.{} ON n1 CANCELLED AT 2026-11-24T17:47:54 {}***\n"
    of_several = {"environment": SCRIPT | {"SLURM_STEP_ID": "3"}, "exit_code": 1}
    for step, line, verdict in (
        (1, killed_step, "failed"), (3, killed_step, "oom_cgroup"),
        (8, ended_step, "failed"), (3, ended_step, "timeout"),
    ):  # fmt: skip
        end = outcome(**IN_STEP | of_several)
        log = line.format(step, "DUE TO TIME LIMIT ")
        found = explained(tmp_path, outcome=end, samples=ramp(50, 60), log=log)
        assert found.verdict == verdict, found.sentence


@pytest.mark.parametrize(
    ("step", "verdict"),
    [((20, 40), "oom_cgroup"), ((0, 60), "oom_cgroup"), ((60, 63), "healthy"), ((-5, 0), "healthy")],
)
def test_a_killed_step_that_a_watched_script_started_is_its_own(
    tmp_path: Path, step: tuple[float, float], verdict: str
) -> None:
    rows = [f"42|COMPLETED|0:0||150M|{at(-30, 100)}|", f"42.batch|COMPLETED|0:0|||{at(-30, 100)}|",
            f"42.1|OUT_OF_MEMORY|0:125|||{at(*step)}|"]  # fmt: skip
    found = explained(tmp_path, slurm=told(*rows), outcome=outcome(**IN_SCRIPT), samples=ramp(50, 60))
    assert found.verdict == verdict, found.sentence


def test_a_step_that_a_watched_script_started_is_no_neighbour(tmp_path: Path) -> None:
    rows = [f"42|OUT_OF_MEMORY|0:125||1G|{at(-30, 100)}|", f"42.batch|OUT_OF_MEMORY|0:125|||{at(-30, 100)}|",
            f"42.1|OUT_OF_MEMORY|0:125|||{at(20, 40)}|"]  # fmt: skip
    grown = ramp(100, 1000, 40, tree_anon_bytes=20 << 20, tree=())
    end = outcome(**IN_SCRIPT | oom() | {"exit_code": 1, "signal": None})
    found = explained(tmp_path, slurm=told(*rows), outcome=end, samples=grown)
    assert (found.verdict, found.cause == "neighbours") == ("oom_cgroup", False), found.sentence
    alone = explained(tmp_path, slurm=told(*rows[:2]), outcome=end, samples=grown)
    assert alone.cause == "neighbours"


def test_a_script_that_was_ended_with_its_supervisor_was_not_killed_for_memory(tmp_path: Path) -> None:
    """Another command of it had been before: of what Slurm ended nobody is left to write outcome.json."""
    rows = [f"42|TIMEOUT|0:0||150M|{at(-30, 31)}|", f"42.batch|OUT_OF_MEMORY|0:125|||{at(-30, 32)}|"]
    facts = IN_SCRIPT | {"attempt": 1, "started_s": START_S, "pid": 100}
    found = explained(tmp_path, slurm=told(*rows), samples=ramp(50, 60), ring_facts=facts)
    assert found.verdict == "timeout", found.sentence


@pytest.mark.parametrize(
    ("params", "rss_kb", "verdict"),
    [
        ("OverMemoryKill", 455476, "killed_from_outside"),
        ("OverMemoryKill", 420000, "oom_cgroup"),
        ("", 455476, "oom_cgroup"),
    ],
)
def test_rss_above_what_was_asked_for_where_a_poll_kills(
    tmp_path: Path, params: str, rss_kb: int, verdict: str
) -> None:
    """As a real Slurm told it, whose poll killed the supervisor with its run."""
    rows = f"42|FAILED|0:9||435M|{TIMES}|", f"42.batch|CANCELLED by 0|0:9|{rss_kb}K||{TIMES}|"
    slurm = replace(told(*rows), gather="jobacct_gather/linux", gather_params=params)
    found = explained(tmp_path, slurm=slurm, samples=ramp(50, 400), run=ours())
    assert (found.verdict, found.cause == "rss_polling") == (verdict, verdict == "killed_from_outside")


def test_where_a_poll_killed_nothing_is_advised_that_the_plan_rules_out(tmp_path: Path) -> None:
    """A run of 813 MB in 520: it read by pread already, and was to take 16 windows, 642 MB, or --mem=780M."""
    rows = f"42|FAILED|0:9||520M|{TIMES}|", f"42.batch|CANCELLED by 0|0:9|549000K||{TIMES}|"
    slurm = replace(told(*rows), gather="jobacct_gather/linux", gather_params="OverMemoryKill")
    savings = {
        "training.micro_batch=16": 642, "training.micro_batch=2": 448, "training.loss_chunk=2048": 802,
        "training.activation_checkpointing=true": 670, "dataset.num_workers=0": 790,
    }  # fmt: skip
    plan = {
        "host_bytes": 813 * MB, "limit_bytes": 520 * MB, "counts_rss": True, "largest_micro_batch": 2,
        "recommended_mem_bytes": 1024 * MB,
        "savings": {words: {"host_bytes": needed * MB} for words, needed in savings.items()},
    }  # fmt: skip
    run = ours(micro_batch=32) | {"memory": plan}
    samples = [sample(at, 400, limit=64 << 30) for at in range(20)]
    found = explained(tmp_path, slurm=slurm, samples=samples, run=run)
    assert found.cause == "rss_polling"
    assert [advice.override for advice in found.advice] == ["training.micro_batch=2", "--mem=1G"]


@pytest.mark.parametrize(("state", "is_running"), [("RUNNING", True), ("FAILED", False)])
def test_a_run_whose_job_is_over_does_not_run(tmp_path: Path, state: str, is_running: bool) -> None:
    """It was heard of seconds ago, on another node, where Slurm then killed it with its supervisor."""
    status = {"state": "running", "attempt": 1, "host": "elsewhere", "pid": 7, "heartbeat_s": time.time()}
    found = explained(tmp_path, slurm=told(f"42|{state}|0:9||4G|{TIMES}|"), status=status, run=ours())
    assert found.to_json()["is_running"] == is_running


def test_sigkill_that_slurm_did_not_count(tmp_path: Path) -> None:
    job = f"42|FAILED|137:0||4G|{TIMES}|"
    found = explained(tmp_path, slurm=told(job, f"42.batch|FAILED|137:0|4190000K||{TIMES}|"))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "possible")
    assert typed(found)[-1] == "--mem=6144M"
    found = explained(tmp_path, slurm=told(job, f"42.batch|FAILED|137:0|100000K||{TIMES}|"))
    assert found.verdict == "unknown"
    assert "SIGKILL" in found.sentence
    assert "sacct -j 42 --format=JobID,State%40,ExitCode,MaxRSS,ReqMem" in typed(found)


@pytest.mark.parametrize(
    "line",
    ["MemoryError: falling back to chunks", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"],
)
def test_an_error_that_was_got_over_by_the_log_alone(tmp_path: Path, line: str) -> None:
    found = explained(tmp_path, log=f"{line}\nepoch 9 done\nTraining finished successfully, saved model.pt\n")
    assert found.confidence == "possible"
    assert explained(tmp_path / "b", log=f"epoch 9\n{line}\n").confidence == "likely"


def test_words_in_quotation_marks_are_no_error(tmp_path: Path) -> None:
    log = 'config: on_oom="CUDA out of memory" -> skip batch\n'
    assert explained(tmp_path, outcome=outcome(exit_code=3), log=log).verdict == "failed"


def test_what_is_known_is_filled_in(tmp_path: Path) -> None:
    failed = explained(tmp_path, slurm=told(f"42|NODE_FAIL|1:0||4G|{TIMES}|"))
    assert typed(failed) == ["--exclude=n7"]
    late = explained(tmp_path, slurm=told(f"42|TIMEOUT|0:0||4G|{TIMES}|"))
    assert typed(late) == ["--time=04:00:00"]
    cancelled = explained(tmp_path, slurm=told(f"42|CANCELLED by 1000|0:0||4G|{TIMES}|"))
    assert typed(cancelled) == ["getent passwd 1000"]
    times = {"SLURM_JOB_END_TIME": str(int(START_S + 60)), "SLURM_JOB_START_TIME": str(int(START_S - 86340))}
    late = explained(tmp_path / "b", samples=ramp(200, 1015), outcome=killed(environment=times))
    assert "--time=2-00:00:00" in typed(late)


def test_nothing_to_type_where_it_is_not_known(tmp_path: Path) -> None:
    line = "slurmstepd: error: *** JOB 44 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO TIME LIMIT ***"
    assert typed(explained(tmp_path, log=line)) == []


@pytest.mark.parametrize(("now", "advised"), [(16, 8), (15, 5), (7, 1), (9, 3), (2, 1)])
def test_a_smaller_micro_batch_divides_what_it_divided(tmp_path: Path, now: int, advised: int) -> None:
    run = ours(micro_batch=now)
    records = [record("begin", "train", 25, 900, step=3)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(200, 1020), run=run, records=records)
    assert f"training.micro_batch={advised}" in typed(found)


@pytest.mark.parametrize(("now", "advised"), [(4096, "1024"), (1000, "500"), (300, "256"), (256, None)])
def test_fewer_logits_are_fewer(tmp_path: Path, now: int, advised: str | None) -> None:
    records = [record("begin", "train", 25, 900, step=3)]
    found = explained(
        tmp_path, outcome=killed(**oom()), samples=ramp(200, 1020), run=ours(loss_chunk=now), records=records
    )
    chunks = [words for words in typed(found) if words.startswith("training.loss_chunk")]
    assert chunks == ([f"training.loss_chunk={advised}"] if advised else [])


def test_no_smaller_chunk_where_a_micro_batch_has_fewer_tokens(tmp_path: Path) -> None:
    records = [record("begin", "train", 25, 900, step=3)]
    run = ours(loss_chunk=16_384, micro_batch=1)
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(200, 1020), run=run, records=records)
    assert not [words for words in typed(found) if words.startswith("training.loss_chunk")]


def planned(host_mb: int, **savings_mb: int) -> dict[str, Any]:
    """run.json's `memory`: as it is, and with each override (`__` for its dot, `_is_` for `=`)."""
    savings = {
        words.replace("_is_", "=").replace("__", "."): {"host_bytes": mb * MB, "gpu_bytes": 0}
        for words, mb in savings_mb.items()
    }
    return {"host_bytes": host_mb * MB, "recommended_mem_bytes": 2 * GB, "savings": savings}


@pytest.mark.parametrize(
    ("now_mb", "after_mb", "is_advised"),
    [(1100, 800, True), (1100, 1060, False), (900, 880, False), (900, 860, True)],
)
def test_an_override_that_cannot_help_by_the_runs_own_estimate(
    tmp_path: Path, now_mb: int, after_mb: int, is_advised: bool
) -> None:
    """The limit is 1,024 MB; less than 3% is nothing."""
    names = ("training__micro_batch_is_8", "training__activation_checkpointing_is_true",
             "training__loss_chunk_is_1024", "dataset__num_workers_is_0")  # fmt: skip
    run = ours() | {"memory": planned(now_mb, **dict.fromkeys(names, after_mb))}
    records = [record("begin", "train", 25, 900, step=3)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(200, 1020), run=run, records=records)
    told = [words for words in typed(found) if words.startswith(("training.", "dataset."))]
    assert len(told) == (4 if is_advised else 0), told


def test_more_memory_is_what_the_runs_own_estimate_says(tmp_path: Path) -> None:
    records, environment = [record("begin", "train", 25, 900, step=3)], {"SLURM_JOB_ID": "7"}
    for now_mb, amount in ((1100, "--mem=2G"), (900, "--mem=1280M")):
        run = ours() | {"memory": planned(now_mb)}
        found = explained(tmp_path / str(now_mb), outcome=killed(**oom(), environment=environment),
                          samples=ramp(200, 1020), run=run, records=records)  # fmt: skip
        assert typed(found)[-1] == amount
        assert ("by the estimate of its own it needs 1.1 GB" in found.advice[-1].text) == (now_mb > 1024)


def test_overrides_that_only_help_together(tmp_path: Path) -> None:
    both = "training.micro_batch=4 training.activation_checkpointing=true"
    memory = planned(2000, training__micro_batch_is_8=1500)
    memory["savings"] |= {
        "training.activation_checkpointing=true": {"host_bytes": 1600 * MB},
        "training.loss_chunk=1024": {"host_bytes": 1990 * MB},
        both: {"host_bytes": 700 * MB},
    }
    records = [record("begin", "train", 25, 900, step=3)]
    found = explained(
        tmp_path,
        outcome=killed(**oom()),
        samples=ramp(200, 1020),
        run=ours() | {"memory": memory},
        records=records,
    )
    assert both in typed(found)
    assert not any(words in ("training.micro_batch=8", "training.loss_chunk=1024") for words in typed(found))


def test_an_estimate_of_a_run_that_did_not_note_what_it_would_save(tmp_path: Path) -> None:
    """64d at 300 MB, as an earlier version wrote it: no smaller step can bring it below its limit."""
    parts = {"python and torch": 1290 * MB, "activations": 4 * MB, "allocator": 10 * MB}
    run = ours() | {"memory": {"host_bytes": 1304 * MB, "host_parts": parts}}
    records = [record("begin", "train", 25, 900, step=3)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(200, 1020), run=run, records=records)
    assert not [words for words in typed(found) if words.startswith("training.")]


def test_records_alone_of_a_run_whose_stages_all_ended(tmp_path: Path) -> None:
    done = [record("begin", "load", 1, 100), record("end", "load", 2, 100)]
    found = explained(tmp_path, records=done)
    assert (found.verdict, found.confidence) == ("unknown", "possible")
    assert "killed" not in found.sentence
    assert "nobody watched it" in found.sentence
    open_stage = explained(tmp_path / "b", records=done[:1])
    assert "it was killed" in open_stage.sentence
