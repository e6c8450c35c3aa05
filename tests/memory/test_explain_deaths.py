"""Each death is called what it is, on the evidence that it leaves."""

from __future__ import annotations

import json
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
    write,
)

from memory.explain import Explanation
from memory.samples import Sample

TRACEBACK = "Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\n"


def test_main_process_killed_at_the_limit(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        outcome=killed(**oom()),
        samples=ramp(200, 1020),
        records=[record("begin", "train", 25, 900, step=1200)],
    )
    assert (found.verdict, found.confidence, found.near_limit) == ("oom_cgroup", "certain", True)
    assert found.victim is not None
    assert (found.victim.is_main, found.victim.pid, found.victim.name) == (True, MAIN, "python")
    lines = "\n".join(found.evidence)
    assert "1 kill for memory" in lines
    assert "outcome.json" in lines
    assert "stage train step 1,200 had begun" in lines
    assert "200 MB to 1.0 GB" in lines, "the growth before"
    assert found.advice[-1].override == "--mem=1280M"


def test_a_kill_faster_than_the_samples(tmp_path: Path) -> None:
    found = explained(
        tmp_path, outcome=killed(**oom() | {"peak_unreclaimable_bytes": 40 * MB}), samples=ramp(20, 40)
    )
    assert found.verdict == "oom_cgroup"
    assert found.near_limit is True, "the kernel says that the limit was met"
    assert found.confidence == "likely"
    assert "rose faster than it was sampled" in found.doubts[0]


@pytest.mark.parametrize("first_mb", [200, 3000], ids=["raised", "lowered"])
def test_killed_at_a_limit_that_was_another_before(tmp_path: Path, first_mb: int) -> None:
    samples = ramp(50, 150, 10, limit=first_mb * MB)
    samples += [sample(11 + at, 150 + 87 * at) for at in range(11)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.limit_bytes, found.cause) == ("oom_cgroup", LIMIT, "growth")
    assert "(1.0 GB of" in found.sentence
    assert not any("4%)" in line and "%)" in line and "104" in line for line in found.evidence)
    assert any("1020 MB of 1.0 GB" in line or "1.0 GB of 1.0 GB" in line for line in found.evidence)


def test_a_worker_killed(tmp_path: Path) -> None:
    lost = [
        {
            "pid": 120,
            "name": "pt_data_worker",
            "parent_pid": MAIN,
            "last_anon_bytes": 700 * MB,
            "time_s": START_S + 29,
        }
    ]
    found = explained(
        tmp_path,
        outcome=outcome(exit_code=1, children_lost=lost, **oom()),
        samples=[*ramp(200, 1020, 29), sample(30, 300, oom_kills=1)],
        log=TRACEBACK + "RuntimeError: DataLoader worker (pid 120) is killed by signal: Killed. \n",
    )
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert found.victim is not None
    assert (found.victim.is_main, found.victim.pid, found.victim.name) == (False, 120, "pt_data_worker")


def test_the_supervisors_word_for_the_victim(tmp_path: Path) -> None:
    victim = {"pid": 133, "name": "cc1plus", "is_main": False}
    found = explained(tmp_path, outcome=outcome(exit_code=2, victim=victim, **oom()), samples=ramp(100, 900))
    assert found.victim is not None
    assert (found.victim.pid, found.victim.name) == (133, "cc1plus")


def test_a_wrong_victim_lowers_confidence(tmp_path: Path) -> None:
    victim = {"pid": MAIN, "name": "python", "is_main": True}
    found = explained(tmp_path, outcome=outcome(exit_code=0, victim=victim, **oom()), samples=ramp(100, 1000))
    assert found.verdict == "oom_cgroup"
    assert found.confidence == "likely"
    assert "names the main process as the victim" in found.doubts[0]


def test_an_oom_kill_that_was_swallowed(tmp_path: Path) -> None:
    lost = [
        {
            "pid": 120,
            "name": "python",
            "parent_pid": MAIN,
            "last_anon_bytes": 700 * MB,
            "time_s": START_S + 30,
        }
    ]
    found = explained(
        tmp_path,
        outcome=outcome(children_lost=lost, **oom()),
        samples=[*ramp(200, 1020, 29), sample(30, 300, oom_kills=1), sample(60, 300, oom_kills=1)],
    )
    assert (found.verdict, found.confidence) == ("oom_cgroup", "likely")
    assert "ended well" in found.sentence
    assert found.victim is not None
    assert not found.victim.is_main


