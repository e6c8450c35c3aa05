"""In calm less is read, and what decides is as true as ever; where there is haste all is read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from supervised import wait_for

from memory.measure.cgroup import Cgroup
from memory.measure.host import Host
from memory.measure.process import Process, read_process
from memory.supervision import rate_limited_reads as calm
from memory.supervision.rate_limited_reads import LOOKS_IN_CALM, LOOKS_OF_THE_REST, CalmReads
from memory.supervision.sampler import look

PIDS = range(100, 120)
linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes whose list was read; 100 is the parent of all others."""
    found: list[int] = []

    def children_of(process: Process, proc: str) -> list[int]:
        found.append(process.pid)
        return list(PIDS[1:]) if process.pid == PIDS[0] else []

    monkeypatch.setattr(calm, "children_of", children_of)
    return found


def looked(by: CalmReads, *, is_calm: bool) -> None:
    by.begin(is_calm=is_calm)
    for pid in PIDS:
        by.children(Process(pid), "/proc")


def test_in_calm_each_is_asked_once_in_so_many_looks(asked: list[int]) -> None:
    by = CalmReads()
    looked(by, is_calm=True)
    assert asked == [*PIDS], "at first all"
    asked.clear()
    for _ in range(LOOKS_IN_CALM):
        looked(by, is_calm=True)
    assert sorted(asked) == [*PIDS]


def test_in_haste_all_are_asked(asked: list[int]) -> None:
    by = CalmReads()
    for is_calm in (True, True, False, False):
        asked.clear()
        looked(by, is_calm=is_calm)
    assert asked == [*PIDS]


@linux
def test_a_grandchild_is_seen_within_so_many_looks() -> None:
    code = "import subprocess, sys; input(); subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    by = CalmReads()

    def seen() -> int:
        by.begin(is_calm=True)
        return len(look(child.pid, (child.pid,), 0.0, reads=by).processes)

    try:
        assert seen() == 1
        child.stdin.write(b"\n")
        child.stdin.flush()
        while not Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text():
            pass
        assert 2 in [seen() for _ in range(LOOKS_IN_CALM)]
        assert seen() == 2
    finally:
        child.kill()
        child.communicate()


HOLDER = """
import mmap, sys
held = []
for line in sys.stdin:
    kind, megabytes = line.split()
    if kind == "anon":
        held.append(bytearray(b"x") * (int(megabytes) << 20))
    elif kind == "shared":
        held.append(mmap.mmap(-1, int(megabytes) << 20))
        held[-1].write(b"x" * (int(megabytes) << 20))
    elif kind == "file":
        opened = open(sys.argv[1], "rb")
        held.append(mmap.mmap(opened.fileno(), int(megabytes) << 20, access=mmap.ACCESS_READ))
        sum(held[-1][:: mmap.PAGESIZE])
    print("done", flush=True)
"""


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


@linux
def test_what_decides_is_never_old(tmp_path: Path) -> None:
    """At each look the split of resident memory is that of status, whatever the process just did."""
    (tmp_path / "file").write_bytes(bytes(16 << 20))
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "file")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    by = CalmReads()
    try:
        for order in ["anon 3", "anon 5", "shared 4", "anon 2", "file 6", "anon 1", "shared 2", "anon 4"]:
            child.stdin.write(order + "\n")
            assert child.stdout.readline() == "done\n"
            wait_for(lambda: _sleeps(child.pid))  # it waits for the next order, and takes nothing more
            by.begin(is_calm=True)
            found, true = by.process(child.pid, "/proc"), read_process(child.pid)
            assert found is not None
            assert true is not None
            for name in ("rss_bytes", "anon_bytes", "file_bytes", "shmem_bytes"):
                assert getattr(found, name) == getattr(true, name), (order, name)
    finally:
        child.kill()
        child.communicate()
    by.begin(is_calm=True)
    assert by.process(child.pid, "/proc") is None, "it is gone"


MAPS = st.sampled_from([(900, 600), (901, 600), (900, 601), (700, 500)])


@given(maps=st.lists(MAPS, min_size=1, max_size=4 * LOOKS_OF_THE_REST))
def test_what_comes_and_goes_between_two_looks_of_all(
    tmp_path_factory: pytest.TempPathFactory, maps: list[tuple[int, int]]
) -> None:
    """A process that is again as it was some looks ago, with another state between, is told as it is."""
    proc = tmp_path_factory.mktemp("proc")
    (proc / "7").mkdir()
    by = CalmReads()
    for rss, shared in maps:
        kilobytes = {"VmRSS": 4 * rss, "RssAnon": 4 * (rss - shared), "RssFile": 4 * shared, "RssShmem": 0}
        lines = "".join(f"{name}:\t{amount} kB\n" for name, amount in kilobytes.items())
        (proc / "7" / "status").write_text(f"Name:\tjob\nState:\tS (sleeping)\n{lines}Threads:\t1\n")
        (proc / "7" / "statm").write_text(f"5000 {rss} {shared} 1 0 900 0\n")
        by.begin(is_calm=True)
        found = by.process(7, str(proc))
        assert found is not None
        page = os.sysconf("SC_PAGE_SIZE")
        assert (found.rss_bytes, found.anon_bytes, found.file_bytes) == (
            page * rss, page * (rss - shared), page * shared,
        )  # fmt: skip


