"""Who sent a signal, as far as it can be known: by when the kernel's count rose, by its log, by nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evidence_builder import MAIN, MB, START_S, explained, killed, oom, outcome, process, ramp, record, sample

from memory.process import Process
from memory.supervision.census import Census

UNSEEN: dict[str, Any] = {
    "counters_before": {}, "counters_after": {}, "limit_at": "host", "limit_bytes": 24 << 30,
    "cgroup_path": None, "peak_unreclaimable_bytes": 150 * MB,
}  # fmt: skip


def _lived_on(kill_s: float, end_s: int) -> list[Any]:
    return [sample(at, 100, oom_kills=int(at >= kill_s)) for at in range(end_s)]


def test_a_main_process_that_outlived_the_kill_is_not_its_victim(tmp_path: Path) -> None:
    """A child was killed for memory at 4 s, the main process by somebody at 10 s."""
    child = {"pid": 7, "name": "worker", "is_main": False}
    told = oom() | {"ended_s": START_S + 10, "last_oom_kill_s": START_S + 4, "peak_unreclaimable_bytes": 0}
    found = explained(tmp_path, outcome=killed(victim=child, **told), samples=_lived_on(4, 10))
    assert (found.verdict, found.confidence) == ("killed_from_outside", "likely")
    assert found.victim is not None
    assert (found.victim.is_main, found.victim.pid) == (True, MAIN)
    assert "(worker)" in found.sentence
    assert any("seen alive for 5.0 s after it" in line for line in found.evidence)
    assert not any((advice.override or "").startswith("--mem") for advice in found.advice)


def test_the_kernels_word_for_a_child_is_none_for_the_main_process(tmp_path: Path) -> None:
    said = "Memory cgroup out of memory: Killed process 7 (worker)"
    child = {"pid": 7, "name": "worker", "is_main": False, "said": said}
    told = oom() | {"ended_s": START_S + 10, "last_oom_kill_s": START_S + 4, "peak_unreclaimable_bytes": 0}
    found = explained(tmp_path, outcome=killed(victim=child, **told), samples=_lived_on(4, 10))
    assert found.verdict == "killed_from_outside"
    assert explained(tmp_path / "b", outcome=killed(victim=child, **UNSEEN)).verdict == "unknown"


def test_the_same_where_the_ring_alone_tells_when(tmp_path: Path) -> None:
    told = killed(**oom() | {"ended_s": START_S + 10, "peak_unreclaimable_bytes": 0})
    found = explained(tmp_path, outcome=told, samples=_lived_on(4, 10))
    assert found.verdict == "killed_from_outside"
    before_it_all = [sample(at, 100, oom_kills=1) for at in range(10)]
    assert explained(tmp_path / "b", outcome=told, samples=before_it_all).verdict == "killed_from_outside"


@pytest.mark.parametrize("at", [9, 60])
def test_a_kill_at_the_end_is_its_own(tmp_path: Path, at: int) -> None:
    told = oom() | {"ended_s": START_S + 10, "last_oom_kill_s": START_S + min(at, 10)}
    found = explained(tmp_path, outcome=killed(**told), samples=_lived_on(at, 10))
    assert (found.verdict, found.victim and found.victim.is_main) == ("oom_cgroup", True)


def test_a_shell_that_ends_by_137_tells_of_the_one_that_was_counted(tmp_path: Path) -> None:
    """Its program was killed for memory at 4 s; it copied results for 6 s, and ended as that had."""
    lost = [
        {"pid": 7, "name": "python", "parent_pid": MAIN, "last_anon_bytes": 900 * MB, "time_s": START_S + 4}
    ]
    told = oom() | {"ended_s": START_S + 10, "last_oom_kill_s": START_S + 4, "children_lost": lost}
    found = explained(tmp_path, outcome=outcome(exit_code=137, **told), samples=_lived_on(4, 10))
    assert (found.verdict, found.confidence) == ("oom_cgroup", "likely")
    assert found.victim is not None
    assert (found.victim.is_main, found.victim.pid) == (False, 7)


def _process(pid: int) -> Process:
    return Process(pid, "python", 1, 10 * MB, 10 * MB)


def test_when_the_count_rose_is_kept() -> None:
    census = Census(1)
    for at, (pids, kills) in enumerate([((1, 2), 0), ((1,), 1), ((1,), 1), ((1,), 1)]):
        census.take(tuple(_process(pid) for pid in pids), kills, float(at))
    assert (census.last_kill_s, census.seen_kills) == (1.0, 1)
    assert census.outlived(1)
    victim = census.victim(main_was_killed=True, rose=1, kernel_log=b"")
    assert victim == {"pid": 2, "name": "python", "is_main": False}
    assert not census.outlived(2), "one more came after the last look"
    assert census.victim(main_was_killed=True, rose=2, kernel_log=b"") is None, "it may have been either"


def test_the_kernels_log_where_there_is_no_count() -> None:
    census = Census(1)
    census.take((_process(1),), None, 1.0)
    line = "Memory cgroup out of memory: Killed process 1 (python) total-vm:9kB"
    victim = census.victim(main_was_killed=True, rose=None, kernel_log=f"6,1,2,-;{line}\n".encode())
    assert victim is not None
    assert (victim["pid"], victim["is_main"]) == (1, True)
    assert line.startswith(victim["said"])
    assert census.victim(main_was_killed=True, rose=None, kernel_log=b"") is None


def test_a_kill_that_no_count_tells_of_any_more() -> None:
    census = Census(1)
    census.take((_process(1), _process(2)), 0, 1.0)
    log = b"Memory cgroup out of memory: Killed process 2 (python)\n"
    victim = census.victim(main_was_killed=False, rose=0, kernel_log=log)
    assert victim is not None
    assert victim["pid"] == 2
    assert census.victim(main_was_killed=True, rose=0, kernel_log=b"") is None


def test_of_several_kills_the_main_processs_counts() -> None:
    census = Census(1)
    census.take((_process(1), _process(2)), 0, 1.0)
    log = b"".join(b"Memory cgroup out of memory: Killed process %d (python)\n" % pid for pid in (1, 2))
    for was_killed, pid in ((True, 1), (False, 2)):
        victim = census.victim(main_was_killed=was_killed, rose=2, kernel_log=log)
        assert victim is not None
        assert victim["pid"] == pid


def test_a_run_whose_supervisor_alone_was_killed(tmp_path: Path) -> None:
    """At the limit; what is there of the run is older, or says that it lived on."""
    full = ramp(200, 1020)
    found = explained(tmp_path / "silent", samples=full)
    assert (found.verdict, found.confidence, found.victim) == ("oom_cgroup", "likely", None)
    records = [record("begin", "train", 5, 200), record("end", "train", 55, 200)]
    found = explained(tmp_path / "heard", samples=full, records=records)
    assert (found.verdict, found.victim) == ("unknown", None)
    assert "it went on, for 25 s at least" in found.sentence


def test_sigkill_where_no_cgroup_can_be_seen(tmp_path: Path) -> None:
    """No /sys: neither the limit nor a count; 150 MB of the machine's 24 GB say nothing."""
    found = explained(tmp_path, outcome=killed(**UNSEEN), samples=[])
    assert (found.verdict, found.confidence) == ("unknown", "possible")
    assert "the kernel, for memory" in found.sentence
    assert "from outside" in found.sentence
    said = "Memory cgroup out of memory: Killed process 100 (python)"
    victim = {"pid": MAIN, "name": "python", "is_main": True, "said": said}
    found = explained(tmp_path / "log", outcome=killed(victim=victim, **UNSEEN), samples=[])
    assert (found.verdict, found.confidence) == ("oom_cgroup", "certain")
    assert any(said in line for line in found.evidence)


