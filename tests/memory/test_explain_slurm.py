"""What Slurm writes into logs and accounting, against what the cgroup says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from evidence_builder import LIMIT, MB, explained, killed, oom, ours, outcome, ramp, sample

from memory.sacct import SlurmFacts, parse_sacct
from memory.slurm_words import requested_memory
from memory.supervision.options import Options
from memory.supervision.outcome import beginning

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"


def facts(name: str, job: str, **more: str) -> SlurmFacts:
    return SlurmFacts(job, tuple(parse_sacct((GOLDEN / f"{name}.txt").read_text())), "sacct", **more)


@pytest.mark.parametrize(
    "line",
    [
        # 22.05 and before
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=14604003.0 cgroup. Some of your "
        "processes may have "
        "been killed by the cgroup out-of-memory handler.",
        "slurmstepd: error: Detected 3 oom-kill event(s) in step 370626.batch cgroup",
        # 23.02 and after
        "[2026-03-02T10:00:09.123] error: Detected 1 oom_kill event in StepId=17.0. Some of the "
        "step tasks have been "
        "OOM Killed.",
        "slurmstepd: error: Detected 2 oom_kill events in StepId=17.batch. Some of the step tasks "
        "have been OOM Killed.",
        "srun: error: n1: task 0: Out Of Memory",
    ],
)
def test_an_oom_kill_in_the_log(tmp_path: Path, line: str) -> None:
    found = explained(tmp_path, log=f"epoch 1\n{line}\n")
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert any(line[:40] in told for told in found.evidence)
    assert "--mem" in found.advice[-1].text
    assert found.advice[-1].override is None, "how much is not known, so there is nothing to type"


@pytest.mark.parametrize(
    ("line", "verdict", "cause"),
    [
        (
            "slurmstepd: error: *** JOB 44 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO TIME LIMIT ***",
            "timeout",
            "none",
        ),
        (
            "slurmstepd: error: *** STEP 44.0 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO PREEMPTION ***",
            "killed_from_outside",
            "preemption",
        ),
        (
            "slurmstepd: error: *** JOB 44 ON n1 CANCELLED AT 2026-03-02T10:02:27 ***",
            "killed_from_outside",
            "scancel",
        ),
        (
            "slurmstepd: error: *** JOB 44 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO NODE "
            "FAILURE, SEE SLURMCTLD LOG "
            "FOR DETAILS ***",
            "killed_from_outside",
            "node_failure",
        ),
        ("srun: error: Node failure on n2", "killed_from_outside", "node_failure"),
        (
            "slurmstepd: error: *** JOB 44 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO JOB REQUEUE ***",
            "killed_from_outside",
            "requeue",
        ),
    ],
)
@pytest.mark.parametrize("with_outcome", [True, False])
def test_an_end_by_slurm(tmp_path: Path, line: str, verdict: str, cause: str, with_outcome: bool) -> None:
    ended = killed("SIGTERM", environment={"SLURM_JOB_ID": "44"})
    parts = {"outcome": ended, "samples": ramp(100, 200)} if with_outcome else {}
    found = explained(tmp_path, log=f"epoch 1\n{line}\n", **parts)
    assert (found.verdict, found.cause, found.confidence) == (verdict, cause, "certain")


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: StepId=5.0 exceeded memory limit (763363328 > 209715200), being killed",
        "slurmstepd: error: Step 5.0 exceeded memory limit (745472 > 204800), being killed",
        "slurmstepd: error: Exceeded job memory limit\nslurmstepd: error: Job 5 exceeded memory "
        "limit (745472 > 204800), "
        "being killed",
    ],
)
def test_a_kill_by_the_poll(tmp_path: Path, line: str) -> None:
    """RSS of mapped files was over the limit, the cgroup's U far below it."""
    samples = [sample(at, 14, usage_bytes=LIMIT - MB, tree_rss_bytes=2 * LIMIT) for at in range(20)]
    found = explained(
        tmp_path,
        outcome=killed(peak_unreclaimable_bytes=14 * MB, environment={"SLURM_JOB_ID": "5"}),
        samples=samples,
        log=line + "\nslurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-03-02T10:02:27 ***\n",
        run=ours(),
    )
    assert (found.verdict, found.cause, found.confidence) == ("killed_from_outside", "rss_polling", "certain")
    assert found.advice[0].override == "dataset.reader=pread"
    assert "nothing was really short" in found.sentence


