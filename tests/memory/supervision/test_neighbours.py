"""What others hold in the cgroup whose limit counts: read, and told from what is the run's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from evidence_builder import LIMIT, MAIN, MB, explained, killed, oom, process, sample

from memory.record.samples import Sample, packed, unpacked
from memory.report.data.moments import sampled_moment
from memory.supervision.neighbours import anon_beside

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
    """The run: 10 and its child 11. Beside it 20 in a step of its own, which forked 21."""
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


def test_who_is_beside(root: Path) -> None:
    assert anon_beside(10, "/job", {9, 10, 11}, str(root)) == 37 * MB
    assert anon_beside(10, "/job/task", {9, 10, 11}, str(root)) == 0
    assert anon_beside(10, "/elsewhere", {9, 10, 11}, str(root)) is None


def test_a_helper_is_no_part_of_the_run_and_its_children_are(root: Path) -> None:
    """As the supervisor, 20, which has forked 21 just now."""
    assert anon_beside(10, "/job", {10, 11, 20}, str(root), helpers=frozenset({20})) == 30 * MB


def test_a_report_gives_workers_nothing_of_others(tmp_path: Path) -> None:
    """Two idle workers share 300 MB with the main process; 200 MB are another rank's."""
    moment = sampled_moment(_two_idle_workers(1, 505, 200), 1.0)
    assert (moment.main, moment.workers, moment.other) == (300 * MB, 5 * MB, 200 * MB)


def test_one_that_was_forked_since_is_ours(root: Path) -> None:
    assert anon_beside(10, "/job", {9, 10}, str(root)) == 37 * MB


def test_one_that_cannot_be_seen(root: Path) -> None:
    _process(root, 22, 20, 0, state="Z")
    (root / JOB / "step.1/cgroup.procs").write_text("20\n21\n22\n")
    assert anon_beside(10, "/job", {10, 11}, str(root)) == 37 * MB, "a zombie holds nothing"
    _process(root, 24, 20, 500, state="R")
    (root / JOB / "step.1/cgroup.procs").write_text("20\n21\n24\n")
    assert anon_beside(10, "/job", {10, 11}, str(root)) is None, "one that is ending may hold all of it"
    for hidden in ("23", "0"):
        (root / JOB / "step.1/cgroup.procs").write_text(f"20\n{hidden}\n")
        assert anon_beside(10, "/job", {10, 11}, str(root)) is None


@pytest.mark.parametrize("beside", [None, 0, 5 * MB])
def test_it_is_kept_in_the_ring(beside: int | None) -> None:
    one = sample(1, 100, beside_anon_bytes=beside)
    assert unpacked(packed(one)) == one


def _two_idle_workers(at: int, u_mb: int, beside_mb: int | None) -> Sample:
    """Three processes share 300 MB."""
    tree = tuple(process(MAIN + number, 300) for number in range(3))
    beside = None if beside_mb is None else beside_mb * MB
    return sample(at, u_mb, tree_anon_bytes=900 * MB, processes=3, tree=tree, beside_anon_bytes=beside)


def test_another_process_of_the_job_that_grows_is_no_copy_on_write(tmp_path: Path) -> None:
    samples = [_two_idle_workers(at, 320 + 23 * at, 20 + 23 * at) for at in range(31)]
    found = explained(tmp_path / "known", outcome=killed(**oom()), samples=samples)
    assert (found.verdict, found.cause) == ("oom_cgroup", "neighbours")
    assert not [finding for finding in found.findings if finding.cause == "copy_on_write"]
    unknown = [_two_idle_workers(at, 320 + 23 * at, None) for at in range(31)]
    found = explained(tmp_path / "unknown", outcome=killed(**oom()), samples=unknown)
    told = [finding.confidence for finding in found.findings if finding.cause == "copy_on_write"]
    assert told == ["unknown"]


def test_copies_are_likely_if_no_neighbour_grew(tmp_path: Path) -> None:
    samples = [_two_idle_workers(at, 320 + 23 * at, 20) for at in range(31)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert (found.cause, found.cause_confidence) == ("copy_on_write", "likely")


def test_what_was_not_shared_at_first_was_not_copied(tmp_path: Path) -> None:
    """A batch script and its child; the step of another cgroup grew, unseen."""
    tree = (process(MAIN, 5), process(MAIN + 1, 5))
    samples = [sample(at, 12 + 33 * at, tree_anon_bytes=10 * MB, processes=2, tree=tree) for at in range(31)]
    found = explained(tmp_path, outcome=killed(**oom()), samples=samples)
    assert found.limit_bytes == LIMIT
    assert not [finding for finding in found.findings if finding.cause == "copy_on_write"]
