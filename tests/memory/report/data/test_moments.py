"""Parts of U add up to it, and samples agree with stage records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import BEGUN_S, MB, sample_of, snapshot_of

from memory.report.data.moments import PARTS, recorded_moment, sampled_moment, split

AMOUNTS = st.none() | st.integers(0, 2**40)


@given(st.integers(0, 2**40), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_parts_add_up_to_u(
    u: int, anon: int, shmem: int, kernel: int, main: int, tree: int, neighbours: int
) -> None:
    parts = split(u, anon=anon, shmem=shmem, kernel=kernel, main=main, tree=tree, neighbours=neighbours)
    assert sorted(parts) == sorted(PARTS)
    assert sum(parts.values()) == u
    assert min(parts.values()) >= 0


@given(st.integers(0, 500), st.lists(st.integers(0, 300), max_size=6), st.integers(0, 400))
def test_parts_of_a_job(main: int, workers: list[int], other: int) -> None:
    found = snapshot_of(BEGUN_S, main, workers, other_mb=other)
    moment = recorded_moment(found.to_json(), 3.0)
    assert moment.u == found.unreclaimable_bytes
    assert (moment.main, moment.workers, moment.other) == (main * MB, sum(workers) * MB, other * MB)
    assert (moment.shmem, moment.kernel, moment.cache) == (5 * MB, 7 * MB, 288 * MB)


def test_pages_shared_with_the_main_process_count_once() -> None:
    parts = split(112, anon=100, shmem=5, kernel=7, main=80, tree=80 + 85 + 90)
    assert parts == {"main": 80, "workers": 20, "shmem": 5, "kernel": 7, "other": 0}


def test_sample_and_snapshot_of_one_moment_agree() -> None:
    sampled = sampled_moment(sample_of(4.0, 100, (20, 30)), 4.0)
    recorded = recorded_moment(snapshot_of(BEGUN_S + 4.0, 100, (20, 30)).to_json(), 4.0)
    for name in (*PARTS, "u", "cache", "limit", "holders"):
        assert getattr(sampled, name) == getattr(recorded, name), name


@pytest.mark.parametrize("damaged", [
    {}, {"main": None}, {"main": 3, "workers": "x", "job": []}, {"job": {"anon_bytes": "much"}},
    {"main": {"pid": 1.5, "anon_bytes": True}, "workers": [None, {"pid": 3}, 7]},
    {"limit_bytes": float("nan")}, {"unreclaimable_bytes": -5}, {"gpu": [1]},
])  # fmt: skip
def test_damaged_snapshot_is_read(damaged: dict[str, Any]) -> None:
    recorded_moment(damaged, 0.0)