@linux
def test_status_is_read_seldom_in_calm_and_always_in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(pid: int, proc: str) -> Process | None:
        read.append(pid)
        return read_process(pid, proc)

    monkeypatch.setattr(calm, "read_process", counted)
    by, sleeper = CalmReads(), subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None
    try:
        os.write(sleeper.stdin.fileno(), b"x")
        os.read(sleeper.stdout.fileno(), 1)
        wait_for(lambda: _sleeps(sleeper.pid))  # what it takes at its start it has by then
        for is_calm, expected in ((True, 3), (False, 16)):  # the first look, and two in turn
            read.clear()
            for _ in range(2 * LOOKS_OF_THE_REST):
                by.begin(is_calm=is_calm)
                by.process(sleeper.pid, "/proc")
            assert len(read) in ((expected - 1, expected) if is_calm else (expected,))
    finally:
        sleeper.kill()
        sleeper.communicate()


@pytest.mark.parametrize("version", [1, 2])
def test_a_job_in_calm_is_told_as_it_is_but_for_its_peak_and_hits(tree: Any, version: int) -> None:
    folder = "sys/fs/cgroup/memory/job_7" if version == 1 else "sys/fs/cgroup/job_7"
    kind = "cgroup rw,memory" if version == 1 else "cgroup2 rw"
    mount = "/ /sys/fs/cgroup/memory" if version == 1 else "/ /sys/fs/cgroup"
    tree.membership("4:memory:/job_7\n" if version == 1 else "0::/job_7\n", f"{mount} {kind}")

    def write(megabytes: int, limit: int = 1 << 30) -> None:
        if version == 1:
            tree.v1(folder, rss_mb=megabytes, limit=limit, kills=megabytes)
            tree.write(f"{folder}/memory.failcnt", f"{megabytes}\n")
        else:
            tree.v2(folder, anon_mb=megabytes, limit=limit, kills=megabytes)

    by = CalmReads()

    def told(*, is_calm: bool) -> Cgroup:
        by.begin(is_calm=is_calm)
        found = by.cgroup(4_000_000, str(tree.root), 64 << 30)
        assert found is not None
        return found

    write(100)
    peaks = {told(is_calm=True).peak_usage_bytes}
    write(200)
    for _ in range(LOOKS_OF_THE_REST):
        found = told(is_calm=True)
        assert (found.anon_bytes, (found.events or {})["oom_kill"]) == (200 << 20, 200)
        peaks.add(found.peak_usage_bytes)
    assert peaks == {107 << 20, 207 << 20}, "old for some looks, and then read"
    write(300)
    found = told(is_calm=False)
    assert found.peak_usage_bytes == 307 << 20
    assert version == 2 or (found.events or {})["failcnt"] == 300
    write(400, limit=2 << 30)
    assert told(is_calm=True).peak_usage_bytes == 407 << 20, "of another limit nothing is known"


def test_after_a_kill_others_are_looked_at_anew(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them may have been killed; what was read some looks before would tell that it lives."""
    held = [10 << 20]
    monkeypatch.setattr(calm, "anon_beside", lambda *_, **__: held[0])
    tree.membership("0::/job_7\n", "/ /sys/fs/cgroup cgroup2 rw")

    def told(*, kills: int) -> int | None:
        tree.v2("sys/fs/cgroup/job_7", anon_mb=100, limit=1 << 30, kills=kills)
        by.begin(is_calm=True)
        found = by.cgroup(4_000_000, str(tree.root), 64 << 30)
        assert found is not None
        return by.beside(4_000_000, found.path, set(), str(tree.root))

    by = CalmReads()
    while told(kills=1) != held[0] or not by.is_turn_of(0, LOOKS_OF_THE_REST):
        pass
    held[0] = 0
    assert told(kills=1) == 10 << 20, "in calm it may be some looks old"
    assert told(kills=2) == 0
    held[0] = 5
    assert told(kills=2) == 5, "one that was killed may still have been ending at that look"


@pytest.mark.parametrize(("available", "reads"), [(60, 2), (40, 16)])
def test_the_machine_is_looked_at_seldom_while_much_is_available(
    monkeypatch: pytest.MonkeyPatch, available: int, reads: int
) -> None:
    read: list[tuple[str, ...]] = []

    def counted(*of: str) -> Host:
        read.append(of)
        return Host(100, available)

    monkeypatch.setattr(calm, "read_host", counted)
    by = CalmReads()
    for _ in range(2 * LOOKS_OF_THE_REST):
        by.begin(is_calm=True)
        by.host()
    assert len(read) in (reads, reads + 1)
