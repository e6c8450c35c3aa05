"""How an amount moved before its top."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.explain.trend import last_rise

MB = 1 << 20


def points(*megabytes: float) -> list[tuple[float, int]]:
    return [(float(at), int(amount * MB)) for at, amount in enumerate(megabytes)]


def test_a_ramp_that_is_flat_at_its_top() -> None:
    found = last_rise(points(*range(10, 150, 10), 148, 148.5, 148.2, 149, 148.8, 149.1))
    assert found is not None
    assert found.from_bytes == 10 * MB


def test_a_sawtooth_has_a_short_last_rise() -> None:
    found = last_rise(points(10, 50, 90, 10, 50, 91))
    assert found is not None
    assert (found.from_bytes, found.begin_s) == (10 * MB, 3.0)


def test_a_jump_and_a_line() -> None:
    jump = last_rise([(0.0, MB), (10.0, MB), (10.5, 99 * MB), (20.0, 100 * MB)])
    assert jump is not None
    assert jump.is_jump
    assert not jump.is_steady
    line = last_rise(points(*range(0, 100, 4)))
    assert line is not None
    assert line.is_steady
    assert line.bytes_per_s == pytest.approx(4 * MB)


def test_two_large_amounts_with_a_pause_between_are_no_line() -> None:
    """As seen: 100 MB, 1.5 s of sleep, and 200 of 600 MB until the limit, with samples all the way."""
    seen = [(0.3 * at, 10 + 14 * at) for at in range(7)]
    seen += [(2.0 + 0.3 * at, 100) for at in range(1, 6)]
    seen += [(3.5 + 0.3 * at, 100 + 14 * at) for at in range(1, 14)]
    found = last_rise([(at, amount * MB) for at, amount in seen])
    assert found is not None
    assert found.steadiness > 0.95
    assert not found.is_steady
    stood = [*range(0, 100, 4), *[99] * 5]
    leak = last_rise([(float(at), amount * MB) for at, amount in enumerate(stood)])
    assert leak is not None
    assert leak.is_steady, "what stands at the limit has leaked all the same"


def test_nothing_rises() -> None:
    assert last_rise([]) is None
    assert last_rise(points(5)) is None
    assert last_rise(points(5, 5, 5)) is None
    assert last_rise(points(9, 5, 3)) is None


@given(st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 2**45)), max_size=60))
def test_it_ends_at_the_top_and_begins_below(given: list[tuple[float, int]]) -> None:
    found = last_rise(sorted(given))
    if found is None:
        return
    assert found.to_bytes == max(amount for _, amount in given)
    assert 0 < found.bytes <= found.to_bytes
    assert 0 < found.jump_bytes <= found.bytes * 2
    assert 0.0 <= found.steadiness <= 1.0 + 1e-9
    assert str(found)