def test_a_shell_told_of_its_childs_sigkill(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=outcome(exit_code=137, **oom()), samples=ramp(200, 1000))
    assert found.verdict == "oom_cgroup"
    assert found.victim is not None
    assert not found.victim.is_main


def test_all_killed_at_once(tmp_path: Path) -> None:
    """memory.oom.group=1: the supervisor is gone too, the ring is what is left."""
    found = explained(tmp_path, samples=ramp(200, 1015), status={"state": "running", "attempt": 1})
    assert (found.verdict, found.confidence) == ("oom_cgroup", "likely")
    assert any("no outcome.json" in line for line in found.missing)


def test_a_group_kill_that_was_counted(tmp_path: Path) -> None:
    counters = oom(3)
    counters["counters_before"]["oom_group_kill"], counters["counters_after"]["oom_group_kill"] = 0, 1
    found = explained(tmp_path, outcome=killed(**counters), samples=ramp(200, 1015))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert "memory.oom.group" in found.sentence


def test_a_kill_that_no_counter_tells_of(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        outcome=killed(counters_before={}, counters_after={}, peak_unreclaimable_bytes=1015 * MB),
        samples=ramp(200, 1015, oom_kills=None),
    )
    assert (found.verdict, found.confidence) == ("oom_cgroup", "likely")


def test_the_machine_ran_out(tmp_path: Path) -> None:
    """The counter also counts kills for the whole machine; the cgroup never met its limit."""
    counters = oom(1, hits=0) | {"peak_unreclaimable_bytes": 300 * MB}
    counters["counters_after"]["oom"] = 0
    found = explained(
        tmp_path,
        outcome=killed(**counters),
        samples=[sample(at, 300, host_available_bytes=(4000 - 130 * at) * MB) for at in range(30)],
        records=[record("begin", "train", 25, 300)],
    )
    assert (found.verdict, found.cause) == ("oom_host", "neighbours")
    assert found.confidence == "likely"


def test_the_machine_ran_out_by_the_kernels_log(tmp_path: Path) -> None:
    line = (
        "[  812.1] Out of memory: Killed process 100 (python) total-vm:9012kB, anon-rss:8012kB, "
        "file-rss:0kB, "
        "shmem-rss:0kB, UID:0 pgtables:64kB oom_score_adj:0"
    )
    found = explained(tmp_path, outcome=killed(limit_at="host", limit_bytes=64 * GB), log=line)
    assert (found.verdict, found.confidence) == ("oom_host", "certain")


def test_the_kernels_log_names_the_victim(tmp_path: Path) -> None:
    line = (
        "[  812.1] Memory cgroup out of memory: Killed process 4711 (python3) total-vm:9012kB, "
        "anon-rss:8012kB, "
        "file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:64kB oom_score_adj:0"
    )
    found = explained(tmp_path, log=line)
    assert (found.verdict, found.confidence) == ("oom_cgroup", "likely")
    assert found.victim is not None
    assert (found.victim.pid, found.victim.name) == (4711, "python3")


