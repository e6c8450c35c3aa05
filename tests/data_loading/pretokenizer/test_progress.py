"""The progress line: what it tells, how often, and how wide it may be."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

import pytest

from data_loading.pretokenizer import progress as meter
from data_loading.pretokenizer.progress import JobMemory, Meter
from tests.golden_text import Golden

HELD = 160 << 20


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
        told = Meter(None, lines.append, None, (0, 0), lambda: 1 << 20)
        clock[0] += 10
        told.update(20_000_000, 7)
        golden.text("\n".join(lines))

    def test_an_end_by_tokens(self, clock: list[float], golden: Golden) -> None:
        lines: list[str] = []
        told = Meter(None, lines.append, None, (0, 500), goal_tokens=4000)
        clock[0] += 10
        told.update(20_000_000, 1000)
        golden.text("\n".join(lines))


@pytest.mark.parametrize("columns", [120, 64])
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
    def test_the_most_that_was_held_and_what_is_held_now(self) -> None:
        with JobMemory() as memory:
            before = memory.now
            memory._due = 0.0
            ballast = bytearray(300 << 20)  # other tests of this machine take and free memory, too
            memory.look()
            del ballast
        assert before is not None
        assert memory.now is not None
        assert memory.peak is not None
        assert memory.peak >= before + (150 << 20)
        assert memory.now < before + (150 << 20)
