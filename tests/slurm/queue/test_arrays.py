"""Runs to arrays: every run once, classes apart, nothing above what the cluster takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm.queue.arrays import Asked, array_name, arrays_of, in_earlier_words, with_fewer_tasks

STUDY = Path("runs/lr sweep")
PARTITIONS = ("a", "b")


@st.composite
def asked_lists(draw: st.DrawFn) -> list[Asked]:
    kinds = draw(
        st.lists(
            st.tuples(
                st.fixed_dictionaries(
                    {"mem": st.sampled_from("12"), "partition": st.sampled_from(PARTITIONS)}
                ),
                st.integers(1, 4),
                st.none() | st.integers(1, 5),
                st.none() | st.integers(1, 9),
            ),
            min_size=1,
            max_size=3,
        )
    )
    picks = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=40))
    return [
        Asked(f"run{n}", options, pack=pack, workers=workers, parallel=parallel)
        for n, (options, pack, workers, parallel) in enumerate(kinds[pick] for pick in picks)
    ]


@given(asked_lists(), st.integers(1, 12))
def test_every_run_is_in_one_task_with_what_it_asked_for(asked: list[Asked], most: int) -> None:
    found = arrays_of(asked, STUDY, "id", most)
    placed = [run for one in found for task in one.array.tasks for run in task]
    assert sorted(placed) == sorted(one.run for one in asked)
    wanted = {one.run: one for one in asked}
    for number, one in enumerate(found):
        assert one.array.number == number
        assert 1 <= len(one.array.tasks) <= most
        assert all(one.array.tasks)
        for run in (run for task in one.array.tasks for run in task):
            assert one.array.options == wanted[run].options
        first = wanted[one.array.tasks[0][0]]
        if first.workers is None:
            assert one.array.how == "shared" or max(map(len, one.array.tasks)) == 1
            assert one.array.slots == first.pack
        assert one.array.parallel is None or one.array.parallel < len(one.array.tasks)
    assert len({one.array.name for one in found}) == len(found)


@pytest.mark.parametrize(
    ("most", "shares", "options", "expected"),
    [
        (9, True, {}, [("each", [["r0"], ["r1"], ["r2"], ["r3"], ["r4"]])]),
        (2, True, {}, [("shared", [["r0", "r2", "r4"], ["r1", "r3"]])]),
        (2, False, {}, [("each", [["r0"], ["r1"]]), ("each", [["r2"], ["r3"]]), ("each", [["r4"]])]),
        (3, True, {"nodes": 2}, [("each", [["r0"], ["r1"], ["r2"]]), ("each", [["r3"], ["r4"]])]),
        (1, True, {}, [("each", [[f"r{n}"]]) for n in range(5)]),
    ],
)
def test_more_runs_than_an_array_has_tasks(
    most: int, shares: bool, options: dict[str, Any], expected: list[tuple[str, list[list[str]]]]
) -> None:
    """They share the tasks; runs of several ranks cannot; without arrays each is a plain job."""
    found = arrays_of([Asked(f"r{n}", options) for n in range(5)], STUDY, "id", most, shares=shares)
    assert [(one.array.how, one.array.tasks) for one in found] == expected


@given(st.integers(1, 60), st.integers(1, 3), st.integers(1, 60))
def test_with_fewer_tasks_every_run_finds_its_task_by_its_place(runs: int, pack: int, count: int) -> None:
    (one,) = arrays_of([Asked(f"r{n}", pack=pack) for n in range(runs)], STUDY, "id", 100)
    fewer = with_fewer_tasks(one.array, min(count, len(one.array.tasks)))
    for place, names in enumerate(one.array.tasks):
        assert set(names) <= set(fewer.tasks[fewer.task_of(place)])
    assert sum(map(len, fewer.tasks)) == runs


@pytest.mark.parametrize(
    ("asked", "how", "slots", "tasks", "earlier"),
    [
        ({}, "each", 1, [["r0"], ["r1"], ["r2"], ["r3"], ["r4"]], "each"),
        ({"pack": 3}, "shared", 3, [["r0", "r2", "r4"], ["r1", "r3"]], "pack"),
        ({"workers": 2}, "shared", 1, [["r0", "r2", "r4"], ["r1", "r3"]], "workers"),
        ({"workers": 2, "pack": 2}, "shared", 2, [["r0", "r2", "r4"], ["r1", "r3"]], "workers"),
        ({"workers": 4, "pack": 3}, "shared", 3, [["r0", "r2", "r4"], ["r1", "r3"]], "pack"),
    ],
)
def test_pack_is_slots_and_workers_are_tasks(
    asked: dict[str, int], how: str, slots: int, tasks: list[list[str]], earlier: str
) -> None:
    """Earlier code, which `resubmit` runs, has other words for it."""
    (one,) = arrays_of([Asked(f"r{n}", **asked) for n in range(5)], STUDY, "id", 9)  # type: ignore[arg-type]
    assert (one.array.how, one.array.slots, one.array.tasks) == (how, slots, tasks)
    assert (in_earlier_words(one.array).how, in_earlier_words(one.array).slots) == (earlier, 1)


def test_a_name_is_one_word_that_slurm_can_be_asked_for() -> None:
    assert array_name(STUDY, "20260101-000000-000-abcd", 3) == "lr_sweep-20260101-000000-000-abcd-3"
    assert array_name(Path("a,b"), "id", 0) == "a_b-id-0"


def test_the_runs_of_an_ensemble_are_one_task() -> None:
    plain = [Asked(f"run{number}", {"mem": "1G"}) for number in range(2)]
    ensembles = [
        Asked(f"{name}{number}", {"mem": "1G"}, ensemble=name) for name in "ab" for number in range(3)
    ]
    found = [one.array for one in arrays_of([*ensembles[:2], *plain, *ensembles[2:]], STUDY, "id", 100)]
    assert [(array.how, array.tasks) for array in found] == [
        ("ensemble", [["a0", "a1", "a2"], ["b0", "b1", "b2"]]),
        ("each", [["run0"], ["run1"]]),
    ]
