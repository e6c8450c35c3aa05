"""Slurm's accounting, as versions from 20.11 to 25.11 print it, and what is left where it does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.accounting.maxrss import max_rss_meaning
from memory.accounting.sacct import (
    Answer,
    Job,
    SlurmFacts,
    count_nodes,
    parse_sacct,
    parse_scontrol,
    read_slurm,
    to_bytes,
)
from tests.golden_text import Golden

GOLDEN = Path(__file__).parents[2] / "golden" / "slurm"
MB, GB = 1 << 20, 1 << 30


def recorded(name: str) -> str:
    return (GOLDEN / f"{name}.txt").read_text()


def only(name: str) -> Job:
    jobs = parse_sacct(recorded(name))
    assert len(jobs) == 1
    return jobs[0]


def test_the_step_says_what_the_job_does_not() -> None:
    job = only("22.05-srun-oom")
    assert (job.row.id, job.row.state, job.row.exit_code, job.row.requested_bytes) == (
        "42",
        "FAILED",
        1,
        200 * MB,
    )
    assert not job.row.was_out_of_memory
    assert [step.id for step in job.steps] == ["42.batch", "42.extern", "42.0"]
    assert [row.id for row in job.rows if row.was_out_of_memory] == ["42.0"]
    assert str(job.steps[2]) == "42.0 OUT_OF_MEMORY 0:125"
    assert job.steps[2].max_rss_bytes == 22 * MB


def test_a_kill_that_the_script_went_on_after() -> None:
    job = only("22.05-swallowed")
    assert job.row.state == "COMPLETED"
    assert [row.id for row in job.rows if row.was_out_of_memory] == ["43.0"]


def test_times() -> None:
    job = only("22.05-timeout")
    assert (job.row.elapsed_s, job.row.timelimit_s, job.row.reason) == (147, 120, "TimeLimit")
    assert (job.steps[0].state, job.steps[0].exit_signal) == ("CANCELLED", 15)
    long = only("20.11-reqmem")
    assert (long.row.elapsed_s, long.row.timelimit_s) == (93784, 172800)
    assert only("24.11-cancelled").row.timelimit_s is None
    assert only("24.11-cancelled").row.elapsed_s == pytest.approx(1800.123)
    assert only("25.11-oom").row.timelimit_s is None


def test_amounts() -> None:
    assert only("20.11-reqmem").row.requested_bytes == 2000 * MB
    assert only("20.11-reqmem").steps[0].max_rss_bytes == 1536 * MB + MB // 2
    assert only("24.11-cancelled").row.requested_bytes == 4 * GB
    assert (to_bytes(""), to_bytes("?"), to_bytes("12"), to_bytes("4Gc")) == (None, None, 12, 4 * GB)


def test_an_array() -> None:
    jobs = {job.row.job: job for job in parse_sacct(recorded("23.02-array"))}
    assert set(jobs) == {"50_1", "50_2", "50_[3-9%2]"}
    assert jobs["50_[3-9%2]"].row.nodes == ""
    assert jobs["50_2"].rows[1].was_out_of_memory
    facts = SlurmFacts("50_1", tuple(jobs.values()))
    assert facts.job is not None
    assert facts.job.row.state == "COMPLETED"


def test_requeues() -> None:
    facts = SlurmFacts("60", tuple(parse_sacct(recorded("23.11-requeued"))))
    assert facts.job is not None
    assert (facts.job.row.state, len(facts.job.steps)) == ("COMPLETED", 1)
    assert [job.row.state for job in facts.earlier] == ["PREEMPTED", "NODE_FAIL"]


def test_a_heterogeneous_job() -> None:
    jobs = parse_sacct(recorded("24.05-het"))
    assert [job.row.job for job in jobs] == ["70+0", "70+1"]
    assert [row.id for job in jobs for row in job.rows if row.was_out_of_memory] == ["70+1.0"]


def test_who_cancelled() -> None:
    row = only("24.11-cancelled").row
    assert (row.state, row.cancelled_by) == ("CANCELLED", "1000")


def test_scontrol() -> None:
    (job,) = parse_scontrol(recorded("scontrol-job"))
    assert (job.row.job, job.row.state, job.row.requested_bytes) == ("43", "NODE_FAIL", 200 * MB)
    assert (job.row.elapsed_s, job.row.nodes, job.row.reason) == (69, "n1", "")


def ask_of(answers: dict[str, Answer]):  # type: ignore[no-untyped-def]
    """A cluster that answers so, by the first two words of a command."""

    def ask(command: list[str], timeout_s: float) -> Answer:
        return next(
            (found for begin, found in answers.items() if " ".join(command).startswith(begin)), Answer(127)
        )

    return ask


def test_reading() -> None:
    answers = {
        "sacct": Answer(0, recorded("22.05-srun-oom")),
        "scontrol show config": Answer(0, recorded("scontrol-config")),
    }
    found = read_slurm("42", ask=ask_of(answers))
    assert (found.source, found.version, found.gather) == ("sacct", "22.05.8", "jobacct_gather/linux")
    assert (found.gather_params, found.gather_every_s, found.cgroup_plugin) == (
        "OverMemoryKill",
        30,
        "cgroup/v1",
    )
    assert found.notes == ()


def test_a_version_that_lacks_a_field() -> None:
    def ask(command: list[str], timeout_s: float) -> Answer:
        if command[0] != "sacct":
            return Answer(127)
        for name in ("Restarts", "Reason"):
            if name in command[-1].split(","):
                return Answer(1, error=f'sacct: fatal: Invalid field requested: "{name}"\n')
        return Answer(0, recorded("20.11-reqmem"))

    found = read_slurm("45", ask=ask)
    assert found.job is not None
    assert found.job.row.state == "COMPLETED"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(127),
        Answer(124),
        Answer(1, error="sacct: error: slurm_persist_conn_open: Connection refused"),
        Answer(0, "JobID|State\n"),
        Answer(0, ""),
    ],
    ids=["no sacct", "late", "refused", "unknown job", "nothing"],
)
def test_scontrol_answers_where_sacct_does_not(answer: Answer, golden: Golden) -> None:
    answers = {"sacct": answer, "scontrol show job": Answer(0, recorded("scontrol-job"))}
    found = read_slurm("43", ask=ask_of(answers))
    assert found.source.startswith("scontrol ")
    golden.text(found.notes[0])
    assert found.job is not None
    assert found.job.row.state == "NODE_FAIL"


def test_nobody_answers() -> None:
    found = read_slurm("43", ask=ask_of({}))
    assert (found.job, found.source) == (None, "")
    assert len(found.notes) == 2


def test_a_real_command_that_is_missing_or_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = read_slurm("43").notes
    slow = tmp_path / "sacct"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 30\n")
    slow.chmod(0o755)
    late = read_slurm("43", timeout_s=0.2).notes
    golden.text("\n".join([*missing, *late]))


def test_no_job_id(golden: Golden) -> None:
    golden.text(read_slurm("--all; rm").notes[0])


@pytest.mark.parametrize(
    "of",
    [
        ("jobacct_gather/linux", "22.05.8", "", ""),
        ("jobacct_gather/linux", "24.05.1", "UsePss", ""),
        ("jobacct_gather/cgroup", "24.05.1", "", "cgroup/v1"),
        ("jobacct_gather/cgroup", "23.02.5", "", "cgroup/v2"),
        ("jobacct_gather/cgroup", "23.11.0", "", "cgroup/v2"),
        ("jobacct_gather/cgroup", "24.11.3", "", "cgroup/v2"),
        ("jobacct_gather/cgroup", "25.11.1-1", "no_file_cache", "cgroup/v2"),
        ("jobacct_gather/none", "25.11.1", "", ""),
        ("", "", "", ""),
    ],
    ids=" ".join,
)
def test_what_max_rss_means(of: tuple[str, str, str, str], golden: Golden) -> None:
    gather, version, params, plugin = of
    found = SlurmFacts("1", version=version, gather=gather, gather_params=params, cgroup_plugin=plugin)
    golden.text(max_rss_meaning(found))


@given(st.text(alphabet="JobIDState|0123_.[]+\n :=KMG-", max_size=300), st.text(max_size=100))
def test_garbage(text: str, more: str) -> None:
    parse_sacct(text)
    parse_sacct("JobID|State|ExitCode|MaxRSS|Elapsed\n" + text + more)
    parse_scontrol(text + "JobId=" + more)


@pytest.mark.parametrize(
    ("listed", "count"),
    [
        ("n1", 1), ("n[1-2]", 2), ("n[1-3,07],gpu5", 5), ("r[1-2]n[01-04]", 8), ("a,b,c", 3), ("", 0),
        ("None assigned", 0),
    ],
)  # fmt: skip
def test_how_many_nodes(listed: str, count: int) -> None:
    assert count_nodes(listed) == count


@pytest.mark.parametrize(
    ("asked", "nodes", "per_node"),
    [
        ("1200M", "n[1-2]", 600 * MB),
        ("600Mn", "n[1-2]", 600 * MB),
        ("600M", "n1", 600 * MB),
        ("600M", "", 600 * MB),
    ],
)
def test_what_a_job_asked_for_is_of_a_node(asked: str, nodes: str, per_node: int) -> None:
    """From 21.08 on ReqMem is of all its nodes together; what a task used is told beside it."""
    (job,) = parse_sacct(f"JobID|State|ExitCode|ReqMem|NodeList\n46|COMPLETED|0:0|{asked}|{nodes}\n")
    assert job.row.requested_bytes == per_node
    shown = f"JobId=46 JobState=RUNNING NodeList={nodes or '(null)'} MinMemoryNode=600M"
    assert parse_scontrol(shown)[0].row.requested_bytes == 600 * MB
