"""What is written of each start of a job, and which of them brought their run no further."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.records.start_records import (
    LATE_S,
    STARTS,
    Start,
    follows_a_lost_node,
    idle_starts,
    note_end,
    note_start,
    read_starts,
)


def start(job: str, step: int, at_s: float = 0.0) -> Start:
    return Start(job, job, 0, "n1", 1, at_s, 1, step)


def test_written_and_read(tmp_path: Path) -> None:
    assert read_starts(tmp_path) == []
    first, second = start("7", 0, 1.0), start("7", 10, 2.0)
    note_start(tmp_path, first)
    note_start(tmp_path, second)
    done = replace(second, end="done", step_after=20)
    note_end(tmp_path, done)
    assert read_starts(tmp_path) == [first, done], "the first was killed: it has no end"
    (tmp_path / STARTS).write_text((tmp_path / STARTS).read_text().replace('"pid"', '"later_key": 1, "pid"'))
    assert read_starts(tmp_path) == [first, done], "a later version may add keys"
    (tmp_path / STARTS).write_text("{")
    assert read_starts(tmp_path) == []


def test_the_last_hundred_are_kept(tmp_path: Path) -> None:
    for number in range(103):
        note_start(tmp_path, start("7", number, float(number)))
    assert [one.step_before for one in read_starts(tmp_path)] == [*range(3, 103)]


def test_idle() -> None:
    assert idle_starts([], "7", 0) == 0
    assert idle_starts([start("7", 0)], "7", 0) == 1
    assert idle_starts([start("7", 0)], "7", 5) == 0
    assert idle_starts([start("7", 0), start("7", 5), start("7", 5)], "7", 5) == 2
    assert idle_starts([start("7", 5), start("8", 5)], "8", 5) == 1, "another job counts for itself"


@given(st.lists(st.integers(0, 3)), st.integers(0, 3))
def test_idle_by_its_definition(gains: list[int], last: int) -> None:
    """Starts from the end of which each gained nothing."""
    steps = [sum(gains[:count]) for count in range(len(gains) + 1)]
    starts = [start("7", step) for step in steps]
    all_gains = [*gains, last]
    expected = next((count for count, gain in enumerate(reversed(all_gains)) if gain), len(all_gains))
    assert idle_starts(starts, "7", steps[-1] + last) == expected


@pytest.mark.parametrize(
    ("end", "number", "follows"),
    [
        (None, None, True),  # it had no time for a word
        ("ended", None, True),  # its first rank missed another
        ("ended", "SIGTERM", False),  # an administrator put it back
        ("requeued", "SIGUSR2", False),
        ("requeued", None, False),  # so it was asked for once already
    ],
)
def test_a_start_after_a_lost_node(end: str | None, number: str | None, follows: bool) -> None:
    before = replace(start("7", 0), end=end, signal=number)
    now = replace(start("7", 100, at_s=1000.0), restart=1)
    assert follows_a_lost_node([before], now, 1030.0) is follows
    assert not follows_a_lost_node([before], now, 1001.0 + LATE_S)
    assert not follows_a_lost_node([], now, 1030.0)
    assert not follows_a_lost_node([replace(before, raw_job_id="8")], now, 1030.0)
    assert not follows_a_lost_node([replace(before, restart=1)], now, 1030.0), "it is of this start"
