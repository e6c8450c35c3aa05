"""Processes of a run that vanished, and the one that the kernel killed."""

from __future__ import annotations

import pytest

from memory.measure.process import Process
from memory.supervision.process_table import ProcessTable

MB = 1 << 20
MAIN = 1
KILLED = b"Memory cgroup out of memory: Killed process %d (python) total-vm:9kB\n"


def process(pid: int, anon_mb: int = 10) -> Process:
    return Process(pid, "python", 1, anon_mb * MB, anon_mb * MB)


def table_of(*samples: tuple[tuple[int, ...], int | None]) -> ProcessTable:
    """Samples a second apart: the pids that live, and the kernel's count of kills."""
    table = ProcessTable(MAIN)
    for time_s, (pids, kills) in enumerate(samples):
        table.take(tuple(process(pid, 10 + time_s) for pid in pids), kills, float(time_s))
    return table


def test_lost_processes_with_their_last_memory() -> None:
    table = table_of(((1, 2, 3), 0), ((1, 3), 0), ((1,), 1))
    lost = [(one.known.pid, one.known.anon_bytes, one.time_s, one.killed) for one in table.lost]
    assert lost == [(2, 10 * MB, 1.0, False), (3, 11 * MB, 2.0, True)]
    for number in range(100, 200):
        table.take((process(MAIN), process(number)), 1, float(number))
    assert (len(table.lost), table.lost[-1].known.pid) == (32, 198)


@pytest.mark.parametrize(
    ("samples", "main_was_killed", "rose", "log", "victim"),
    [
        # by the count alone
        ([((1, 2), 0), ((1,), 1)], False, 1, b"", 2),
        ([((1, 2), 0), ((1,), 1)], False, 0, b"", None),
        ([((1, 2, 3), 0), ((1,), 2)], False, 2, b"", None),
        ([((1,), 0)], True, 1, b"", MAIN),
        ([((1, 2), 0), ((1,), 1)], True, 1, b"", None),  # either
        ([((1, 2), 0), *[((1,), 1)] * 3], True, 1, b"", 2),  # the main process outlived it
        ([((1, 2), 0), *[((1,), 1)] * 3], True, 2, b"", None),  # and one more kill after the last sample
        # by the kernel's log
        ([((1, 2, 3), 0), ((1,), 2)], False, 2, KILLED % 2, 2),
        ([((1, 2, 3), 0), ((1,), 2)], False, 2, KILLED % 2 + KILLED % 3, 3),
        ([((1, 2, 3), 0), ((1,), 2)], False, 2, b"Killed process 2 (of another container)\n", None),
        ([((1, 2), 0)], True, 2, KILLED % 1 + KILLED % 2, MAIN),
        ([((1, 2), 0)], False, 2, KILLED % 1 + KILLED % 2, 2),
        ([((1, 2), 0)], False, 0, KILLED % 2, 2),  # counted in a cgroup that was removed
        ([((1,), None)], True, None, KILLED % 1, MAIN),
        ([((1,), None)], True, None, b"", None),
    ],
)
def test_victim(
    samples: list[tuple[tuple[int, ...], int | None]],
    main_was_killed: bool,
    rose: int | None,
    log: bytes,
    victim: int | None,
) -> None:
    found = table_of(*samples).victim(main_was_killed=main_was_killed, rose=rose, kernel_log=log)
    assert (found and (found["pid"], found["is_main"])) == (victim and (victim, victim == MAIN))
    if found and log:
        assert found["said"].encode() in log


def test_time_of_last_kill() -> None:
    table = table_of(((1, 2), 0), ((1,), 1), ((1,), 1), ((1,), 1))
    assert (table.last_kill_s, table.seen_kills) == (1.0, 1)
    assert (table.outlived(1), table.outlived(2)) == (True, False)
