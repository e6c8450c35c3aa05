"""Counts are powers of 1000, sizes are powers of 1024, both exact; durations read well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment_utils.quantities import (
    counted,
    exact_size,
    format_count,
    format_duration,
    format_share,
    parse_count,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1B", 10**9),
        ("2e9", 2 * 10**9),
        ("500M", 5 * 10**8),
        ("1_000_000", 10**6),
        ("338025", 338025),
        ("0.1B", 10**8),
        (".5k", 500),
        ("1.5K", 1500),
        ("1T", 10**12),
        (" 10m ", 10**7),
        (1e9, 10**9),
        (2.5e9, 2_500_000_000),
        (7, 7),
        ("1.19B", 1_190_000_000),
        ("5.", 5),
        ("1e+3", 1000),
        ("0", 0),
        ("2.5e-1M", 250_000),
    ],
)
def test_counts(text: str | float, value: int) -> None:
    assert parse_count(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "B",
        "1.5",
        "1e-3",
        "-1",
        "-5M",
        "1BB",
        "1GB",
        "ten",
        "nan",
        "inf",
        "1,000",
        "1__0",
        "0x10",
        "1e9999",
        True,
    ],
)
def test_no_counts(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_count(text)


@given(st.integers(0, 10**40))
def test_digits_are_taken_exactly(number: int) -> None:
    assert parse_count(str(number)) == number
    assert parse_count(f"{number:_}") == number
    assert parse_size(f"{number}") == number
    assert parse_count(f"{number}K") == number * 1000


@given(st.integers(0, 10**6), st.integers(0, 9))
def test_decimals_are_taken_exactly(whole: int, tenth: int) -> None:
    assert parse_count(f"{whole}.{tenth}M") == whole * 10**6 + tenth * 10**5
    assert parse_count(f"{whole}.{tenth}e1") == whole * 10 + tenth


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("32GB", 32 * 2**30),
        ("32G", 32 * 2**30),
        ("32GiB", 32 * 2**30),
        ("500M", 500 * 2**20),
        ("1.5T", 3 * 2**39),
        ("4096", 4096),
        ("1kb", 1024),
        ("7B", 7),
    ],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_size(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (338025, "338,025"),
        (0, "0"),
        (10**6, "1M"),
        (1_190_000_000, "1.19B"),
        (999_999_999, "1B"),
        (10**15, "1000T"),
    ],
)
def test_counts_as_people_read_them(value: int, text: str) -> None:
    assert format_count(value) == text


@given(st.integers(0, 10**15))
def test_a_shown_count_is_read_back_to_four_digits(value: int) -> None:
    assert parse_count(format_count(value).replace(",", "")) == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (9.97, "10 s"),
        (59.6, "1 min"),
        (75, "1 min 15 s"),
        (7300, "2 h 1 min"),
        (3599.7, "1 h"),
        (90000, "1 d 1 h"),
        (8.64e7, "1000 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1200, "1,200 steps"), (1_190_000_000, "1.19B steps")],
)
def test_a_count_and_its_noun(count: int, words: str) -> None:
    assert counted(count, "step") == words


@given(
    st.one_of(
        st.integers(0, 2**60),
        st.builds(lambda n, unit: n * unit, st.integers(0, 2000), st.sampled_from([2**10, 2**20, 2**30])),
    )
)
def test_an_exact_size_is_read_back(size_bytes: int) -> None:
    assert parse_size(exact_size(size_bytes)) == size_bytes


def test_exact_sizes_are_short() -> None:
    assert [exact_size(n << 20) for n in (700, 1024, 1536)] == ["700MB", "1GB", "1536MB"]


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.184, "18%"), (0.0033, "0.33%"), (0.00004, "0.004%"), (0.1, "10%"), (0.0, "0%"), (1.0, "100%")],
)
def test_format_share_keeps_two_digits_of_a_small_share(share: float, text: str) -> None:
    assert format_share(share) == text
