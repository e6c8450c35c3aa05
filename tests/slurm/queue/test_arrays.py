"""Runs to arrays: every run once, classes apart, nothing above what the cluster takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slurm.queue.arrays import Asked, array_name, arrays_of, first_runs
from slurm.queue.queue_limits import Limits, Queue, Room

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
            assert max(map(len, one.array.tasks)) <= first.pack
        assert one.array.parallel is None or one.array.parallel < len(one.array.tasks)
    assert len({one.array.name for one in found}) == len(found)


@st.composite
def rooms(draw: st.DrawFn) -> tuple[Room, ...]:
    """Of each partition by itself, and of any of them together."""
    queues = st.frozensets(st.sampled_from([Queue(partition=name) for name in PARTITIONS]))
    return tuple(Room(draw(st.integers(0, 20)), draw(queues)) for _ in range(draw(st.integers(0, 3))))


@given(asked_lists(), rooms())
def test_what_fits_is_a_first_part_that_needs_no_more_tasks_than_there_is_room(
    asked: list[Asked], rooms: tuple[Room, ...]
) -> None:
    """And each run that was left out would have needed one more, of the room that it counts for."""

    def overfull(runs: list[Asked]) -> list[Room]:
        tasks: Counter[Queue] = Counter()
        for one in arrays_of(runs, STUDY, "id", 10**6):
            tasks[Queue.of(one.array.options)] += len(one.array.tasks)
        return [room for room in rooms if sum(tasks[queue] for queue in room.queues) > room.left]

    kept = first_runs(asked, Limits(rooms=rooms))
    assert not overfull(kept)
    for left in (one for one in asked if one not in kept):
        assert any(left.queue in room.queues for room in overfull([*kept, left]))


def test_arrays_keep_the_order_and_are_split_at_the_limit() -> None:
    found = arrays_of([Asked(f"r{n}") for n in range(5)], STUDY, "id", 2)
    assert [one.array.tasks for one in found] == [[["r0"], ["r1"]], [["r2"], ["r3"]], [["r4"]]]
    assert [one.array.is_array for one in found] == [True, True, False]


def test_a_name_is_one_word_that_slurm_can_be_asked_for() -> None:
    assert array_name(STUDY, "20260101-000000-000-abcd", 3) == "lr_sweep-20260101-000000-000-abcd-3"
    assert array_name(Path("a,b"), "id", 0) == "a_b-id-0"


def test_slots_and_tasks_of_runs_that_share_jobs() -> None:
    for asked, how, slots, tasks in (
        ({}, "each", 1, [["r0"], ["r1"], ["r2"], ["r3"], ["r4"]]),
        ({"pack": 2}, "shared", 2, [["r0", "r3"], ["r1", "r4"], ["r2"]]),
        ({"workers": 2}, "shared", 1, [["r0", "r2", "r4"], ["r1", "r3"]]),
        ({"workers": 2, "pack": 2}, "shared", 2, [["r0", "r2", "r4"], ["r1", "r3"]]),
        ({"workers": 4, "pack": 3}, "shared", 3, [["r0", "r2", "r4"], ["r1", "r3"]]),
    ):
        (found,) = arrays_of([Asked(f"r{n}", **asked) for n in range(5)], STUDY, "id", 9)  # type: ignore[arg-type]
        assert (found.array.how, found.array.slots, found.array.tasks) == (how, slots, tasks)


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


def test_an_ensemble_takes_one_place_in_the_queue_and_is_not_divided() -> None:
    asked = [Asked(f"{name}{number}", ensemble=name) for name in "abc" for number in range(3)]
    fits = first_runs([*asked, Asked("alone")], Limits(rooms=(Room(2, frozenset([Queue()])),)))
    assert [one.run for one in fits] == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert first_runs(asked, Limits(rooms=(Room(0, frozenset([Queue()])),))) == []
