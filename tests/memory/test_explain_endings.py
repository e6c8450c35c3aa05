"""How a run ended and how near its limit it was, by evidence that no recorded death left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from evidence_builder import (
    GB,
    JOB,
    LIMIT,
    MAIN,
    MB,
    START_S,
    TASK,
    explained,
    killed,
    oom,
    ours,
    outcome,
    process,
    ramp,
    record,
    sample,
    typed,
    write,
)

from memory.evidence import Evidence
from memory.explain import explain
from memory.explain.facts import Facts
from memory.explain.text import as_text
from memory.samples import Sample

HEAD = "== 2026-01-01 00:00:00 unreclaimable 940 MB of 1.0 GB: process 100 python, anon 930 MB =="


def lost(pid: int, anon_mb: int, at_s: float) -> dict[str, Any]:
    """A child that vanished."""
    child = {"pid": pid, "name": "python", "parent_pid": MAIN, "last_anon_bytes": anon_mb * MB}
    return {"children_lost": [child | {"time_s": START_S + at_s}]}


def script(folder: Path, text: str) -> list[str]:
    """The command that runs it."""
    folder.mkdir(exist_ok=True)
    path = folder / "script.py"
    path.write_text(text)
    os.utime(path, (1, 1))
    return ["python", str(path)]


@pytest.mark.parametrize("code", [1, 0])
def test_kernel_killed_child(tmp_path: Path, code: int) -> None:
    """Its parent failed for it, or swallowed it."""
    seen = [*ramp(200, 1020, 29), sample(30, 300, oom_kills=1), sample(60, 300, oom_kills=1)]
    found = explained(
        tmp_path, outcome=outcome(exit_code=code, **lost(120, 700, 29.5), **oom()), samples=seen
    )
    assert (found.verdict, found.confidence) == ("oom_cgroup", "likely")
    assert found.victim is not None
    assert (found.victim.is_main, found.victim.pid) == (False, 120)


def test_wrong_victim_lowers_confidence(tmp_path: Path) -> None:
    victim = {"pid": MAIN, "name": "python", "is_main": True}
    found = explained(tmp_path, outcome=outcome(exit_code=0, victim=victim, **oom()), samples=ramp(100, 1000))
    assert (found.verdict, found.confidence, len(found.doubts)) == ("oom_cgroup", "likely", 1)


def test_group_kill_is_counted(tmp_path: Path) -> None:
    counters = oom(3)
    counters["counters_before"]["oom_group_kill"], counters["counters_after"]["oom_group_kill"] = 0, 1
    found = explained(tmp_path, outcome=killed(**counters), samples=ramp(200, 1015))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert found.findings[0].rule == "killed_as_group"


def test_machine_ran_out(tmp_path: Path) -> None:
    """The counter also counts kills for the whole machine; the cgroup never met its limit."""
    counters = oom(1, hits=0) | {"peak_unreclaimable_bytes": 300 * MB}
    counters["counters_after"]["oom"] = 0
    samples = [sample(at, 300, host_available_bytes=(4000 - 130 * at) * MB) for at in range(30)]
    records = [record("begin", "train", 25, 300)]
    found = explained(tmp_path, outcome=killed(**counters), samples=samples, records=records)
    assert (found.verdict, found.cause, found.confidence) == ("oom_host", "neighbours", "likely")


@pytest.mark.parametrize("kills_at", [4, -1])
def test_main_process_that_outlived_kill_is_not_its_victim(tmp_path: Path, kills_at: int) -> None:
    """The ring tells when the count rose; it died seconds later, or had begun after it."""
    told = killed(**oom() | {"ended_s": START_S + 10, "peak_unreclaimable_bytes": 0})
    samples = [sample(at, 100, oom_kills=int(at >= kills_at)) for at in range(10)]
    assert explained(tmp_path, outcome=told, samples=samples).verdict == "killed_from_outside"


def test_sigkill_where_no_cgroup_is_visible(tmp_path: Path) -> None:
    """No /sys: neither the limit nor a count; 150 MB of the machine's 24 GB say nothing."""
    unseen = {
        "counters_before": {}, "counters_after": {}, "limit_at": "host", "limit_bytes": 24 << 30,
        "cgroup_path": None, "peak_unreclaimable_bytes": 150 * MB,
    }  # fmt: skip
    found = explained(tmp_path / "silent", outcome=killed(**unseen), samples=[])
    assert (found.verdict, found.confidence) == ("unknown", "possible")
    said = "Memory cgroup out of memory: Killed process 100 (python)"
    victim = {"pid": MAIN, "name": "python", "is_main": True, "said": said}
    found = explained(tmp_path / "log", outcome=killed(victim=victim, **unseen), samples=[])
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    child = explained(tmp_path / "child", outcome=killed(victim=victim | {"is_main": False}, **unseen))
    assert child.verdict == "unknown", "no word for the main process"


