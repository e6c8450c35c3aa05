"""Which of its processes a supervisor takes for the one that the kernel killed."""

from __future__ import annotations

from memory.measure.process import Process
from memory.supervision.process_table import ProcessTable

MB = 1 << 20


def _process(pid: int) -> Process:
    return Process(pid, "python", 1, 10 * MB, 10 * MB)


def test_time_of_last_kill() -> None:
    table = ProcessTable(1)
    for at, (pids, kills) in enumerate([((1, 2), 0), ((1,), 1), ((1,), 1), ((1,), 1)]):
        table.take(tuple(_process(pid) for pid in pids), kills, float(at))
    assert (table.last_kill_s, table.seen_kills) == (1.0, 1)
    assert table.outlived(1)
    victim = table.victim(main_was_killed=True, rose=1, kernel_log=b"")
    assert victim == {"pid": 2, "name": "python", "is_main": False}
    assert not table.outlived(2), "one more came after the last look"
    assert table.victim(main_was_killed=True, rose=2, kernel_log=b"") is None, "it may have been either"


def test_kernels_log_without_count() -> None:
    table = ProcessTable(1)
    table.take((_process(1),), None, 1.0)
    line = "Memory cgroup out of memory: Killed process 1 (python) total-vm:9kB"
    victim = table.victim(main_was_killed=True, rose=None, kernel_log=f"6,1,2,-;{line}\n".encode())
    assert victim is not None
    assert (victim["pid"], victim["is_main"]) == (1, True)
    assert line.startswith(victim["said"])
    assert table.victim(main_was_killed=True, rose=None, kernel_log=b"") is None


def test_kernels_log_with_count_of_zero() -> None:
    table = ProcessTable(1)
    table.take((_process(1), _process(2)), 0, 1.0)
    log = b"Memory cgroup out of memory: Killed process 2 (python)\n"
    victim = table.victim(main_was_killed=False, rose=0, kernel_log=log)
    assert victim is not None
    assert victim["pid"] == 2
    assert table.victim(main_was_killed=True, rose=0, kernel_log=b"") is None


def test_of_several_kills_main_process_first() -> None:
    table = ProcessTable(1)
    table.take((_process(1), _process(2)), 0, 1.0)
    log = b"".join(b"Memory cgroup out of memory: Killed process %d (python)\n" % pid for pid in (1, 2))
    for was_killed, pid in ((True, 1), (False, 2)):
        victim = table.victim(main_was_killed=was_killed, rose=2, kernel_log=log)
        assert victim is not None
        assert victim["pid"] == pid
