"""A sample of a job, its time, and the interval to the next one."""

from __future__ import annotations

import dataclasses
import os
import sys
from typing import Any

import pytest
from evidence_builder import sample
from hypothesis import given
from hypothesis import strategies as st

from memory.measure.cgroup import Cgroup
from memory.supervision import sampler
from memory.supervision.sampler import Look, growth_bytes_per_s, look
from memory.supervision.sampling_interval import FASTEST_S, SLOWEST_S, next_interval_s

MB = 1 << 20
PID = 4_000_000
V1 = "/ /sys/fs/cgroup/memory cgroup rw,memory"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def look_at(tree: Any) -> Look:
    return look(PID, (PID,), 5.0, root=str(tree.root))


@given(
    st.integers(0, 10**6),
    st.none() | st.floats(0, 2),
    st.floats(-1e12, 1e12),
    st.none() | st.floats(-1e12, 1e12),
    st.floats(0, 10),
)
def test_interval_stays_between_its_bounds(
    taken: int, nearness: float | None, growth: float, room: float | None, cost_s: float
) -> None:
    wait_s = next_interval_s(taken, nearness, growth, room, cost_s)
    assert max(FASTEST_S, min(SLOWEST_S, 10 * cost_s)) - 1e-9 <= wait_s <= SLOWEST_S
    nearer_s = next_interval_s(taken, max(1.0, nearness or 0.0), growth, room, cost_s)
    assert nearer_s <= wait_s


@pytest.mark.parametrize(
    ("taken", "nearness", "growth", "cost_s", "expected_s"),
    [
        (1000, 0.5, 0.0, 0.0, SLOWEST_S),
        (1000, 0.80, 0.0, 0.0, SLOWEST_S),
        (1000, 0.86, 0.0, 0.0, 0.525),
        (1000, 0.93, 0.0, 0.0, FASTEST_S),
        (1000, 0.93, 0.0, 0.03, 0.3),  # a tenth of a core
        (1000, 0.1, 200e6, 0.0, 0.5),  # 1 GB of room is 5 s: ten samples
        (0, 0.1, 0.0, 0.0, 0.05),
        (2, 0.1, 0.0, 0.0, 0.2),
        (5, 0.1, 0.0, 0.0, 1.0),
    ],
)
def test_interval(taken: int, nearness: float, growth: float, cost_s: float, expected_s: float) -> None:
    assert next_interval_s(taken, nearness, growth, 1e9, cost_s) == pytest.approx(expected_s)


def test_clock_ignores_that_the_machines_clock_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, steady = [1000.0], [50.0]
    monkeypatch.setattr(sampler.time, "time", lambda: wall[0])
    monkeypatch.setattr(sampler.time, "clock_gettime", lambda clock: steady[0])
    clock = sampler.Clock()
    wall[0], steady[0] = -9000.0, 52.0
    assert clock.now_s() == 1002


def test_machine_without_cgroups(tree: Any) -> None:
    tree.process(anon_mb=100, shmem_mb=7, children={PID: [PID + 1, PID + 2]})
    tree.process(PID + 1, anon_mb=30)
    tree.process(PID + 2, anon_mb=40)
    found = look_at(tree)
    assert found.scope != "job"
    assert found.sample.unreclaimable_bytes == 177 * MB
    assert [one.pid for one in found.sample.tree] == [PID, PID + 2, PID + 1]
    assert found.nearness == pytest.approx(1 - 60000 / 65536), "memory of all processes of the machine counts"
    assert found.main_lives


def test_own_bytes_count_a_shared_segment_once(tree: Any) -> None:
    """A segment of shared memory counts in each process that has it mapped, in the cgroup once."""
    tree.membership("4:memory:/session\n", V1)
    tree.process(anon_mb=100, shmem_mb=20, children={PID: [PID + 1]})
    tree.process(PID + 1, anon_mb=30, shmem_mb=20)
    tree.v1("sys/fs/cgroup/memory/session", rss_mb=900, shmem_mb=25)
    found = look_at(tree)
    assert (found.sample.own_bytes, found.sample.unreclaimable_bytes) == (155 * MB, 925 * MB)