@pytest.mark.parametrize(
    "line",
    [
        "MemoryError",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB for an array with "
        "shape (1073741824,) "
        "and data type int64",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't "
        "allocate memory: you "
        "tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)",
        "OSError: [Errno 12] Cannot allocate memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_memory_errors(tmp_path: Path, line: str) -> None:
    limits = {"as_bytes": 2 * GB, "data_bytes": None}
    found = explained(
        tmp_path, outcome=outcome(exit_code=1, rlimits=limits), samples=ramp(100, 700), log=TRACEBACK + line
    )
    assert (found.verdict, found.cause, found.confidence) == ("memory_error", "rlimit", "certain")
    assert "RLIMIT_AS (ulimit -v) is 2.0 GB" in found.sentence
    assert found.advice[0].override == "ulimit -v unlimited; ulimit -d unlimited"
    if "8.00 GiB" in line or "8589934592" in line:
        assert "8.0 GB" in found.sentence


def test_a_memory_error_that_was_caught(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=outcome(), log=TRACEBACK + "MemoryError\nwent on without\n")
    assert found.verdict == "healthy"


def test_a_memory_error_of_an_earlier_attempt(tmp_path: Path) -> None:
    log = "run a, attempt 1, on cpu\n" + TRACEBACK + "MemoryError\nrun a, attempt 2, on cpu\nValueError: x\n"
    found = explained(
        tmp_path,
        outcome=outcome(exit_code=1, attempt=2),
        status={"attempt": 2, "state": "failed", "reason": "ValueError: x"},
        log=log,
    )
    assert found.verdict == "failed"


def test_killed_from_outside(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed(), samples=ramp(200, 300, 60))
    assert (found.verdict, found.confidence) == ("killed_from_outside", "certain")
    assert found.near_limit is False
    assert not [advice for advice in found.advice if (advice.override or "").startswith("--mem")]


def test_killed_at_the_limit_but_not_by_the_kernel(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed(peak_unreclaimable_bytes=1015 * MB), samples=ramp(200, 1015))
    assert (found.verdict, found.confidence) == ("killed_from_outside", "likely")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_asked_to_stop(tmp_path: Path, name: str) -> None:
    passed = [{"signal": name, "time_s": START_S + 59, "from_pid": 77}]
    found = explained(tmp_path, outcome=killed(name, signals_passed_on=passed), samples=ramp(200, 300, 60))
    assert (found.verdict, found.confidence) == ("terminated", "certain")
    assert any("pid 77" in line for line in found.evidence)


def test_asked_to_stop_and_did(tmp_path: Path) -> None:
    status = {"state": "cancelled", "attempt": 1, "reason": "stopped by SIGTERM"}
    found = explained(tmp_path, outcome=outcome(exit_code=1), status=status, run=ours())
    assert (found.verdict, found.confidence) == ("terminated", "certain")
    assert any("checkpoint" in advice.text for advice in found.advice)


def test_stopped_by_the_death_of_its_supervisor_or_by_somebody(tmp_path: Path) -> None:
    """Both are a SIGTERM, and nobody is left to tell which."""
    status = {"state": "cancelled", "attempt": 1, "reason": "stopped by SIGTERM"}
    found = explained(tmp_path, samples=ramp(200, 300, 60), status=status, run=ours())
    assert (found.verdict, found.confidence) == ("terminated", "likely")
    assert "when its supervisor is killed" in found.sentence


def test_a_status_alone(tmp_path: Path) -> None:
    """A run of experiments.py from before there was a supervisor."""
    for state, reason, verdict in (
        ("done", None, "healthy"),
        ("failed", "ValueError: no such token file", "failed"),
        ("failed", "MemoryError: ", "memory_error"),
        ("cancelled", "interrupted (Ctrl-C)", "terminated"),
        ("running", None, "unknown"),
    ):
        status = {"state": state, "attempt": 1, "reason": reason, "heartbeat_s": START_S}
        found = explained(tmp_path / f"{state}{verdict}", status=status, run=ours())
        assert found.verdict == verdict, state
        assert any("python -m memory run" in line for line in found.missing)


def test_timeout_of_coreutils(tmp_path: Path) -> None:
    found = explained(
        tmp_path, outcome=outcome(exit_code=124, command=["/usr/bin/timeout", "60", "python", "a.py"])
    )
    assert (found.verdict, found.confidence) == ("timeout", "certain")


@pytest.mark.parametrize("late_s", [0, 31])
def test_the_jobs_time_was_up(tmp_path: Path, late_s: int) -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(START_S) + 60)}
    found = explained(
        tmp_path,
        outcome=killed("SIGTERM", ended_s=START_S + 60 + late_s, environment=environment),
        samples=ramp(10, 20),
    )
    assert found.verdict in ("timeout", "terminated")
    assert found.confidence in ("certain", "likely")


def test_an_error_of_its_own(tmp_path: Path) -> None:
    found = explained(
        tmp_path, outcome=outcome(exit_code=1), samples=ramp(10, 20), log=TRACEBACK + "KeyError: 'x'\n"
    )
    assert (found.verdict, found.cause) == ("failed", "none")
    assert any("KeyError: 'x'" in line for line in found.evidence)


def test_a_crash(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed("SIGSEGV"), samples=ramp(10, 20))
    assert found.verdict == "failed"
    assert "SIGSEGV" in found.sentence


@pytest.mark.parametrize(("end", "is_told"), [('"/lib/a.py"', True), ('"a.py", line 3 in f\n', False)])
def test_a_crash_while_it_told_its_stacks(tmp_path: Path, end: str, is_told: bool) -> None:
    """Its answer was cut short within a line: it was sent to its own log, which says nothing of that."""
    (tmp_path / "memory.blackbox.1.txt").write_text(
        f"== 2026-11-24 19:33:37 unreclaimable 269 of 290 MB (93%): 7 python, anon 217 MB ==\n"
        f"Current thread 0x00007f6736814b80 (most recent call first):\n  File {end}"
    )
    found = explained(tmp_path, outcome=killed("SIGSEGV"), samples=ramp(10, 20))
    assert found.verdict == "failed"
    assert ("while it told its Python stacks" in found.sentence) == is_told
    assert any("no fault of the run" in advice.text for advice in found.advice) == is_told


