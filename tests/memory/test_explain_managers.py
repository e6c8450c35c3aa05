"""Logs of jobs that other managers than Slurm ran, and words of other run-times than Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence_builder import MAIN, MB, explained, killed, oom, outcome, process, ramp, sample

from memory.sacct import Job, Row, SlurmFacts, parse_sacct, real_limit

POD = """\
Containers:
  train:
    State:          Terminated
      Reason:       OOMKilled
      Exit Code:    137
"""
LSF = """\
Your job looked like:
------------------------------------------------------------
python train.py
------------------------------------------------------------

TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.
Exited with exit code 137.
"""
PBS = "=>> PBS: job killed: mem 2097152kb exceeded limit 1048576kb\n"
KILLED = "killed_from_outside"


@pytest.mark.parametrize(
    ("log", "verdict", "cause", "confidence", "words"),
    [
        (POD, "oom_cgroup", "unknown", "likely", "limits.memory"),
        ("train-0   0/1     OOMKilled   0   12s\n", "oom_cgroup", "unknown", "likely", "limits.memory"),
        ('        "reason": "OOMKilled",\n', "oom_cgroup", "unknown", "likely", "limits.memory"),
        (LSF, KILLED, "rss_polling", "likely", "bsub -M"),
        (
            "Thu Nov 12 10:00:00: Completed <exit>; TERM_MEMLIMIT: job killed after reaching LSF memory "
            "usage limit.\n",
            KILLED, "rss_polling", "likely", "bsub -M",
        ),
        (PBS, KILLED, "rss_polling", "certain", "qsub -l"),
        (PBS.replace("mem", "vmem"), KILLED, "rss_polling", "certain", "qsub -l"),
        ("=>> PBS: job 17 exceeded mem limit\n", KILLED, "rss_polling", "certain", "qsub -l"),
        ("17.server Killed Cgroup mem limit exceeded\n", "oom_cgroup", "unknown", "likely", "qsub -l"),
        (PBS.replace("mem 2097152kb", "walltime 3650"), "timeout", "none", "certain", "walltime"),
        ("TERM_RUNLIMIT: job killed after its run time.\n", "timeout", "none", "likely", "bsub -W"),
    ],
)  # fmt: skip
def test_other_managers(
    tmp_path: Path, log: str, verdict: str, cause: str, confidence: str, words: str
) -> None:
    found = explained(tmp_path, log="step 12 loss 3.1\n" + log)
    assert (found.verdict, found.cause, found.confidence) == (verdict, cause, confidence)
    assert any(words in advice.text for advice in found.advice)


@pytest.mark.parametrize(
    "line",
    [
        "sample 4: why do my pods say Reason: OOMKilled",
        "grep TERM_MEMLIMIT found nothing",
        'the log reads "=>> PBS: job killed: mem 2kb exceeded limit 1kb"',
    ],
)
def test_what_a_log_merely_quotes(tmp_path: Path, line: str) -> None:
    assert explained(tmp_path, log=f"step 12\n{line}\n").verdict == "unknown"


def test_a_line_that_the_counters_contradict(tmp_path: Path) -> None:
    """The kernel counted no kill where this run was, and it ended by an error of its own."""
    found = explained(tmp_path / "a", outcome=outcome(), samples=ramp(10, 20), log=PBS)
    assert found.verdict == "healthy"
    found = explained(tmp_path / "b", outcome=outcome(exit_code=1), samples=ramp(10, 20), log=PBS)
    assert found.verdict == "failed"
    found = explained(tmp_path / "c", outcome=killed(), samples=ramp(10, 20), log=POD)
    assert found.verdict == KILLED


@pytest.mark.parametrize(
    "line",
    [
        "fatal error: runtime: out of memory",
        "fatal error: runtime: cannot allocate memory",
        "ERROR: OutOfMemoryError()",
        "ERROR: LoadError: OutOfMemoryError()",
        "OutOfMemoryError()",
    ],
)
def test_other_run_times(tmp_path: Path, line: str) -> None:
    log = f"step 3\n{line}\nStacktrace:\n  [1] Array\n"
    found = explained(tmp_path / "alone", log=log)
    assert (found.verdict, found.confidence) == ("memory_error", "likely")
    found = explained(tmp_path / "run", outcome=outcome(exit_code=2), samples=ramp(10, 20), log=log)
    assert found.verdict == "memory_error"


def test_a_year_is_no_time_limit(tmp_path: Path) -> None:
    """As slurmctld tells of a job in a partition without one."""
    assert real_limit(365 * 86400.0) is None
    assert real_limit(364 * 86400.0) == 364 * 86400.0
    head = "JobID|JobName|State|ExitCode|Elapsed|Timelimit\n"
    (row,) = [job.row for job in parse_sacct(head + "77|train|FAILED|1:0|00:00:09|365-00:00:00\n")]
    assert row.timelimit_s is None
    slurm = SlurmFacts("77", jobs=(Job(Row("77", None, "TIMEOUT", elapsed_s=9.0)),), source="sacct")
    year = {"SLURM_JOB_START_TIME": "1700000000", "SLURM_JOB_END_TIME": str(1700000000 + 365 * 86400)}
    found = explained(tmp_path, outcome=killed("SIGTERM", environment=year), slurm=slurm)
    assert not any("730-" in (advice.override or "") for advice in found.advice)


@pytest.mark.parametrize(
    ("names", "is_told"),
    [(("sh", "head"), False), (("bash", "python3"), False), (("python", "python"), True),
     (("pt_main_thread", "pt_data_worker"), True)],
)  # fmt: skip
def test_workers_are_told_of_where_there_may_be_a_loader(
    tmp_path: Path, names: tuple[str, ...], is_told: bool
) -> None:
    tree = tuple(type(process(1, 1))(MAIN + n, name, 20 * MB, MB, 0, 21 * MB) for n, name in enumerate(names))
    log = "head: memory exhausted\n"
    ran = [sample(at, 55, processes=len(tree), tree=tree) for at in range(20)]
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ran, log=log)
    assert any("num_workers" in (advice.override or "") for advice in found.advice) is is_told


def test_slurm_is_no_word_of_a_log_where_its_variables_were_looked_for(tmp_path: Path) -> None:
    ended = killed(**oom() | {"limit_at": "/a", "cgroup_path": "/a/b"})
    found = explained(tmp_path, outcome=ended, samples=ramp(500, 1023), log="see slurm.conf\n")
    assert any("a higher limit for the cgroup /a" in advice.text for advice in found.advice)
    assert not any((advice.override or "").startswith("--mem") for advice in found.advice)


def test_135_of_a_program_that_had_no_child(tmp_path: Path) -> None:
    found = explained(tmp_path / "own", outcome=outcome(exit_code=135), samples=ramp(10, 20))
    assert (found.verdict, found.confidence) == ("failed", "likely")
    assert "its own, or that of a process that SIGBUS ended" in found.sentence
    tree = (process(MAIN, 5), process(MAIN + 1, 50))
    ran = [sample(at, 55, processes=2, tree=tree) for at in range(20)]
    found = explained(tmp_path / "shell", outcome=outcome(exit_code=135), samples=ran)
    assert (found.verdict, found.cause, found.confidence) == ("failed", "truncated_file", "possible")
    assert found.sentence.startswith("By exit code 135 a process of it ended by SIGBUS")
