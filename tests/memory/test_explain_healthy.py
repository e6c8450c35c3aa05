"""Runs that look alarming and are not: none of them may be called a death."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from evidence_builder import (
    GB,
    LIMIT,
    MAIN,
    MB,
    explained,
    oom,
    ours,
    outcome,
    process,
    ramp,
    record,
    sample,
)

from memory.evidence import Evidence
from memory.explain import explain
from memory.explain.text import as_text


def test_it_says_how_close_it_was(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=outcome(), samples=ramp(100, 300))
    assert (found.verdict, found.cause, found.confidence, found.near_limit) == (
        "healthy",
        "none",
        "certain",
        False,
    )
    lines = as_text(found).splitlines()
    assert lines[0] == "healthy (certain)"
    assert len(lines) <= 4
    assert "300 MB of 1.0 GB (29%" in lines[2]


def test_it_says_when_it_was_near(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        outcome=outcome(peak_unreclaimable_bytes=970 * MB),
        samples=[*ramp(100, 970), *ramp(970, 100)],
    )
    assert (found.verdict, found.near_limit) == ("healthy", True)
    assert "That is near" in as_text(found)


@pytest.mark.parametrize("where", ["outcome", "ring"])
def test_a_limit_that_nobody_could_see_is_none(tmp_path: Path, where: str) -> None:
    """A container without /sys/fs/cgroup: far from the machine's memory is not far from its limit."""
    unseen = {"unseen_cgroup": "/docker/ab12"}
    host = {"limit_at": "host", "limit_bytes": 24 * GB, "cgroup_path": None}
    found = explained(
        tmp_path,
        outcome=outcome(peak_unreclaimable_bytes=107 * MB, **host, **(unseen if where == "outcome" else {})),
        ring_facts={"pid": MAIN, "attempt": 1, "limit_at": "host", "host_total_bytes": 24 * GB}
        | (unseen if where == "ring" else {}),
        samples=[sample(at, 100 + at, limit_bytes=24 * GB) for at in range(8)],
    )
    assert (found.verdict, found.near_limit, found.limit_bytes) == ("healthy", None, None)
    text = as_text(found)
    assert "peaked at 107 MB (sampled). Its limit is not known." in text
    assert "/docker/ab12" in text
    assert "not near" not in text


def test_mapped_files_ten_times_the_limit(tmp_path: Path) -> None:
    samples = [
        sample(
            at,
            40,
            usage_bytes=LIMIT - MB,
            cache_bytes=900 * MB,
            tree_rss_bytes=10 * GB,
            tree_file_bytes=9 * GB,
        )
        for at in range(40)
    ]
    hits = {
        "counters_before": {"oom_kill": 0, "failcnt": 0},
        "counters_after": {"oom_kill": 0, "failcnt": 17_000_000},
    }
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=40 * MB, **hits), samples=samples)
    assert (found.verdict, found.cause, found.near_limit) == ("healthy", "cache", False)
    assert not [advice for advice in found.advice if (advice.override or "").startswith("--mem")]
    assert "leave --mem" in found.advice[0].text