@pytest.mark.parametrize("name", ["SIGPIPE", "SIGXFSZ", "signal 40", "SIGIO", "SIGPROF"])
def test_any_other_signal_is_named(tmp_path: Path, name: str) -> None:
    found = explained(tmp_path, outcome=killed(name))
    assert (found.verdict, found.confidence) == ("failed", "certain")
    assert f"ended by {name}" in found.sentence


@pytest.mark.parametrize("code", [135, 137, 143])
def test_a_programs_own_exit_code_is_no_signal_for_certain(tmp_path: Path, code: int) -> None:
    found = explained(tmp_path, outcome=outcome(exit_code=code), samples=ramp(100, 200))
    assert found.confidence != "certain"


@pytest.mark.parametrize(
    ("command", "confidence"),
    [(["bash", "-c", "timeout 1 sleep 10"], "likely"), (["bash", "job.sh"], "possible")],
)
def test_a_timeout_within_a_script(tmp_path: Path, command: list[str], confidence: str) -> None:
    found = explained(tmp_path, outcome=outcome(exit_code=124, command=command))
    assert (found.verdict, found.confidence) == ("timeout", confidence)


def test_a_timeout_around_all_of_it(tmp_path: Path) -> None:
    """timeout(1) sends SIGCONT behind its SIGTERM, and so does the entry hand the SIGTERM on."""
    sent = [
        {"signal": "SIGTERM", "time_s": START_S + 59, "from_pid": 5, "from_name": "timeout"},
        {"signal": "SIGTERM", "time_s": START_S + 59, "from_pid": 6, "from_name": "python"},
        {"signal": "SIGCONT", "time_s": START_S + 59, "from_pid": 5, "from_name": "timeout"},
    ]
    stopped = killed("SIGTERM", signals_passed_on=sent)
    found = explained(tmp_path / "a", outcome=stopped, samples=ramp(100, 200))
    assert (found.verdict, found.confidence) == ("timeout", "likely")
    assert "SIGTERM came to the supervisor from pid 5 (timeout) (outcome.json)" in found.evidence
    assert "more time" in found.advice[0].text
    stopped = killed("SIGTERM", signals_passed_on=sent[1:])
    found = explained(tmp_path / "b", outcome=stopped, samples=ramp(100, 200))
    assert (found.verdict, found.confidence) == ("terminated", "certain")
    assert "SIGTERM came to the supervisor from pid 6 (python) (outcome.json)" in found.evidence


def test_a_handled_sigterm_is_told(tmp_path: Path) -> None:
    sent = [{"signal": "SIGTERM", "time_s": START_S + 59, "from_pid": 5}]
    found = explained(tmp_path, outcome=outcome(signals_passed_on=sent), samples=ramp(100, 200))
    assert (found.verdict, found.confidence) == ("healthy", "certain")
    assert "SIGTERM" in found.sentence


def test_room_in_dev_shm_is_a_whole_sentence(tmp_path: Path) -> None:
    full = [sample(at, 100, dev_shm_used_bytes=64 * MB, dev_shm_total_bytes=64 * MB,
                   tree=(process(MAIN, 100),)) for at in range(20)]  # fmt: skip
    found = explained(tmp_path, outcome=killed("SIGBUS"), samples=full)
    told = next(advice for advice in found.advice if "remount" in (advice.override or ""))
    assert not told.text.endswith("or")