def test_supervisor_alone_was_killed(tmp_path: Path) -> None:
    """At the limit; what is there of the run is older, or says that it lived on."""
    found = explained(tmp_path / "silent", samples=ramp(200, 1020))
    assert (found.verdict, found.confidence, found.victim) == ("oom_cgroup", "likely", None)
    records = [record("begin", "train", 5, 200), record("end", "train", 55, 200)]
    found = explained(tmp_path / "heard", samples=ramp(200, 1020), records=records)
    assert (found.verdict, found.victim) == ("unknown", None)


def test_everything_gone_on_way_to_limit(tmp_path: Path) -> None:
    """Nothing tells of the end; the last sample was 87% of the limit, rising fast."""
    rising = [sample(at / 10, 100 + 50 * at) for at in range(17)]
    found = explained(tmp_path / "rising", samples=rising)
    assert (found.verdict, found.confidence) == ("oom_cgroup", "possible")
    assert (
        explained(tmp_path / "flat", samples=[sample(at / 10, 500) for at in range(17)]).verdict == "unknown"
    )
    log = "OSError: [Errno 28] No space left on device\n"
    full = explained(tmp_path / "disk", samples=ramp(200, 1015), log=log)
    assert (full.verdict, full.victim) == ("oom_cgroup", None)


@pytest.mark.parametrize(
    ("name", "command", "verdict"),
    [
        ("SIGKILL", ["timeout", "-s", "KILL", "60", "python", "a.py"], "timeout"),
        ("SIGTERM", ["timeout", "1m", "python", "a.py"], "timeout"),
        ("SIGTERM", ["timeout", "1h", "python", "a.py"], "terminated"),
        ("SIGALRM", ["python", "a.py"], "timeout"),
        ("SIGXCPU", ["python", "a.py"], "timeout"),
        ("SIGPIPE", ["python", "a.py"], "failed"),
        ("signal 40", ["python", "a.py"], "failed"),
    ],
)
def test_signal_by_name(tmp_path: Path, name: str, command: list[str], verdict: str) -> None:
    assert explained(tmp_path, outcome=killed(name, command=command), samples=ramp(10, 20)).verdict == verdict


@pytest.mark.parametrize(
    ("code", "with_child", "verdict", "cause"),
    [
        (124, False, "timeout", "none"),
        (137, False, "failed", "none"),
        (137, True, "killed_from_outside", "none"),
        (135, False, "failed", "none"),
        (135, True, "failed", "truncated_file"),
        (143, False, "terminated", "none"),
    ],
)
def test_exit_code_that_shells_use(
    tmp_path: Path, code: int, with_child: bool, verdict: str, cause: str
) -> None:
    tree = (process(MAIN, 5), process(MAIN + 1, 50))
    ran = [sample(at, 55, **({"processes": 2, "tree": tree} if with_child else {})) for at in range(20)]
    command = ["/usr/bin/timeout", "60", "python", "a.py"] if code == 124 else ["python", "a.py"]
    found = explained(tmp_path, outcome=outcome(exit_code=code, command=command), samples=ran)
    assert (found.verdict, found.cause) == (verdict, cause)
    assert (found.confidence == "certain") == (code == 124), "a program may exit so by itself"


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGWINCH", "SIGCONT"])
def test_signal_that_ends_nothing_before_error(tmp_path: Path, name: str) -> None:
    sent = [{"signal": name, "time_s": START_S + 55, "from_pid": 5}]
    found = explained(tmp_path, outcome=outcome(exit_code=3, signals_passed_on=sent), samples=ramp(10, 20))
    assert found.verdict == "failed"


def test_nothing_at_all(tmp_path: Path) -> None:
    found = explained(tmp_path)
    assert (found.verdict, found.cause) == ("unknown", "unknown")
    assert typed(found) == ["python -m memory run --output DIR -- COMMAND"]


def test_records_alone(tmp_path: Path) -> None:
    done = [record("begin", "load", 1, 100), record("end", "load", 2, 100)]
    found = explained(tmp_path, records=done)
    assert (found.verdict, found.confidence) == ("unknown", "possible")


@pytest.mark.parametrize(("end", "is_cut"), [('"/lib/a.py"', True), ('"a.py", line 3 in f\n', False)])
def test_crash_within_answer_of_stacks(tmp_path: Path, end: str, is_cut: bool) -> None:
    box = tmp_path / "memory.blackbox.1.txt"
    box.write_text(f"{HEAD}\nCurrent thread 0x00007f6736814b80 (most recent call first):\n  File {end}")
    found = explained(tmp_path, outcome=killed("SIGSEGV"), samples=ramp(10, 20))
    assert found.verdict == "failed"
    assert bool(found.advice) == is_cut