def test_growth_that_levels_off(tmp_path: Path) -> None:
    samples = [sample(at, 100 + 850 * (1 - math.exp(-at / 15))) for at in range(150)]
    records = [
        record("end", "train", at, 100 + 850 * (1 - math.exp(-at / 15)), step=at) for at in range(1, 150)
    ]
    found = explained(
        tmp_path, outcome=outcome(peak_unreclaimable_bytes=950 * MB), samples=samples, records=records
    )
    assert (found.verdict, found.cause) == ("healthy", "none")


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_leak(tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    records = [record("end", "train", at, 400 + noise.gauss(0, 30), step=at) for at in range(1, 200)]
    samples = [sample(at, 400 + noise.gauss(0, 30)) for at in range(200)]
    found = explained(
        tmp_path, outcome=outcome(peak_unreclaimable_bytes=520 * MB), samples=samples, records=records
    )
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_a_sawtooth_is_no_leak(tmp_path: Path) -> None:
    samples = [sample(at, 200 + 60 * (at % 10)) for at in range(200)]
    found = explained(tmp_path, outcome=outcome(), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_a_load_at_the_beginning_is_no_leak(tmp_path: Path) -> None:
    samples = [sample(at, min(800, 100 + 20 * at)) for at in range(120)]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=800 * MB), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_a_child_that_ends_is_no_victim(tmp_path: Path) -> None:
    lost = [
        {"pid": 120, "name": "cc1plus", "parent_pid": MAIN, "last_anon_bytes": 700 * MB, "time_s": 1.7e9 + 5}
    ]
    found = explained(tmp_path, outcome=outcome(children_lost=lost), samples=ramp(100, 900))
    assert (found.verdict, found.victim) == ("healthy", None)


def test_a_kill_of_others_on_an_unlimited_machine(tmp_path: Path) -> None:
    """Without a limit of its own the counter is one that many share."""
    found = explained(
        tmp_path,
        outcome=outcome(limit_at="host", limit_bytes=64 * GB, **oom() | {"peak_unreclaimable_bytes": 3 * GB}),
        samples=[sample(at, 3000, limit=64 * GB) for at in range(20)],
    )
    assert found.verdict == "healthy"


def test_a_kill_of_a_neighbour_in_the_same_cgroup(tmp_path: Path) -> None:
    crowded = [sample(at, 1000, tree_anon_bytes=50 * MB, tree=(process(MAIN, 50),)) for at in range(20)]
    found = explained(tmp_path, outcome=outcome(**oom()), samples=crowded)
    assert found.verdict == "healthy"


def test_words_in_the_log_of_a_run_that_ended_well(tmp_path: Path) -> None:
    log = (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 10.00 GiB total capacity)\n"
        "caught; halving the batch\nMemoryError\nBus error\nNo space left on device\nDataLoader "
        "worker (pid 3) is "
        "killed by signal: Killed\n"
    )
    assert explained(tmp_path, outcome=outcome(), log=log).verdict == "healthy"


@pytest.mark.parametrize(
    "line",
    [
        "[  81.2] Out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB",
        "[  81.2] Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0.",
        "srun: error: n1: task 0: Out Of Memory",
        "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-03-02T10:02:27 DUE TO TIME LIMIT ***",
        "slurmstepd: error: StepId=77.0 exceeded memory limit (763363328 > 209715200), being killed",
    ],
)
def test_what_others_write_at_a_kill(tmp_path: Path, line: str) -> None:
    """No counter rose, and it ended with 0: whatever stands in its log, it did well."""
    ended = outcome(environment={"SLURM_JOB_ID": "78"})
    assert explained(tmp_path / "a", outcome=ended, log=f"{line}\n").verdict == "healthy"
    assert explained(tmp_path / "b", outcome=outcome(), log=f"sample 3.1: {line}\n").verdict == "healthy"
    assert (
        explained(tmp_path / "c", status={"state": "done"}, log=f"sample 3.1: {line}\n").verdict == "healthy"
    )


def test_shared_memory_within_bounds(tmp_path: Path) -> None:
    samples = [
        sample(at, 300, shmem_bytes=250 * MB, anon_bytes=50 * MB, tree_anon_bytes=50 * MB) for at in range(30)
    ]
    found = explained(tmp_path, outcome=outcome(), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_a_full_dev_shm_that_hurt_nobody(tmp_path: Path) -> None:
    left = {"total_bytes": 1 * GB, "used_before_bytes": 900 * MB, "used_after_bytes": 900 * MB}
    found = explained(tmp_path, outcome=outcome(dev_shm=left), samples=ramp(100, 200))
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_a_machine_low_on_memory(tmp_path: Path) -> None:
    samples = [sample(at, 300, host_available_bytes=90 * MB) for at in range(30)]
    assert explained(tmp_path, outcome=outcome(), samples=samples).verdict == "healthy"


def test_reading_a_large_file_once(tmp_path: Path) -> None:
    """Faults from disk, but nothing is read twice."""
    samples = [
        sample(at, 30, usage_bytes=LIMIT - MB, cache_bytes=950 * MB, major_faults=400 * at, refaults=10 * at)
        for at in range(30)
    ]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=30 * MB), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "cache")


def test_a_run_that_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    explained(folder, samples=ramp(100, 400), status={"state": "running", "attempt": 1}, run=ours())
    evidence = Evidence(folder)
    assert evidence.ring is not None
    late = evidence.ring.samples[-1].time_s
    from memory.explain.facts import Facts

    facts = Facts(evidence, now_s=late + 3)
    assert facts.is_running
    assert not facts.vanished
    facts = Facts(Evidence(folder), now_s=late + 3000)
    assert not facts.is_running
    assert explain(Evidence(folder)).verdict == "unknown"