def test_a_full_disk(tmp_path: Path) -> None:
    log = TRACEBACK + "OSError: [Errno 28] No space left on device: 'runs/a/metrics.csv'\n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), log=log)
    assert (found.verdict, found.cause) == ("failed", "disk_full")


def test_nothing_at_all(tmp_path: Path) -> None:
    found = explained(tmp_path)
    assert (found.verdict, found.cause) == ("unknown", "unknown")
    assert found.advice[0].override == "python -m memory run --output DIR -- COMMAND"


def test_an_outcome_of_an_earlier_attempt(tmp_path: Path) -> None:
    found = explained(
        tmp_path,
        outcome=killed(attempt=1, **oom()),
        status={"state": "done", "attempt": 2, "heartbeat_s": START_S},
    )
    assert found.verdict == "healthy"
    assert any("outcome.json is of attempt 1" in line for line in found.missing)


def test_a_neighbour_in_the_cgroup(tmp_path: Path) -> None:
    """The cgroup was full, but not of this run."""
    full = [sample(at, 1000, tree_anon_bytes=100 * MB, tree=(process(MAIN, 100),)) for at in range(20)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=full)
    assert (found.verdict, found.cause) == ("oom_cgroup", "neighbours")


def growing(ours: int, theirs: int) -> list[Sample]:
    """A run beside others in its cgroup, by so many MB a second."""
    return [
        sample(at, (ours + theirs) * at, tree_anon_bytes=ours * at * MB, tree=(process(MAIN, ours * at),))
        for at in range(1, 21)
    ]


@pytest.mark.parametrize(("host", "cause"), [("n1", "leak"), ("n2", "neighbours")])
def test_other_ranks_of_the_run_are_no_neighbours(tmp_path: Path, host: str, cause: str) -> None:
    """They are where they are on the same node."""
    facts = {"pid": MAIN + 1, "attempt": 1, "host": host, "limit_at": JOB}
    write(tmp_path / "rank1", samples=growing(40, 10), ring_facts=facts)
    found = explained(tmp_path, outcome=killed(**oom()), samples=growing(10, 40))
    assert (found.verdict, found.cause) == ("oom_cgroup", cause)


@pytest.mark.parametrize(("step", "cause"), [("0", "leak"), ("1", "neighbours")])
def test_other_tasks_of_its_step_are_no_neighbours(tmp_path: Path, step: str, cause: str) -> None:
    """As `srun bash -c 'python -m memory run --output mem/$SLURM_PROCID ...'` leaves them behind."""

    def facts(task: int, step: str) -> dict[str, Any]:
        told = {"JOB_ID": "7", "STEP_ID": step, "PROCID": str(task), "NTASKS": "2"}
        environment = {f"SLURM_{name}": value for name, value in told.items()}
        return {"pid": MAIN + task, "attempt": 1, "host": "n1", "limit_at": JOB, "environment": environment}

    write(tmp_path / "mem" / "1", samples=growing(40, 10), ring_facts=facts(1, step))
    found = explained(
        tmp_path / "mem" / "0", outcome=killed(**oom()), samples=growing(10, 40), ring_facts=facts(0, "0")
    )
    assert (found.verdict, found.cause) == ("oom_cgroup", cause)


def test_a_neighbours_kill_is_not_ours(tmp_path: Path) -> None:
    """It counts in the cgroup whose limit it is, not in the run's own."""
    levels = [
        {"path": TASK, "limit_bytes": None, "oom_kill_before": 2, "oom_kill_after": 2},
        {"path": JOB, "limit_bytes": LIMIT, "oom_kill_before": 2, "oom_kill_after": 3},
    ]
    found = explained(tmp_path, outcome=outcome(parents=levels, **oom()), samples=ramp(100, 200))
    assert found.verdict == "healthy"


def test_the_limit_of_a_parent(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed(**oom()), samples=ramp(200, 1020))
    assert any(f"that of the parent {JOB}" in line for line in found.evidence)


