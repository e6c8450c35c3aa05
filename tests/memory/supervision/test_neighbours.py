"""Memory of other processes in the cgroup whose limit counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from evidence_builder import LIMIT, MAIN, MB, explained, killed, oom, process, sample

from memory.measure.cgroup import Cgroup
from memory.record.samples import Sample, packed, unpacked
from memory.report.data.moments import sampled_moment
from memory.supervision import neighbours
from memory.supervision.neighbours import NeighbourReader, neighbours_anon_bytes

JOB = "sys/fs/cgroup/memory/job"


def _process(root: Path, pid: int, parent: int, megabytes: int, state: str = "S") -> None:
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text("4:memory:/job/task\n")
    (folder / "stat").write_text(f"{pid} (python) {state} {parent} 1 1 0\n")
    amounts = f"VmHWM:\t{megabytes << 10} kB\nVmRSS:\t{megabytes << 10} kB\nRssAnon:\t{megabytes << 10} kB\n"
    (folder / "status").write_text(
        f"Name:\tpython\nState:\t{state} (x)\nThreads:\t1\n" + amounts * (state == "S")
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The run: 10 and its child 11. In a step of its own: 20, which forked 21."""
    (tmp_path / "proc/self").mkdir(parents=True)
    mount = "30 1 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    (tmp_path / "proc/self/mountinfo").write_text(mount)
    for folder, pids in ((JOB, ""), (f"{JOB}/task", "10\n11\n"), (f"{JOB}/step.1", "20\n21\n")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").write_text(pids)
        (tmp_path / folder / "memory.limit_in_bytes").write_text("1000000000\n")
    for pid, parent, megabytes in ((10, 1, 100), (11, 10, 50), (20, 1, 30), (21, 20, 7)):
        _process(tmp_path, pid, parent, megabytes)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "ours", "megabytes"),
    [
        ("/job", {9, 10, 11}, 37),
        ("/job/task", {9, 10, 11}, 0),
        ("/elsewhere", {9, 10, 11}, None),
        ("/job", {9, 10}, 37),  # 11 was forked since our processes were listed
        ("/job", {10, 11, 20}, 0),  # 20 is the supervisor
    ],
)
def test_processes_that_are_not_ours(root: Path, path: str, ours: set[int], megabytes: int | None) -> None:
    found = neighbours_anon_bytes(10, path, ours, str(root))
    assert found == (None if megabytes is None else megabytes * MB)


@pytest.mark.parametrize(
    ("listed", "state", "megabytes"),
    [("22", "Z", 37), ("22", "R", None), ("23", "S", None), ("0", "S", None)],
)
def test_process_that_is_not_visible(root: Path, listed: str, state: str, megabytes: int | None) -> None:
    """22: a zombie holds nothing, an ending process may hold all; 23 is hidden, 0 of another namespace."""
    _process(root, 22, 20, 500, state=state)
    (root / JOB / "step.1/cgroup.procs").write_text(f"20\n21\n{listed}\n")
    found = neighbours_anon_bytes(10, "/job", {10, 11}, str(root))
    assert found == (None if megabytes is None else megabytes * MB)


def test_read_seldom_but_always_near_the_limit_and_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    held = iter(range(100))
    monkeypatch.setattr(neighbours, "neighbours_anon_bytes", lambda *_: next(held))
    job, read = Cgroup(2, "/job", 1000, anon_bytes=100, events={"oom_kill": 1}), NeighbourReader()

    def at(time_s: float, job: Cgroup) -> int | None:
        return read.anon_bytes(10, job, set(), "", time_s)

    assert [at(time_s, job) for time_s in (0, 1, 4, 8, 10.5, 20)] == [0, 1, 1, 1, 2, 3]
    near = dataclasses.replace(job, anon_bytes=900)
    assert [at(time_s, near) for time_s in (21, 21.1)] == [4, 5]
    kill = dataclasses.replace(job, events={"oom_kill": 2})
    assert [at(time_s, kill) for time_s in (22, 23, 26)] == [6, 7, 7]


@pytest.mark.parametrize("amount", [None, 0, 5 * MB])
def test_kept_in_the_ring(amount: int | None) -> None:
    one = sample(1, 100, neighbours_anon_bytes=amount)
    assert unpacked(packed(one)) == one


def _two_idle_workers(at: int, u_mb: int, neighbours_mb: int | None) -> Sample:
    """Three processes share 300 MB."""
    tree = tuple(process(MAIN + number, 300) for number in range(3))
    amount = None if neighbours_mb is None else neighbours_mb * MB
    return sample(at, u_mb, tree_anon_bytes=900 * MB, processes=3, tree=tree, neighbours_anon_bytes=amount)


def test_report_gives_workers_nothing_of_others() -> None:
    """Two idle workers share 300 MB with the main process; 200 MB are another rank's."""
    moment = sampled_moment(_two_idle_workers(1, 505, 200), 1.0)
    assert (moment.main, moment.workers, moment.other) == (300 * MB, 5 * MB, 200 * MB)


def test_growth_of_neighbours_is_no_copy_on_write(tmp_path: Path) -> None:
    samples = [_two_idle_workers(at, 320 + 23 * at, 20 + 23 * at) for at in range(31)]
    found = explained(tmp_path / "known", outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "neighbours")
    assert not [finding for finding in found.findings if finding.cause == "copy_on_write"]
    unknown = [_two_idle_workers(at, 320 + 23 * at, None) for at in range(31)]
    found = explained(tmp_path / "unknown", outcome=killed(**oom()), samples=unknown)
    confidences = [finding.confidence for finding in found.findings if finding.cause == "copy_on_write"]
    assert confidences == ["unknown"]


def test_copies_are_likely_if_no_neighbour_grew(tmp_path: Path) -> None:
    samples = [_two_idle_workers(at, 320 + 23 * at, 20) for at in range(31)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.cause, found.cause_confidence) == ("copy_on_write", "likely")


def test_memory_that_was_never_shared_was_not_copied(tmp_path: Path) -> None:
    """A batch script and its child; the step of another cgroup grew, unseen."""
    tree = (process(MAIN, 5), process(MAIN + 1, 5))
    samples = [sample(at, 12 + 33 * at, tree_anon_bytes=10 * MB, processes=2, tree=tree) for at in range(31)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.limit_bytes == LIMIT
    assert not [finding for finding in found.findings if finding.cause == "copy_on_write"]
