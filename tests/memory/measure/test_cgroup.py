"""The limit that counts, and U against it, in the layouts that clusters and containers have."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.files.procfs import read_counters
from memory.measure.cgroup import Cgroup, limit_hits, read_cgroup
from tests.searched import examples

GB = 1 << 30
MB = 1 << 20
PID = 4_000_000
HOST = 64 * GB
V1 = "/ /sys/fs/cgroup/memory cgroup rw,memory"
V2 = "/ /sys/fs/cgroup cgroup2 rw,nsdelegate"
KERNEL_6 = (
    f"kernel {9 * MB}\nkernel_stack {MB}\npagetables {2 * MB}\nslab_reclaimable {4 * MB}\n"
    f"slab_unreclaimable {MB}\nslab {5 * MB}\n"
)


def read(tree) -> Cgroup:
    found = read_cgroup(PID, str(tree.root), HOST)
    assert found is not None
    return found


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("missing_mb", [4, 600])
def test_counts_that_a_cgroup_below_has_not_gathered(
    tree, monkeypatch: pytest.MonkeyPatch, version: int, missing_mb: int
) -> None:
    """Usage is exact, its parts only when the cgroup below has been read."""
    job = "sys/fs/cgroup/memory/job_7" if version == 1 else "sys/fs/cgroup/job_7"
    task = f"{job}/task_0"
    tree.membership(
        "4:memory:/job_7/task_0\n" if version == 1 else "0::/job_7/task_0\n", V1 if version == 1 else V2
    )

    def write(anon_mb: int) -> None:
        if version == 1:
            tree.v1(job, limit=2 * GB, rss_mb=anon_mb, cache_mb=100, kmem_mb=10)
            tree.write(f"{job}/memory.usage_in_bytes", f"{810 * MB}\n")
        else:
            tree.v2(job, limit=2 * GB, anon_mb=anon_mb, file_mb=100, kernel=KERNEL_6)
            tree.write(f"{job}/memory.current", f"{809 * MB}\n")

    def gathers(path: str) -> dict[str, int]:
        if path.endswith("/task_0/memory.stat"):
            write(700)
        return read_counters(path)

    (tree.v1 if version == 1 else tree.v2)(task)
    write(700 - missing_mb)
    monkeypatch.setattr("memory.measure.cgroup.read_counters", gathers)
    expected_mb = 700 if missing_mb > 8 else 700 - missing_mb
    assert read(tree).anon_bytes == expected_mb * MB, "no second read for what CPUs hold back"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("never_mb", "listed_mb", "locked_mb"), [(170, 30, 170), (0, 30, 0), (450, 130, 70)])
def test_page_cache_that_is_locked_is_a_part_of_u(
    tree, version: int, never_mb: int, listed_mb: int, locked_mb: int
) -> None:
    """Of 200 MB of files: what is on no list of what can be given back. Locked anon is on that list too."""
    total, folder = ("total_", "sys/fs/cgroup/memory/job") if version == 1 else ("", "sys/fs/cgroup/job")
    if version == 1:
        tree.membership("4:memory:/job\n", V1)
        tree.v1(folder, limit=GB, rss_mb=300, shmem_mb=5, cache_mb=205)
    else:
        tree.membership("0::/job\n", V2)
        tree.v2(folder, limit=GB, anon_mb=300, shmem_mb=5, file_mb=205)
    assert (read(tree).locked_bytes, read(tree).file_bytes) == (None, 200 * MB), "not told"
    lists = {"inactive_file": 10, "active_file": listed_mb - 10, "unevictable": never_mb}
    stat = tree.root / folder / "memory.stat"
    more = "".join(f"{total}{name} {amount * MB}\n" for name, amount in lists.items())
    tree.write(f"{folder}/memory.stat", stat.read_text() + more)
    found = read(tree)
    assert (found.locked_bytes, found.file_bytes) == (locked_mb * MB, (200 - locked_mb) * MB)
    assert found.unreclaimable_bytes == (305 + locked_mb) * MB


def test_of_equal_limits_the_upper_one_counts(tree) -> None:
    tree.membership("0::/job/step\n", V2)
    tree.v2("sys/fs/cgroup/job", limit=GB, anon_mb=900)
    tree.v2("sys/fs/cgroup/job/step", limit=GB, anon_mb=10)
    assert (read(tree).limit_at, read(tree).anon_bytes) == ("/job", 900 * MB)


def test_limit_that_is_changed(tree) -> None:
    tree.membership("0::/job/step/task\n", V2)
    for path in ("job", "job/step", "job/step/task"):
        tree.v2(f"sys/fs/cgroup/{path}")
    assert (read(tree).limit_bytes, read(tree).limit_at) == (None, None)
    for path, limit, limit_at in (
        ("job", GB, "/job"),
        ("job/step", 2 * GB, "/job"),
        ("job/step/task", GB // 4, "/job/step/task"),
        ("job/step/task", "max", "/job"),
        ("job", "max", "/job/step"),
    ):
        tree.write(f"sys/fs/cgroup/{path}/memory.max", f"{limit}\n")
        assert read(tree).limit_at == limit_at


def test_smallest_high_on_the_way_up(tree) -> None:
    tree.membership("0::/job/step/task\n", V2)
    for path, high in (("job", GB), ("job/step", GB // 2), ("job/step/task", "max")):
        tree.v2(f"sys/fs/cgroup/{path}", limit=2 * GB)
        tree.write(f"sys/fs/cgroup/{path}/memory.high", f"{high}\n")
    assert (read(tree).high_bytes, read(tree).high_at) == (GB // 2, "/job/step")
    tree.write("sys/fs/cgroup/job/step/memory.high", "max\n")
    tree.write("sys/fs/cgroup/job/memory.high", f"{HOST}\n")
    assert (read(tree).high_bytes, read(tree).high_at) == (None, None), "the machine has no more"


def test_of_two_mounts_the_one_that_shows_more_of_the_way_up(tree) -> None:
    tree.membership("4:memory:/node/job\n", f"/node/job /slurm/cgroup cgroup rw,memory\n{V1}")
    tree.v1("slurm/cgroup", rss_mb=300)
    tree.v1("sys/fs/cgroup/memory/node", limit=GB, rss_mb=400)
    tree.v1("sys/fs/cgroup/memory/node/job", rss_mb=300)
    assert read(tree).limit_at == "/node"


def test_mount_point_with_a_space(tree) -> None:
    tree.membership("0::/job\n", "/ /sys/fs/my\\040cgroup cgroup2 rw")
    tree.v2("sys/fs/my cgroup/job", limit=GB, anon_mb=300)
    assert read(tree).anon_bytes == 300 * MB


def test_levels_without_the_memory_controller_are_passed_over(tree) -> None:
    tree.membership("0::/user.slice/session.scope/inner\n", V2)
    tree.v2("sys/fs/cgroup/user.slice", anon_mb=300)
    tree.write("sys/fs/cgroup/user.slice/session.scope/inner/cgroup.procs", "")
    found = read(tree)
    assert (found.path, found.limit_bytes, found.limit_at) == ("/user.slice", None, None)


@pytest.mark.parametrize(
    ("membership", "mounts"),
    [
        ("", ""),
        ("0::/\n", ""),
        ("0::/job\n", ""),
        ("0::/../other\n", V2),
        ("0::/job\n", "/../.. /sys/fs/cgroup cgroup2 rw"),
        ("0::/job\n", "/elsewhere /sys/fs/cgroup cgroup2 rw"),
        ("0::/job2\n", "/job /sys/fs/cgroup cgroup2 rw"),
        ("4:memory:/job\n", V2),
        ("garbage\n\x00\n::\n", V2),
    ],
)
def test_what_cannot_be_seen_from_here_is_none(tree, membership: str, mounts: str) -> None:
    tree.membership(membership, mounts)
    for folder in ("cgroup", "cgroup/job", "cgroup2", "other"):
        tree.v2(f"sys/fs/{folder}", limit=GB, anon_mb=1)
    assert read_cgroup(PID, str(tree.root), HOST) is None


@pytest.mark.parametrize("version", [1, 2])
def test_the_root_of_the_machine_is_nobodys_cgroup(tree, version: int) -> None:
    if version == 1:
        tree.membership("4:memory:/\n", V1)
        tree.v1("sys/fs/cgroup/memory", rss_mb=300)
        tree.write("sys/fs/cgroup/memory/release_agent", "")
    else:
        tree.membership("0::/\n", V2)
        tree.write("sys/fs/cgroup/memory.stat", "anon 300\n")
    assert read_cgroup(PID, str(tree.root), HOST) is None


def test_no_proc_at_all(tmp_path) -> None:
    assert read_cgroup(PID, str(tmp_path), HOST) is None


GARBAGE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"max\n",
            b"-1\n",
            b"9" * 30,
            b"anon -5\n",
            b"total_rss abc\n",
            b"anon 5 5\n",
            "anon ٣\n".encode(),
            b"\n\n",
            b"0",
        ]
    ),
)


@settings(max_examples=examples(60))
@given(data=st.data(), version=st.sampled_from([1, 2]))
def test_garbage_in_any_file_is_unknown_never_an_error(
    tmp_path_factory, make_tree, data, version: int
) -> None:
    tree = make_tree(tmp_path_factory.mktemp("garbage"))
    tree.process()
    tree.membership(*(("4:memory:/job\n", V1) if version == 1 else ("0::/job\n", V2)))
    folder = "sys/fs/cgroup/memory/job" if version == 1 else "sys/fs/cgroup/job"
    (tree.v1 if version == 1 else tree.v2)(folder, limit=GB)
    for file in sorted((tree.root / folder).iterdir()):
        if data.draw(st.booleans()):
            file.write_bytes(data.draw(GARBAGE))
    found = read_cgroup(PID, str(tree.root), HOST)
    assert found is not None
    for name, value in dataclasses.asdict(found).items():
        assert value is None or name in ("version", "path", "limit_at", "events") or value >= 0


@pytest.mark.parametrize(
    ("files", "peak", "hits"),
    [
        ({}, 50, None),
        ({"failcnt": 3}, 100, 3),
        ({"failcnt": 0, "memsw.failcnt": 5}, 100, 5),
        ({"failcnt": 2, "memsw.failcnt": 5}, 100, 7),
        ({"failcnt": 0, "memsw.failcnt": 0}, 99, 0),
        ({"failcnt": 0, "memsw.failcnt": 0}, 100, None),
        ({"failcnt": 0}, None, 0),
    ],
)
def test_hits_of_a_v1_limit(
    tmp_path: Path, files: dict[str, int], peak: int | None, hits: int | None
) -> None:
    for name, count in files.items():
        (tmp_path / f"memory.{name}").write_text(f"{count}\n")
    assert limit_hits(str(tmp_path), peak, 100) == hits