@pytest.mark.parametrize(
    ("name", "command", "verdict"),
    [
        ("SIGKILL", ["timeout", "-s", "KILL", "60", "python", "a.py"], "timeout"),
        ("SIGTERM", ["timeout", "1m", "python", "a.py"], "timeout"),
        ("SIGTERM", ["timeout", "1h", "python", "a.py"], "terminated"),
        ("SIGALRM", ["python", "a.py"], "timeout"),
        ("SIGXCPU", ["python", "a.py"], "timeout"),
    ],
)
def test_timers(tmp_path: Path, name: str, command: list[str], verdict: str) -> None:
    assert explained(tmp_path, outcome=killed(name, command=command), samples=ramp(10, 20)).verdict == verdict


@pytest.mark.parametrize(
    ("used_s", "limit_s", "verdict"),
    [
        (59.95, 60, "timeout"),
        (12.0, 60, "killed_from_outside"),
        (0.86, 1, "timeout"),
        (0.5, 1, "killed_from_outside"),
    ],
)
def test_a_limit_of_cpu_time(tmp_path: Path, used_s: float, limit_s: int, verdict: str) -> None:
    """`ulimit -t` sets both limits: at the hard one the kernel sends SIGKILL, and no SIGXCPU before."""
    limits = {"as_bytes": None, "data_bytes": None, "cpu_hard_s": limit_s}
    found = explained(tmp_path, outcome=killed(rlimits=limits, cpu_s=used_s), samples=ramp(10, 20))
    assert found.verdict == verdict
    assert ("ulimit -t unlimited" in [advice.override for advice in found.advice]) == (verdict == "timeout")


def test_a_run_that_was_asked_to_stop_is_told_what_to_do(tmp_path: Path) -> None:
    found = explained(tmp_path, outcome=killed("SIGTERM"), samples=ramp(10, 20))
    assert (found.verdict, len(found.advice)) == ("terminated", 1)


def test_a_full_disk_that_took_the_outcome_along(tmp_path: Path) -> None:
    found = explained(tmp_path, samples=ramp(200, 1015), log="OSError: [Errno 28] No space left on device\n")
    assert found.verdict == "oom_cgroup"
    assert found.victim is None, "it, or its supervisor before it"


def test_the_limit_that_was_seen_before_the_cgroup_was_gone(tmp_path: Path) -> None:
    """The last look was at a process without a cgroup, so at the whole machine."""
    levels = [
        {"path": TASK, "limit_bytes": None, "oom_kill_before": 0, "oom_kill_after": 1},
        {"path": JOB, "limit_bytes": LIMIT, "oom_kill_before": 0, "oom_kill_after": 1},
    ]
    found = explained(
        tmp_path,
        outcome=killed(parents=levels, **oom() | {"limit_bytes": 64 * GB, "limit_at": "host"}),
        samples=[*ramp(200, 1015), sample(31, 1015, limit=64 * GB, usage_bytes=None)],
    )
    assert (found.verdict, found.limit_bytes) == ("oom_cgroup", LIMIT)
    assert JOB in found.sentence


def test_a_counter_that_the_kernel_has_not_brought_up_to_date(tmp_path: Path) -> None:
    """memory.stat of v1 lags by seconds; what the process holds does not."""
    lagging = [
        sample(at, 500, tree=(process(MAIN, 500 + 25 * at),), tree_anon_bytes=(500 + 25 * at) * MB)
        for at in range(20)
    ]
    found = explained(
        tmp_path, outcome=killed(**oom() | {"peak_unreclaimable_bytes": 500 * MB}), samples=lagging
    )
    assert found.near_limit
    assert found.peak_bytes == 975 * MB


def test_everything_gone_on_the_way_to_the_limit(tmp_path: Path) -> None:
    """The disk was full, so that nothing tells of the end; the last sample was 87% of the limit, rising
    fast.
    """
    rising = [sample(at / 10, 100 + 50 * at) for at in range(17)]
    found = explained(tmp_path, samples=rising)
    assert (found.verdict, found.confidence) == ("oom_cgroup", "possible")
    flat = [sample(at / 10, 500) for at in range(17)]
    assert explained(tmp_path / "flat", samples=flat).verdict == "unknown"


def test_a_worker_killed_from_outside(tmp_path: Path) -> None:
    log = TRACEBACK + "RuntimeError: DataLoader worker (pid 120) is killed by signal: Killed. \n"
    found = explained(tmp_path, outcome=outcome(exit_code=1), samples=ramp(100, 200), log=log)
    assert found.verdict == "killed_from_outside"
    assert found.victim is not None
    assert (found.victim.is_main, found.victim.pid) == (False, 120)