def test_sigbus_by_file_cut_short(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed("SIGBUS"), samples=ramp(100, 150, 10), run=ours())
    assert (found.verdict, found.cause) == ("failed", "truncated_file")
    assert "python pretokenize_dataset.py verify tokens.npy" in typed(found)


def test_room_that_no_file_is_named_for(tmp_path: Path) -> None:
    """posix_fallocate(2) of shared memory says the same as a disk that is full."""
    log = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
    log += "OSError: [Errno 28] No space left on device{}\n"
    ended = outcome(exit_code=1, command=script(tmp_path, "open('/dev/shm/a', 'w')\n"))
    for name, parts, cause in (
        ("unknown", {"outcome": outcome(exit_code=1), "log": log.format("")}, "disk_full"),
        ("script", {"outcome": ended, "log": log.format("")}, "none"),
        ("named", {"outcome": ended, "log": log.format(": '/data/a.bin'")}, "disk_full"),
    ):
        found = explained(tmp_path / name, samples=ramp(50, 60), **parts)
        assert (found.verdict, found.cause) == ("failed", cause)


# limits and neighbours


def growing(ours: int, theirs: int) -> list[Sample]:
    """A run beside others in its cgroup, by that many MB a second."""
    return [
        sample(at, (ours + theirs) * at, tree_anon_bytes=ours * at * MB, tree=(process(MAIN, ours * at),))
        for at in range(1, 21)
    ]


@pytest.mark.parametrize(("host", "cause"), [("n1", "leak"), ("n2", "neighbours")])
def test_other_ranks_on_same_node_are_no_neighbours(tmp_path: Path, host: str, cause: str) -> None:
    facts = {"pid": MAIN + 1, "attempt": 1, "host": host, "limit_at": JOB}
    write(tmp_path / "rank1", samples=growing(40, 10), ring_facts=facts)
    found = explained(tmp_path, outcome=killed(**oom()), samples=growing(10, 40))
    assert (found.verdict, found.cause) == ("oom_cgroup", cause)


@pytest.mark.parametrize(("step", "cause"), [("0", "leak"), ("1", "neighbours")])
def test_other_tasks_of_step_are_no_neighbours(tmp_path: Path, step: str, cause: str) -> None:
    """As `srun bash -c 'python -m memory run --output mem/$SLURM_PROCID ...'` leaves them behind."""

    def facts(task: int, step: str) -> dict[str, Any]:
        named = {"JOB_ID": "7", "STEP_ID": step, "PROCID": str(task), "NTASKS": "2"}
        environment = {f"SLURM_{name}": value for name, value in named.items()}
        return {"pid": MAIN + task, "attempt": 1, "host": "n1", "limit_at": JOB, "environment": environment}

    write(tmp_path / "1", samples=growing(40, 10), ring_facts=facts(1, step))
    found = explained(
        tmp_path / "0", outcome=killed(**oom()), samples=growing(10, 40), ring_facts=facts(0, "0")
    )
    assert found.cause == cause


def levels(above: int, own: int) -> list[dict[str, Any]]:
    """Kills that were counted at the job, whose limit it is, and at the task in it."""
    return [
        {"path": TASK, "limit_bytes": None, "oom_kill_before": 2, "oom_kill_after": 2 + own},
        {"path": JOB, "limit_bytes": LIMIT, "oom_kill_before": 2, "oom_kill_after": 2 + above},
    ]


def test_kill_of_neighbour(tmp_path: Path) -> None:
    """It counts in the cgroup whose limit it is, not in the run's own; or U was not the run's."""
    parents = outcome(parents=levels(1, 0), **oom())
    assert explained(tmp_path / "level", outcome=parents, samples=ramp(100, 200)).verdict == "healthy"
    beside = [sample(at, 93, tree_anon_bytes=30 * MB, beside_anon_bytes=60 * MB) for at in range(8)]
    counted = oom(kills=1, hits=1041) | {"peak_unreclaimable_bytes": 93 * MB}
    found = explained(tmp_path / "beside", outcome=outcome(**counted), samples=beside)
    assert (found.verdict, found.cause, found.near_limit) == ("healthy", "none", True)
    shared = outcome(limit_at="host", limit_bytes=64 * GB, **oom() | {"peak_unreclaimable_bytes": 3 * GB})
    samples = [sample(at, 3000, limit=64 * GB) for at in range(20)]
    assert explained(tmp_path / "host", outcome=shared, samples=samples).verdict == "healthy"


