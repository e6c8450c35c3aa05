"""Plain values as the dataclass that they are to be, or an error."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from slurm.records.parse_record import shaped
from slurm.records.start_records import Start
from slurm.records.submissions import Array, Place

ARRAY = {"number": 0, "name": "x", "tasks": [["a"], ["b"]], "options": {"mem": "1M"}, "parallel": 2}


def test_what_was_written_is_read_back() -> None:
    assert asdict(shaped(Array, ARRAY)) == {**asdict(Array(0, "x", [["a"], ["b"]])), **ARRAY}
    start = Start("4_1", "5", 0, "n1", 7, 1.5, 1, 0, step_after=3, signal="SIGTERM")
    assert shaped(Start, asdict(start)) == start
    assert shaped(Place, {"submission": "s", "array": 0, "task": 1, "of_a_later_version": []}).task == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": "0"}, {"number": True}, {"name": None}, {"tasks": ["a"]}, {"tasks": [[1]]}, {"options": 1},
        {"parallel": 1.5}, {"cancelled_tasks": {"0": "now"}}, {"submitted_s": float("nan")}, {"how": []},
    ],
)  # fmt: skip
def test_another_type_is_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=f"^{next(iter(wrong))}: expected"):
        shaped(Array, {**ARRAY, **wrong})


def test_one_that_is_missing_is_an_error() -> None:
    with pytest.raises(TypeError, match="name"):
        shaped(Array, {"number": 0, "tasks": []})