def test_a_limit_below_the_one_that_is_known(tmp_path: Path) -> None:
    """A container within the job has a smaller one of its own."""
    lost = [
        {"pid": 7, "name": "python", "parent_pid": MAIN, "last_anon_bytes": 60 * MB, "time_s": START_S + 9}
    ]
    counts = {
        "counters_before": {"oom_kill": 0, "failcnt": 0},
        "counters_after": {"oom_kill": 1, "failcnt": 0},
    }
    ended = outcome(exit_code=1, children_lost=lost, peak_unreclaimable_bytes=70 * MB, **counts)
    found = explained(tmp_path, outcome=ended, samples=ramp(10, 70, oom_kills=None))
    assert found.verdict == "oom_cgroup"
    assert "never met" in found.sentence
    assert "at the cgroup's limit" not in found.sentence
    assert found.near_limit is False
    assert not any("higher limit" in advice.text for advice in found.advice)


def test_a_limit_of_which_the_hits_are_not_known_is_not_told_as_never_met(tmp_path: Path) -> None:
    """As in a real job of Slurm on v1: samples, which end before the kill, count none, and what the
    supervisor read after it is no count.
    """
    counted = {"counters_before": {"failcnt": 0, "oom_kill": 0}, "counters_after": {"oom_kill": 1}}
    found = explained(
        tmp_path,
        outcome=killed(**(oom() | counted | {"peak_unreclaimable_bytes": 560 * MB})),
        samples=[sample(at, u, limit_hits=0) for at, u in ((0, 50), (1, 200), (2, 560))],
        run=ours(),
    )
    assert found.verdict == "oom_cgroup"
    assert "never met" not in found.sentence
    assert found.near_limit


def test_a_kill_in_a_cgroup_that_is_gone(tmp_path: Path) -> None:
    """Its count went with it; the supervisor read the kernel's log."""
    said = "Memory cgroup out of memory: Killed process 7 (python)"
    victim = {"pid": 7, "name": "python", "is_main": False, "said": said}
    found = explained(tmp_path, outcome=outcome(exit_code=1, victim=victim), samples=ramp(10, 70))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert "a child process (python, pid 7)" in found.sentence


def test_a_rank_is_explained_as_a_part_of_its_run(tmp_path: Path) -> None:
    """In its folder lies what its supervisor wrote; the run's config and the rank's own records lie above."""
    own = [record("begin", "first_step", 20, 900, step=0) | {"rank": 1}]
    write(tmp_path, run=ours(), records=[record("begin", "train", 20, 100, step=7)])
    (tmp_path / "memory.rank1.jsonl").write_text("".join(json.dumps(one) + "\n" for one in own))
    found = explained(tmp_path / "rank1", outcome=killed(**oom()), samples=ramp(100, 1020))
    assert (found.verdict, found.cause) == ("oom_cgroup", "growth")
    assert overrides(found)[0].startswith("training.micro_batch=")
    assert any("stage first_step had begun" in line for line in found.evidence)
    elsewhere = explained(tmp_path / "other" / "rank1", outcome=killed(**oom()), samples=ramp(100, 1020))
    assert not any(override.startswith("training.") for override in overrides(elsewhere))


def test_what_a_rank_printed_lies_in_the_folder_of_its_run(tmp_path: Path) -> None:
    """`log.rank1.txt`: of one that failed it was said that there is no log."""
    write(tmp_path, run=ours(), log=TRACEBACK + "ConnectionError: rank 1 is gone\n")
    (tmp_path / "log.rank1.txt").write_text(TRACEBACK + "ValueError: loss is nan\n")
    found = explained(tmp_path / "rank1", outcome=outcome(exit_code=1), samples=ramp(50, 60))
    assert found.verdict == "failed"
    assert any("ValueError: loss is nan (log.rank1.txt)" in line for line in found.evidence), found.evidence
    assert not any("log" in line for line in found.missing)


def test_what_a_run_says_of_its_failure_is_told(tmp_path: Path) -> None:
    reason = "rank 1 (n2) is gone. Why: python -m memory explain runs/a/rank1"
    status = {"state": "failed", "attempt": 1, "reason": reason}
    found = explained(tmp_path, outcome=outcome(exit_code=1), status=status, run=ours())
    assert f"the run says: {reason} (status.json)" in found.evidence


def overrides(found: Explanation) -> list[str]:
    return [advice.override or "" for advice in found.advice]