@pytest.mark.parametrize(
    ("name", "job", "verdict", "cause"),
    [
        ("22.05-timeout", "44", "timeout", "none"),
        ("20.11-reqmem", "45", "healthy", "none"),
        ("23.02-array", "50_2", "oom_cgroup", "unknown"),
        ("23.02-array", "50_1", "healthy", "none"),
        ("23.11-requeued", "60", "healthy", "none"),
        ("24.05-het", "70+0", "failed", "none"),
        ("24.05-het", "70+1", "oom_cgroup", "unknown"),
        ("24.11-cancelled", "80", "killed_from_outside", "scancel"),
        ("25.11-oom", "90", "oom_cgroup", "unknown"),
    ],
)
def test_states(tmp_path: Path, name: str, job: str, verdict: str, cause: str) -> None:
    found = explained(tmp_path, slurm=facts(name, job))
    assert (found.verdict, found.cause) == (verdict, cause)


def test_a_kill_by_the_poll_without_its_message(tmp_path: Path) -> None:
    """The setting, RSS above what was asked for, and U far below: it goes before the word CANCELLED."""
    slurm = facts("24.11-cancelled", "80", gather="jobacct_gather/linux", gather_params="OverMemoryKill")
    mapped = [sample(at, 300, limit=64 << 30, tree_rss_bytes=(1 + at) << 28) for at in range(20)]
    parts = {"outcome": killed(limit_bytes=64 << 30, limit_at="host"), "samples": mapped}
    found = explained(tmp_path / "polled", slurm=slurm, **parts)
    assert (found.verdict, found.cause) == ("killed_from_outside", "rss_polling")
    assert found.cause_confidence == "likely"
    full = parts | {"samples": [replace(one, unreclaimable_bytes=60 << 30) for one in mapped]}
    found = explained(tmp_path / "anon", slurm=slurm, **full)
    assert found.cause == "rss_polling", "no cgroup has a limit there: it was told as cancelled, for certain"
    slurm = facts("24.11-cancelled", "80", gather="jobacct_gather/linux")
    found = explained(tmp_path / "cancelled", slurm=slurm, **parts)
    assert (found.verdict, found.cause) == ("killed_from_outside", "scancel")


