"""The whole of a moment: sums, scope, GPU, and how long it takes to find them."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from fake_gpus import FakeCuda

from memory import Gpu, snapshot
from memory.measure.cuda_allocator import read_gpu
from memory.measure.host import run_memory
from tests.golden_text import Golden

MB, GB = 1 << 20, 1 << 30
PID = 4_000_000


def test_a_job_with_workers(tree) -> None:
    tree.membership("0::/job\n", "/ /sys/fs/cgroup cgroup2 rw")
    tree.v2(
        "sys/fs/cgroup/job",
        limit=GB,
        anon_mb=150,
        shmem_mb=30,
        file_mb=90,
        kernel=f"kernel {5 * MB}\n",
        kills=1,
    )
    tree.process(anon_mb=100, file_mb=20, shmem_mb=30, children={PID: [11, 12]})
    tree.process(11, anon_mb=100, file_mb=20, shmem_mb=30)  # forked: 100 MB of main's pages, still shared
    tree.process(12, anon_mb=120, file_mb=20)
    found = snapshot(PID, tree.root)
    assert (found.scope, found.notes) == ("job", ())
    assert found.unreclaimable_bytes == 185 * MB
    assert (found.limit_bytes, found.limit_at) == (GB, "/job")
    assert found.workers_anon_bytes == 50 * MB, "the cgroup counts shared pages once"
    assert found.anon_bytes == 150 * MB
    assert (found.rss_bytes, found.file_bytes, found.shmem_bytes) == (440 * MB, 60 * MB, 30 * MB)
    assert (found.host.total_bytes, found.host.available_bytes) == (65536 * MB, 60000 * MB)
    told = json.loads(json.dumps(found.to_json()))
    assert told["unreclaimable_bytes"] == 185 * MB
    assert told["job"]["events"]["oom_kill"] == 1
    assert [worker["pid"] for worker in told["workers"]] == [11, 12]


def test_a_process_tree_without_a_cgroup(tree, golden: Golden) -> None:
    tree.process(anon_mb=100, file_mb=20, shmem_mb=30, children={PID: [11]})
    tree.process(11, anon_mb=50, file_mb=20, shmem_mb=30)
    found = snapshot(PID, tree.root)
    assert found.scope != "job"
    assert found.job is None
    assert found.unreclaimable_bytes == 210 * MB
    assert (found.limit_bytes, found.limit_at) == (65536 * MB, "host")
    golden.text(found.notes[0])


def test_a_cgroup_whose_counters_cannot_be_read(tree, golden: Golden) -> None:
    tree.membership("0::/job\n", "/ /sys/fs/cgroup cgroup2 rw")
    tree.v2("sys/fs/cgroup/job", limit=GB)
    (tree.root / "sys/fs/cgroup/job/memory.stat").unlink()
    found = snapshot(PID, tree.root)
    assert found.scope != "job"
    assert (found.unreclaimable_bytes, found.limit_bytes) == (100 * MB, GB)
    golden.text(found.notes[0])


def test_a_process_that_is_gone(tree, golden: Golden) -> None:
    found = snapshot(PID + 7, tree.root)
    assert (found.main.pid, found.main.rss_bytes, found.unreclaimable_bytes) == (PID + 7, None, None)
    golden.text(found.notes[0], numbers=False)
    told = found.to_json()
    for name in ("unreclaimable_bytes", "anon_bytes", "shmem_bytes", "file_bytes", "rss_bytes"):
        assert told[name] is None, "a documented key is there, null"


def test_gpu_as_torch_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda("H200", 139 * GB, allocated=41 * GB, reserved=45 * GB, peak=52 * GB, device=1)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert snapshot().gpu == Gpu(1, "H200", 41 * GB, 45 * GB, 52 * GB, 139 * GB, free_bytes=39 * GB)
    assert snapshot().amounts["gpu_bytes"] == 41 * GB


def test_no_gpu_where_torch_is_absent_half_imported_idle_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert read_gpu() is None
    for torch in (SimpleNamespace(), SimpleNamespace(cuda=SimpleNamespace())):
        monkeypatch.setitem(sys.modules, "torch", torch)
        assert read_gpu() is None
    cuda = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    cuda.initialized = False
    assert read_gpu() is None

    def fail(device: int) -> dict[str, int]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    cuda.initialized = True
    monkeypatch.setattr(cuda, "memory_stats", fail)
    assert read_gpu() is None


@pytest.mark.parametrize(
    ("own", "limit_at", "expected"),
    [(GB, "/job", 3 * GB), (GB, "host", GB), (None, "host", 3 * GB), (GB, None, 3 * GB)],
)
def test_memory_of_a_run_is_its_own_if_only_the_machine_limits_it(
    own: int | None, limit_at: str | None, expected: int
) -> None:
    assert run_memory(3 * GB, own, limit_at) == expected


def test_memory_of_a_run_in_the_session_of_others_is_that_of_its_processes(tree) -> None:
    tree.membership("0::/session\n", "/ /sys/fs/cgroup cgroup2 rw")
    tree.v2(
        "sys/fs/cgroup/session", limit=None, anon_mb=900, shmem_mb=30, file_mb=90, kernel=f"kernel {MB}\n"
    )
    tree.process(anon_mb=100, file_mb=20, shmem_mb=30)
    found = snapshot(PID, tree.root)
    assert (found.limit_at, found.unreclaimable_bytes) == ("host", 931 * MB)
    assert found.run_bytes == 130 * MB
