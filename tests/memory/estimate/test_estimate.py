"""Parts added up by phase, the recommended request, and available memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.estimate.available import Room, room
from memory.estimate.estimate import PHASES, RESTORE, Estimate, Part, largest_parts, recommended_mem
from memory.measure.cgroup import Cgroup
from memory.measure.host import Host
from memory.measure.process import Process
from memory.measure.snapshot import Snapshot

GB = 1 << 30
MB = 1 << 20

parts = st.lists(
    st.builds(
        Part,
        st.sampled_from("abc"),
        st.integers(0, 100 * GB),
        st.integers(0, 10 * GB),
        when=st.sets(st.sampled_from(PHASES)).map(tuple),
        in_other_process=st.booleans(),
        is_anon=st.booleans(),
    )
)


@given(parts)
def test_peak_is_the_largest_phase_and_the_sum_of_its_parts(found: list[Part]) -> None:
    estimate = Estimate.of(found)
    by_phase = {
        phase: sum(part.host_bytes for part in found if phase in part.when)
        for phase in PHASES
        if phase != RESTORE
    }
    assert estimate.host_bytes == max(by_phase.values())
    assert sum(estimate.at_host_peak().values()) == estimate.host_bytes
    assert sum(estimate.at_gpu_peak().values()) == estimate.gpu_bytes
    assert sum(largest_parts(estimate.at_host_peak()).values()) == estimate.host_bytes
    assert estimate.own_bytes <= estimate.host_bytes <= estimate.resumed_bytes
    assert estimate.to_json()["host_by_phase"][RESTORE] <= estimate.resumed_bytes


def test_unknown_phase_is_refused() -> None:
    with pytest.raises(ValueError, match="bakcward"):
        Part("gradients", 1, when=("bakcward",))


@given(st.integers(1, 2000 * GB))
def test_recommended_memory_is_enough_and_round(needed: int) -> None:
    asked = recommended_mem(Estimate.of([Part("all", needed)]))
    assert asked >= 1.15 * needed - 1
    assert asked <= 1.15 * needed + GB
    assert asked % (256 * MB) == 0
    assert asked <= 8 * GB or asked % GB == 0


def test_recommended_memory_covers_resuming() -> None:
    estimate = Estimate.of([Part("model", GB), Part("read back", 6 * GB, when=(RESTORE,))])
    assert estimate.host_bytes == GB
    assert recommended_mem(estimate) > 7 * GB


def seen(
    *, limit: int | None, anon_of_all: int, own: int, available: int = 90 * GB, total: int = 100 * GB
) -> Snapshot:
    job = Cgroup(2, "/job", limit_bytes=limit, limit_at="/job" if limit else None, anon_bytes=anon_of_all)
    return Snapshot(0.0, Process(1, anon_bytes=own), job=job, host=Host(total, available))


def test_memory_of_others_is_not_free() -> None:
    found = room(seen(limit=8 * GB, anon_of_all=3 * GB, own=GB))
    assert (found.limit_bytes, found.limit_at, found.used_bytes, found.free_bytes) == (
        8 * GB, "/job", 3 * GB, 5 * GB,
    )  # fmt: skip
    assert room(seen(limit=8 * GB, anon_of_all=3 * GB, own=GB), own=True).free_bytes == 6 * GB
    waited = room(seen(limit=8 * GB, anon_of_all=3 * GB, own=GB), own=True, waiting_bytes=GB // 2)
    assert waited.free_bytes == 6 * GB + GB // 2


def test_machine_with_less_than_the_limit_counts() -> None:
    found = room(seen(limit=50 * GB, anon_of_all=GB, own=0, available=20 * GB))
    assert (found.limit_at, found.free_bytes) == ("host", 20 * GB)


def test_without_a_limit_the_machine_counts() -> None:
    found = room(seen(limit=None, anon_of_all=GB, own=GB), own=True)
    assert (found.limit_at, found.limit_bytes, found.free_bytes) == ("host", 100 * GB, 91 * GB)


def test_unknown_memory_is_no_limit() -> None:
    found = room(Snapshot(0.0, Process(1)))
    assert (found.limit_bytes, found.free_bytes, found.gpu_free_bytes) == (None, None, None)


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_MEM_PER_NODE": "2048"},
        {"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "4"},
        {"SLURM_MEM_PER_GPU": "1024", "SLURM_GPUS_ON_NODE": "2"},
    ],
)
def test_request_of_the_job_is_a_limit(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = room(seen(limit=None, anon_of_all=3 * GB, own=GB), own=True)
    assert (found.limit_bytes, found.limit_at, found.used_bytes) == (2 * GB, "--mem", 0)
    assert room(seen(limit=GB, anon_of_all=0, own=0)).limit_at == "/job"
    monkeypatch.setenv(next(iter(variables)), "garbage")
    assert room(seen(limit=None, anon_of_all=0, own=0)).limit_at == "host"


def test_room_of_this_machine() -> None:
    here = room(own=True, gpu=True)
    assert isinstance(here, Room)
    assert here.free_bytes is None or here.limit_bytes is None or here.free_bytes <= here.limit_bytes
