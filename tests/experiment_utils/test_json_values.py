"""Values that a damaged file holds are of the type asked for, None or empty."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiment_utils.json_values import (
    at_path,
    csv_number,
    finite,
    increase,
    integer,
    is_number,
    mapping,
    mappings,
    parse_json,
    seconds,
    text,
    texts,
    unsigned,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=JSON)
def test_any_value_gives_the_type_asked_for(value: Any) -> None:
    for read, kind in ((finite, float), (seconds, float), (integer, int), (unsigned, int)):
        found = read(value)
        assert found is None or (type(found) is kind and math.isfinite(found))
    assert isinstance(text(value), str)
    assert isinstance(mapping(value), dict)
    assert all(isinstance(item, str) for item in texts(value))
    assert all(isinstance(item, dict) for item in mappings(value))
    assert at_path(value, "a.b") is None or isinstance(value, dict)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (3, (True, 3.0, 3, 3)),
        (-3, (True, -3.0, -3, None)),
        (2.5, (True, 2.5, None, 2)),
        (True, (False, None, None, None)),
        (math.nan, (True, None, None, None)),
        (math.inf, (True, None, None, None)),
        (10**400, (True, None, None, None)),
        (2**62, (True, float(2**62), None, None)),
        ("3", (False, None, None, None)),
        (None, (False, None, None, None)),
    ],
)
def test_numbers(value: Any, found: tuple[Any, ...]) -> None:
    assert (is_number(value), finite(value), integer(value), unsigned(value)) == found


def test_seconds_are_below_any_calendar_limit() -> None:
    assert (seconds(1.8e9), seconds(1e12)) == (1.8e9, None)


@pytest.mark.parametrize(
    ("before", "after", "found"), [(1, 4, 3), (4, 1, 1), (0, 0, 0), (None, 4, None), (1, "4", None)]
)
def test_increase_of_a_counter(before: Any, after: Any, found: int | None) -> None:
    assert increase(before, after) == found


@pytest.mark.parametrize(
    ("field", "found"),
    [("5e3", 5000.0), (" 2 ", 2.0), ("inf", math.inf), ("", None), (" ", None), ("x", None)],
)
def test_csv_numbers(field: str, found: float | None) -> None:
    assert csv_number(field) == found


def test_path_into_an_object() -> None:
    assert at_path({"a": {"b": 0}}, "a.b") == 0
    assert at_path({"a": [1]}, "a.b") is None


@given(value=JSON | st.floats() | st.integers(-(2**63), 2**64 - 1))
def test_what_python_writes_is_read_back(value: Any) -> None:
    written = json.dumps(value)
    assert repr(parse_json(written.encode())) == repr(json.loads(written))


@given(content=st.binary(max_size=40))
def test_other_bytes_raise_value_error_alone(content: bytes) -> None:
    with suppress(ValueError):
        parse_json(content)


def test_deep_nesting_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested"):
        parse_json(b"[" * 100_000)