def test_rss_above_the_limit_where_usage_is_not_known(tmp_path: Path) -> None:
    samples = [
        sample(at, 40, usage_bytes=None, tree_rss_bytes=3 * GB, tree_file_bytes=2 * GB) for at in range(20)
    ]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=40 * MB), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "cache")
    assert "RSS above the limit is mapped files" in found.sentence


def test_rss_above_the_limit_by_pages_shared_since_a_fork(tmp_path: Path) -> None:
    """60 readers of 120 MB: 7 GB in all, of which the cgroup counts 120 MB."""
    samples = [
        sample(at, 120, tree_rss_bytes=7 * GB, tree_file_bytes=120 * MB, tree_anon_bytes=7 * GB - 120 * MB)
        for at in range(20)
    ]
    found = explained(tmp_path, outcome=outcome(), samples=samples)
    told = next(finding for finding in found.findings if finding.rule == "rss_above_the_limit")
    assert "mapped files" not in told.says
    assert "since a fork" in told.says
    assert (found.verdict, found.cause) == ("healthy", "none")


def test_swap_is_told(tmp_path: Path) -> None:
    samples = [sample(at, 800, swap_bytes=at * 40 * MB) for at in range(20)]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=800 * MB), samples=samples)
    assert (found.verdict, found.cause) == ("healthy", "thrash")
    assert "went to swap" in found.sentence


def test_a_limit_that_was_raised(tmp_path: Path) -> None:
    """From 300 MB to 1 GB; then it grew to 400. 300 MB were never 400 MB of 300."""
    samples = ramp(50, 100, 10, limit=300 * MB) + [
        sample(at, 400 if at > 13 else 100) for at in range(11, 30)
    ]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=400 * MB), samples=samples)
    assert (found.verdict, found.near_limit) == ("healthy", False)
    assert (found.peak_bytes, found.limit_bytes) == (400 * MB, LIMIT)
    assert any(
        "the limit changed while it ran: 300 MB, 1.0 GB; U came to 39%" in line for line in found.evidence
    )


def test_near_a_limit_before_that_was_raised(tmp_path: Path) -> None:
    samples = ramp(50, 290, 10, limit=300 * MB) + [sample(at, 400) for at in range(11, 30)]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=400 * MB), samples=samples)
    assert (found.verdict, found.near_limit) == ("healthy", True)
    assert (found.peak_bytes, found.limit_bytes) == (400 * MB, LIMIT)
    assert any("U came to 97% of what stood" in line for line in found.evidence)


def test_a_neighbour_that_was_killed_in_the_same_cgroup_is_told(tmp_path: Path) -> None:
    """What was sampled is far from the limit, and the kernel met it: Slurm will call this OUT_OF_MEMORY."""
    beside = [sample(at, 93, tree_anon_bytes=30 * MB, beside_anon_bytes=60 * MB) for at in range(8)]
    counted = oom(kills=1, hits=1041) | {"peak_unreclaimable_bytes": 93 * MB}
    found = explained(tmp_path, outcome=outcome(**counted), samples=beside)
    assert (found.verdict, found.cause, found.near_limit) == ("healthy", "none", True)
    told = as_text(found)
    assert "killed for memory once" in told
    assert "the limit was met 1,041 times" in told.replace("\n", " ")
    assert "not near" not in told


@pytest.mark.parametrize(
    ("after_mb", "verdict"),
    [(5, "healthy"), (9.5, "oom_cgroup")],
    ids=["a_neighbour_is_gone", "those_beside_are_still_there"],
)
def test_a_neighbour_that_filled_the_job_between_two_samples(
    tmp_path: Path, after_mb: float, verdict: str
) -> None:
    """No sample saw U rise; a child of the run that lived as shortly would have left no other trace."""
    samples = [
        sample(
            at,
            36 + held,
            tree_anon_bytes=36 * MB,
            beside_anon_bytes=int(held * MB),
            oom_kills=int(at >= 4),
        )
        for at, held in ((at, 10 if at < 4 else after_mb) for at in range(10))
    ]
    counted = oom(kills=1, hits=104) | {"peak_unreclaimable_bytes": 46 * MB}
    found = explained(tmp_path, outcome=outcome(**counted), samples=samples)
    assert found.verdict == verdict
    assert "killed for memory once" in " ".join(finding.says for finding in found.findings)