@pytest.mark.parametrize(("usage_mb", "rss_mb", "anon_mb"), [(190, 20, 180), (100, 20, 95), (198, 190, 190)])
def test_growth_that_the_cgroup_counts_late(tree: Any, usage_mb: int, rss_mb: int, anon_mb: int) -> None:
    """The kernel sums memory.stat every two seconds: a process that fills memory may be killed by then."""
    tree.membership("4:memory:/job_7\n", V1)
    tree.process(anon_mb=180, children={PID: [PID + 1]})
    tree.process(PID + 1, anon_mb=175)
    tree.v1("sys/fs/cgroup/memory/job_7", limit=200 * MB, rss_mb=rss_mb, shmem_mb=5)
    tree.write("sys/fs/cgroup/memory/job_7/memory.usage_in_bytes", f"{usage_mb * MB}\n")
    found = look_at(tree).sample
    assert found.anon_bytes == anon_mb * MB
    assert found.unreclaimable_bytes == (anon_mb + 5) * MB, "never more than all that is used"


def test_ending_process_is_not_counted(tree: Any) -> None:
    tree.process(children={PID: [PID + 1]})
    tree.write(f"proc/{PID + 1}/status", "Name:\tgone\nState:\tR (running)\nThreads:\t1\n")
    assert [one.pid for one in look_at(tree).processes] == [PID]


def test_main_process_that_ends_meanwhile(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has moved it to the root cgroup: that of the supervisor is the job's."""
    asked = []

    def read_cgroup(pid: int, *more: object) -> None:
        asked.append(pid)
        tree.write(f"proc/{PID}/status", "Name:\tgone\nState:\tZ (zombie)\nThreads:\t1\n")

    monkeypatch.setattr(sampler, "read_cgroup", read_cgroup)
    tree.process()
    assert not look_at(tree).main_lives
    assert asked == [PID, os.getpid()]


@linux
def test_garbage_in_proc(tree: Any) -> None:
    for name in ("meminfo", f"{PID}/status", f"{PID}/cgroup", f"{PID}/stat", "self/mountinfo"):
        tree.write(f"proc/{name}", b"\xff\x00:garbage:\n" * 100)
    found = look_at(tree).sample
    assert (found.unreclaimable_bytes, found.processes) == (None, 0)


@pytest.mark.parametrize(
    ("u_mb", "usage_mb", "limit_at", "expected_mb"),
    [
        ((100, 140), (120, 160), "/job", 20),
        ((100, 100), (120, 200), "/job", 40),  # the parts of U are summed late
        ((100, 100), (120, 90), "/job", 0),
        ((100, None), (120, None), "/job", 0),
        ((100, 900), (120, 900), "/other", 0),
    ],
)
def test_growth_of_u_or_of_all_that_is_charged(
    u_mb: tuple[int, int | None], usage_mb: tuple[int, int | None], limit_at: str, expected_mb: int
) -> None:
    def at(time_s: float, u: int | None, usage: int | None, path: str) -> Look:
        amounts = {
            name: None if amount is None else amount << 20
            for name, amount in (("unreclaimable_bytes", u), ("usage_bytes", usage))
        }
        job = Cgroup(1, path, limit_bytes=1 << 30, limit_at=path)
        return Look(dataclasses.replace(sample(0, 1), time_s=time_s, **amounts), (), job, 64 << 30)

    before = at(10.0, u_mb[0], usage_mb[0], "/job")
    after = at(12.0, u_mb[1], usage_mb[1], limit_at)
    assert growth_bytes_per_s(before, after) == expected_mb << 20
    assert growth_bytes_per_s(None, after) == 0
    assert growth_bytes_per_s(before, before) == 0
