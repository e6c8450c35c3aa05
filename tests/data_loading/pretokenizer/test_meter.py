"""The progress line: what it tells, how often, and how wide it may be."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import time

import pytest

from data_loading.pretokenizer import meter
from data_loading.pretokenizer.job_memory import Held, JobMemory
from data_loading.pretokenizer.meter import Meter
from tests.golden_text import Golden

HELD = Held(160 << 20, 410 << 20, 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(meter.time, "monotonic", lambda: now[0])
    return now


class TestLog:
    def test_bytes_tokens_speed_time_and_memory(self, clock: list[float], golden: Golden) -> None:
        lines: list[str] = []
        told = Meter(1_000_000_000, lines.append, None, (0, 0), lambda: HELD)
        clock[0] += 10
        told.update(340_000_000, 88_300_000)
        golden.text("\n".join(lines))

    def test_the_first_line_soon_then_one_a_minute(self, clock: list[float]) -> None:
        lines: list[str] = []
        told = Meter(1000, lines.append, None)
        at = []
        for second in range(200):
            clock[0] = 100.0 + second
            before = len(lines)
            told.update(second, second)
            at += [second] * (len(lines) - before)
        assert at == [5, 65, 125, 185]

    def test_work_of_an_earlier_attempt_is_no_speed_of_this_one(
        self, clock: list[float], golden: Golden
    ) -> None:
        lines: list[str] = []
        told = Meter(100_000_000, lines.append, None, before=(50_000_000, 0))
        clock[0] += 10
        told.update(60_000_000, 7)
        golden.text("\n".join(lines))

    def test_an_input_of_unknown_size(self, clock: list[float], golden: Golden) -> None:
        lines: list[str] = []
        told = Meter(None, lines.append, None, (0, 0), lambda: Held(1 << 20))
        clock[0] += 10
        told.update(20_000_000, 7)
        golden.text("\n".join(lines))

    def test_an_end_by_tokens(self, clock: list[float], golden: Golden) -> None:
        lines: list[str] = []
        told = Meter(None, lines.append, None, (0, 500), goal_tokens=4000)
        clock[0] += 10
        told.update(20_000_000, 1000)
        golden.text("\n".join(lines))


@pytest.mark.parametrize("columns", [120, 70])
def test_a_terminal_too_narrow_for_all_of_it_gets_the_line_without_memory(
    columns: int, clock: list[float], golden: Golden
) -> None:
    """A line that wraps could not be taken back."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(slave, "w") as stream:
        told = Meter(1_000_000_000, print, stream, (0, 0), lambda: HELD)
        clock[0] += 10
        told.update(340_000_000, 88_300_000)
        line = os.read(master, 1000).decode()
    os.close(master)
    golden.text(line)
    assert len(line) <= columns


class TestJobMemory:
    def test_this_process_and_its_children_at_the_worst_moment(self) -> None:
        hold = "data = bytearray(50 << 20); print(flush=True); input()"
        with JobMemory() as memory:
            alone = memory.now
            child = subprocess.Popen(
                [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert child.stdout is not None
            child.stdout.readline()
            until = time.monotonic() + 60
            while (memory.now is None or memory.now.workers == alone.workers) and time.monotonic() < until:
                time.sleep(0.05)
            child.communicate(b"\n")
        assert alone is not None
        assert memory.now is not None
        assert memory.peak is not None
        assert memory.now.workers == alone.workers, "seen once more at the end"
        assert memory.peak.workers == alone.workers + 1  # multiprocessing may keep one, after other tests
        assert 50 << 20 <= memory.peak.workers_bytes - alone.workers_bytes <= 90 << 20
        assert memory.peak_bytes == memory.peak.main_bytes + memory.peak.workers_bytes
        assert memory.peak_bytes >= alone.total_bytes + (45 << 20)

    def test_a_look_costs_next_to_nothing(self) -> None:
        memory = JobMemory()
        memory.look()
        started = time.process_time()
        for _ in range(100):
            memory.look()
        assert (time.process_time() - started) / 100 < 0.005