def test_the_poll_counts_a_step_against_what_its_srun_asked_for(tmp_path: Path) -> None:
    """It was told as cancelled, for certain: of its job's 300 MB it had not taken half."""
    rows = (
        "JobID|State|ExitCode|MaxRSS|ReqMem|AllocTRES\n"
        "42|COMPLETED|0:0||300M|cpu=1,mem=300M,node=1\n"
        "42.0|CANCELLED by 0|0:9|168496K||cpu=1,mem=150M,node=1\n"
    )
    slurm = SlurmFacts(
        "42", tuple(parse_sacct(rows)), "sacct", gather_params="OverMemoryKill", gather="jobacct_gather/linux"
    )
    step = {"environment": {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0"}, "limit_at": "host"}
    little = [sample(at, 10 * at, limit=64 << 30, tree_rss_bytes=10 * at * MB) for at in range(16)]
    mapped = [replace(one, tree_anon_bytes=MB, tree_file_bytes=one.tree_rss_bytes) for one in little]
    for name, seen in (("little", little), ("mapped", mapped)):
        parts = {"outcome": killed(limit_bytes=64 << 30, **step), "samples": seen}
        found = explained(tmp_path / name, slurm=slurm, **parts)
        assert (found.verdict, found.cause) == ("killed_from_outside", "rss_polling")
        typed = [advice.override for advice in found.advice]
        assert ("os.pread" in typed) == (name == "mapped"), "what maps nothing has nothing to gain by it"
        assert "of its srun" in found.advice[-1].text
    unwatched = explained(tmp_path / "none", slurm=replace(slurm, step="0"))
    assert unwatched.cause == "rss_polling"
    assert not any("0 B" in line for line in unwatched.evidence), "nobody looked at U"


def test_the_poll_of_a_step_is_told_of_its_job_and_of_the_script_that_started_it(tmp_path: Path) -> None:
    """--job 42.0 knew it; --job 42 did not know how it ended, the script was to ask who sends SIGKILL."""
    rows = (
        "JobID|State|ExitCode|MaxRSS|ReqMem|AllocTRES\n"
        "42|FAILED|9:0||600M|cpu=1,mem=600M,node=1\n"
        "42.batch|FAILED|9:0|22748K||cpu=1,mem=600M,node=1\n"
        "42.0|CANCELLED by 0|0:9|172616K||cpu=1,mem=150M,node=1\n"
    )
    slurm = SlurmFacts(
        "42", tuple(parse_sacct(rows)), "sacct", gather_params="OverMemoryKill", gather="jobacct_gather/linux"
    )
    batch = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "4294967291"}
    script = outcome(environment=batch, exit_code=137, limit_bytes=64 << 30, limit_at="host")
    for name, parts in (("job", {}), ("script", {"outcome": script, "samples": ramp(50, 60)})):
        found = explained(tmp_path / name, slurm=slurm, **parts)
        assert (found.verdict, found.cause) == ("killed_from_outside", "rss_polling")
        assert "its step 42.0" in found.sentence
        assert "of its srun" in found.advice[-1].text
        assert found.advice[-1].override == "--mem=253M", "more than the poll had found"


@pytest.mark.parametrize(
    ("step", "verdict"), [("1", "healthy"), ("0", "oom_cgroup"), ("4294967291", "healthy")]
)
def test_a_kill_in_another_step_is_not_this_runs(tmp_path: Path, step: str, verdict: str) -> None:
    """43.0 was killed; the script went on with another step, or by itself. A task of 43.0 that ended well,
    and of which no kill was counted, was not the one.
    """
    ended = outcome(environment={"SLURM_JOB_ID": "43", "SLURM_STEP_ID": step}, exit_code=int(step == "0"))
    log = (
        "srun: error: n1: task 0: Out Of Memory\n"
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=43.0.\n"
    )
    for slurm in (facts("22.05-swallowed", "43"), None):
        found = explained(tmp_path, slurm=slurm, outcome=ended, samples=ramp(50, 60), log=log)
        assert found.verdict == verdict


def test_a_step_with_a_limit_of_its_own_is_advised_that_of_its_srun(tmp_path: Path) -> None:
    """srun --mem=150M in a job of 400 MB: sbatch --mem=192M was advised, less than the job had."""
    rows = (
        "JobID|State|ExitCode|ReqMem|AllocTRES\n"
        "42|COMPLETED|0:0|400M|cpu=1,mem=400M,node=1\n"
        "42.0|OUT_OF_MEMORY|0:125||cpu=1,mem=150M,node=1\n"
    )
    slurm = SlurmFacts("42", tuple(parse_sacct(rows)), "sacct")
    step = "/slurm/uid_0/job_42/step_0"
    ended = killed(**{**oom(), "peak_unreclaimable_bytes": 150 * MB}, limit_bytes=150 * MB, limit_at=step)
    for name, parts in (("watched", {"outcome": ended}), ("not", {})):
        found = explained(tmp_path / name, slurm=slurm, **parts)
        (advice,) = (one for one in found.advice if "more memory" in one.text)
        assert "for the step" in advice.text
        assert "of its srun" in advice.text
        assert advice.override == ("--mem=192M" if parts else "--mem=225M")
    packed = explained(tmp_path / "packed", slurm=slurm, outcome=ended, run=ours())
    assert "for each run that shares the job" in packed.advice[-1].text, "less than its job had was advised"
    run = ours()
    run["config"]["slurm"] = {"pack": 1}
    alone = explained(tmp_path / "alone", slurm=slurm, outcome=ended, run=run)
    assert "of its srun" in alone.advice[-1].text, "sbatch --mem was advised, which its srun does not ask for"


def test_a_script_is_not_advised_more_than_its_job_for_a_step_that_it_started(tmp_path: Path) -> None:
    """A script in a job of 600 MB, whose srun --mem=150M was killed: it was sent to sbatch --mem=768M."""
    rows = (
        "JobID|State|ExitCode|ReqMem|AllocTRES\n"
        "42|FAILED|1:0|600M|cpu=1,mem=600M,node=1\n"
        "42.batch|FAILED|1:0||cpu=1,mem=600M,node=1\n"
        "42.0|OUT_OF_MEMORY|0:125||cpu=1,mem=150M,node=1\n"
    )
    slurm = SlurmFacts("42", tuple(parse_sacct(rows)), "sacct")
    batch = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "4294967291"}
    ended = outcome(environment=batch, exit_code=1, limit_bytes=600 * MB, limit_at="/slurm/uid_0/job_42")
    found = explained(tmp_path, slurm=slurm, outcome=ended, samples=ramp(50, 160))
    assert found.verdict == "oom_cgroup"
    assert [one.override for one in found.advice] == ["--mem=225M"]
    assert "of its srun" in found.advice[0].text


def test_what_a_poll_of_rss_does_not_count(tmp_path: Path) -> None:
    """Pages that are mapped count however the kernel was told that they would be read."""
    line = "slurmstepd: error: Job 991 exceeded memory limit (5000000 > 4096000), being killed\n"
    found = explained(tmp_path, log=line)
    overrides = [advice.override for advice in found.advice]
    assert overrides[0] == "os.pread"
    assert "mmap.madvise(mmap.MADV_RANDOM)" not in overrides


def test_all_that_tells_what_a_job_was_given_is_kept_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--mem-per-gpu too: without it nobody knows afterwards what was asked for."""
    asked = {"SLURM_JOB_ID": "7", "SLURM_MEM_PER_GPU": "2048", "SLURM_GPUS_ON_NODE": "2"}
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    kept = beginning(Options(("true",), str(tmp_path)), 0.0)["environment"]
    assert kept == asked
    assert requested_memory(kept) == (4 << 30, "--mem-per-gpu x 2")