@pytest.mark.parametrize(("after_mb", "verdict"), [(5, "healthy"), (9.5, "oom_cgroup")])
def test_neighbour_that_filled_job_between_two_samples(tmp_path: Path, after_mb: float, verdict: str) -> None:
    """No sample saw U rise: what was beside the run before is gone, or is still there."""
    samples = [
        sample(at, 36 + held, tree_anon_bytes=36 * MB, beside_anon_bytes=int(held * MB), oom_kills=at // 4)
        for at, held in ((at, 10 if at < 4 else after_mb) for at in range(8))
    ]
    counted = oom(kills=1, hits=104) | {"peak_unreclaimable_bytes": 46 * MB}
    assert explained(tmp_path, outcome=outcome(**counted), samples=samples).verdict == verdict


def test_limit_seen_before_cgroup_was_gone(tmp_path: Path) -> None:
    """The last look was at a process without a cgroup, so at the whole machine."""
    ended = killed(parents=levels(1, 1), **oom() | {"limit_bytes": 64 * GB, "limit_at": "host"})
    samples = [*ramp(200, 1015), sample(31, 1015, limit=64 * GB, usage_bytes=None)]
    found = explained(tmp_path, outcome=ended, samples=samples)
    assert (found.verdict, found.limit_bytes) == ("oom_cgroup", LIMIT)


def test_limit_below_known_one(tmp_path: Path) -> None:
    """A container within the job has a smaller one of its own: the known one was never met."""
    counts = {
        "counters_before": {"oom_kill": 0, "failcnt": 0},
        "counters_after": {"oom_kill": 1, "failcnt": 0},
    }
    ended = outcome(exit_code=1, peak_unreclaimable_bytes=70 * MB, **lost(7, 60, 9), **counts)
    found = explained(tmp_path, outcome=ended, samples=ramp(10, 70, oom_kills=None))
    assert (found.verdict, found.near_limit) == ("oom_cgroup", False)
    assert not [words for words in typed(found) if words.startswith("--mem")]


@pytest.mark.parametrize("where", ["outcome", "ring"])
def test_limit_that_is_not_visible(tmp_path: Path, where: str) -> None:
    """A container without /sys/fs/cgroup: far from the machine's memory is not far from its limit."""
    unseen = {"unseen_cgroup": "/docker/ab12"}
    host = {"limit_at": "host", "limit_bytes": 24 * GB, "cgroup_path": None}
    facts = {"pid": MAIN, "attempt": 1, "limit_at": "host", "host_total_bytes": 24 * GB}
    found = explained(
        tmp_path,
        outcome=outcome(peak_unreclaimable_bytes=107 * MB, **host, **(unseen if where == "outcome" else {})),
        ring_facts=facts | (unseen if where == "ring" else {}),
        samples=[sample(at, 100 + at, limit_bytes=24 * GB) for at in range(8)],
    )
    assert (found.verdict, found.near_limit, found.limit_bytes) == ("healthy", None, None)


@pytest.mark.parametrize(("top_mb", "is_near"), [(290, True), (100, False)])
def test_limit_that_was_raised(tmp_path: Path, top_mb: int, is_near: bool) -> None:
    """From 300 MB to 1 GB; then it grew to 400. 300 MB were never 400 MB of 300."""
    samples = ramp(50, top_mb, 10, limit=300 * MB) + [sample(at, 400) for at in range(11, 30)]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=400 * MB), samples=samples)
    assert (found.verdict, found.near_limit) == ("healthy", is_near)
    assert (found.peak_bytes, found.limit_bytes) == (400 * MB, LIMIT)


@pytest.mark.parametrize(("peak_mb", "is_near"), [(300, False), (970, True)])
def test_healthy_run_in_few_lines(tmp_path: Path, peak_mb: int, is_near: bool) -> None:
    samples = [*ramp(100, peak_mb), *ramp(peak_mb, 100)]
    found = explained(tmp_path, outcome=outcome(peak_unreclaimable_bytes=peak_mb * MB), samples=samples)
    assert (found.verdict, found.cause, found.confidence) == ("healthy", "none", "certain")
    assert found.near_limit is is_near
    assert len(as_text(found).splitlines()) <= 4 or is_near


def test_run_that_runs(tmp_path: Path) -> None:
    folder = write(tmp_path, samples=ramp(100, 400), status={"state": "running", "attempt": 1}, run=ours())
    late = START_S + 30
    facts = Facts(Evidence(folder), now_s=late + 3)
    assert facts.is_running
    assert not facts.vanished
    assert not Facts(Evidence(folder), now_s=late + 3000).is_running
    assert explain(Evidence(folder)).verdict == "unknown"


def test_log_that_is_empty_is_not_missing(tmp_path: Path) -> None:
    before = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(50, 60)).missing
    (tmp_path / "stdout.txt").touch()
    after = explain(Evidence(tmp_path)).missing
    assert [line for line in before if "--log" in line]
    assert not [line for line in after if "--log" in line]
