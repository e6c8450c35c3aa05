"""The ring keeps the newest samples and the highest of the whole run, whatever happens to its writer."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from memory.record.ring import RingWriter, read_head, read_ring
from memory.record.samples import Sample

MB = 1 << 20


@given(st.lists(st.tuples(st.floats(0, 5000), st.integers(0, 10**12)), max_size=60))
def test_a_ring_keeps_the_highest_and_the_newest(tmp_path: Path, steps: list[tuple[float, int]]) -> None:
    path, time_s = tmp_path / "memory.ring", 1000.0
    samples = []
    with RingWriter(path, {"pid": 7}) as ring:
        for more_s, u in steps:
            time_s += more_s
            samples.append(Sample(time_s, unreclaimable_bytes=u))
            ring.add(samples[-1])
    found = read_ring(path)
    assert found is not None
    assert found.latest == tuple(samples)
    assert read_head(path) == ({"pid": 7}, samples[-1] if samples else None)


def test_a_ring_of_a_long_run_keeps_its_highest(tmp_path: Path) -> None:
    path = tmp_path / "memory.ring"
    with RingWriter(path, {}) as ring:
        for second in range(5000):
            ring.add(Sample(1000.0 + second, unreclaimable_bytes=MB * (900 if second == 321 else second % 7)))
    found = read_ring(path)
    assert found is not None
    assert (found.taken, found.damaged) == (5000, 0)
    assert max(sample.unreclaimable_bytes or 0 for sample in found.samples) == 900 * MB
    assert found.samples[0].time_s - 1000 < found.period_s
    assert [s.time_s for s in found.samples] == sorted(s.time_s for s in found.samples)


def test_a_ring_that_somebody_cuts_short_is_no_sigbus(tmp_path: Path) -> None:
    path = tmp_path / "memory.ring"
    with RingWriter(path, {}) as ring:
        ring.add(Sample(1.0))
        os.truncate(path, 100)
        ring.add(Sample(2.0))
    found = read_ring(path)
    assert found is not None
    assert found.latest == (Sample(2.0),)


def test_facts_that_are_too_long_for_the_ring(tmp_path: Path) -> None:
    path = tmp_path / "memory.ring"
    with RingWriter(path, {"pid": 7, "command": ["x" * 5000], "environment": {"A": "\u00e9" * 2000}}) as ring:
        ring.add(Sample(1.0, unreclaimable_bytes=5))
    assert read_head(path) == ({"pid": 7}, Sample(1.0, unreclaimable_bytes=5))


def test_no_ring(tmp_path: Path) -> None:
    assert read_head(tmp_path / "memory.ring") is None
    (tmp_path / "memory.ring").write_bytes(b"something else" * 1000)
    assert read_head(tmp_path / "memory.ring") is None
    assert read_ring(tmp_path / "memory.ring") is None
