"""One process and its descendants: the split, the tree, and what is left where /proc is poorer."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import snapshot
from memory.measure.process import Process, ProcessReader, read_descendants, read_process
from tests.golden_text import Golden
from tests.searched import examples

MB = 1 << 20
PID = 4_000_000
needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")


@contextmanager
def forked(body: Callable[[], object] = lambda: None) -> Iterator[int]:
    """A child that runs `body`, then waits; yields its pid when the body is done."""
    ready, tell_ready = os.pipe()
    stop, tell_stop = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(tell_stop)
        kept = body()
        os.write(tell_ready, b"x")
        os.read(stop, 1)
        os._exit(int(kept is ...))
    os.read(ready, 1)
    try:
        yield pid
    finally:
        os.close(tell_stop)
        os.waitpid(pid, 0)
        for descriptor in (ready, tell_ready, stop):
            os.close(descriptor)


def test_the_split_of_a_process(tree) -> None:
    tree.process(anon_mb=100, file_mb=20, shmem_mb=3)
    assert read_process(PID, f"{tree.root}/proc") == Process(
        pid=PID,
        name=f"python{PID}",
        threads=1,
        rss_bytes=123 * MB,
        anon_bytes=100 * MB,
        file_bytes=20 * MB,
        shmem_bytes=3 * MB,
        swap_bytes=MB,
        peak_rss_bytes=246 * MB,
    )


def test_a_kernel_without_the_split(tree, golden: Golden) -> None:
    status = tree.root / f"proc/{PID}/status"
    status.write_text("".join(line for line in status.open() if not line.startswith("Rss")))
    found = read_process(PID, f"{tree.root}/proc")
    assert (found.rss_bytes, found.anon_bytes) == (120 * MB, None)
    golden.text(snapshot(PID, tree.root).notes[0])


def test_zombies_and_the_gone_are_nobody(tree) -> None:
    tree.write("proc/5/status", "Name:\tworker\nState:\tZ (zombie)\nThreads:\t1\n")
    assert read_process(5, f"{tree.root}/proc") is None
    assert read_process(6, f"{tree.root}/proc") is None
    assert (
        read_process(os.getpid(), f"{tree.root}/proc") is None
    )  # psutil is not asked where there is a /proc


def test_children_of_every_thread_and_theirs(tree) -> None:
    tree.process(children={PID: [11, 12], PID + 1: [13], PID + 2: []})
    tree.process(11, children={11: [14]})
    tree.process(12)
    tree.process(13, children={13: [PID, 11]})  # a garbled /proc must not send the walk in circles
    tree.process(14)
    proc = f"{tree.root}/proc"
    assert sorted(child.pid for child in read_descendants(read_process(PID, proc), proc)) == [11, 12, 13, 14]


def test_long_list_of_children_comes_in_several_reads(tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.files.procfs.ONE_READ_BYTES", 4096)  # as the kernel hands out a list
    many = list(range(1000, 3000))
    tree.process(children={PID: many})
    for pid in many:
        tree.write(f"proc/{pid}/status", "Name:\tw\nVmHWM:\t 4 kB\nVmRSS:\t 4 kB\nThreads:\t1\n")
    proc = f"{tree.root}/proc"
    assert [child.pid for child in read_descendants(read_process(PID, proc), proc)] == many


@settings(max_examples=examples(60))
@given(status=st.binary(max_size=200), children=st.binary(max_size=40))
def test_garbage_is_unknown_never_an_error(
    tmp_path_factory, make_tree, status: bytes, children: bytes
) -> None:
    tree = make_tree(tmp_path_factory.mktemp("garbage"))
    tree.process()
    for content in (status, b"Name:\tx\nVmRSS:\t" + status + b" kB\nRssAnon:\t1e9 kB\nThreads:\t" + status):
        tree.write(f"proc/{PID}/status", content)
        tree.write(f"proc/{PID}/task/{PID}/children", children)
        assert snapshot(PID, tree.root).main.anon_bytes is None


@needs_proc
def test_real_children_from_main_from_a_thread_and_of_a_child(tmp_path) -> None:
    script = (
        "import subprocess, sys, threading\n"
        "def start(*command): return subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE)\n"
        "if len(sys.argv) == 1: child = start(__file__, 'child')\n"
        "def body(): start('-S', '-c', 'input()'); print('ready', flush=True); sys.stdin.read()\n"
        "threading.Thread(target=body).start()\n"
    )
    path = tmp_path / "tree.py"
    path.write_text(script)
    with subprocess.Popen(
        [sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as top:
        assert [top.stdout.readline(), top.stdout.readline()] == ["ready\n", "ready\n"]
        expected = psutil.Process(top.pid).children(recursive=True)
        try:
            found = snapshot(top.pid).workers
        finally:
            for child in expected:
                child.kill()
    assert len(expected) == 3
    assert {worker.pid for worker in found} == {child.pid for child in expected}
    assert all(worker.anon_bytes > 0 for worker in found)


def test_without_proc_psutil_tells_what_it_can(tmp_path, golden: Golden) -> None:
    found = snapshot(root=tmp_path)
    assert found.main.rss_bytes > MB
    assert found.main.anon_bytes is found.unreclaimable_bytes is None
    assert found.host.total_bytes > found.host.available_bytes > 0
    golden.text("\n".join(found.notes))


@needs_proc
@pytest.mark.parametrize("content", [b"\xff\x00garbage: \xfe\n", b"", b"MemTotal: abc kB\n", None])
def test_a_meminfo_that_is_garbage_is_a_machine_of_unknown_size(tree, content: bytes | None) -> None:
    """psutil, which reads the same file, ends in an error of its own on it, and no run is to end with it."""
    found = tree.root / "proc/meminfo"
    found.unlink() if content is None else found.write_bytes(content)
    (tree.root / "proc/self").mkdir(parents=True, exist_ok=True)
    assert snapshot(PID, tree.root).host.total_bytes is None


def test_without_psutil_there_is_still_an_answer(tmp_path) -> None:
    code = (
        "import sys; sys.modules['psutil'] = None\n"
        f"from memory import snapshot; found = snapshot(root={str(tmp_path)!r})\n"
        "assert found.rss_bytes is None and found.limit_bytes is None and found.workers == (), found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


@needs_proc
def test_reading_a_mapped_file_grows_file_and_not_anon(small_file) -> None:
    with open(small_file(64), "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        before = snapshot()
        assert sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE)) > 0
        after = snapshot()
    assert after.main.file_bytes - before.main.file_bytes == pytest.approx(64 * MB, abs=2 * MB)
    assert after.main.rss_bytes - before.main.rss_bytes == pytest.approx(64 * MB, abs=4 * MB)
    assert abs(after.main.anon_bytes - before.main.anon_bytes) < 8 * MB


@needs_proc
def test_allocating_grows_anon_and_not_file() -> None:
    before = snapshot()
    held = bytearray(b"\x01") * (64 * MB)
    after = snapshot()
    assert len(held) == 64 * MB
    assert after.main.anon_bytes - before.main.anon_bytes == pytest.approx(64 * MB, abs=2 * MB)
    assert abs(after.main.file_bytes - before.main.file_bytes) < 2 * MB
    assert after.main.peak_rss_bytes >= after.main.rss_bytes - MB


@needs_proc
def test_shared_memory_is_neither() -> None:
    before = snapshot()
    with mmap.mmap(-1, 32 * MB) as shared:  # MAP_SHARED | MAP_ANONYMOUS: what /dev/shm is to torch's workers
        shared[:] = b"\x01" * len(shared)
        after = snapshot()
    assert after.main.shmem_bytes - before.main.shmem_bytes == pytest.approx(32 * MB, abs=MB)
    assert abs(after.main.anon_bytes - before.main.anon_bytes) < 8 * MB


@needs_proc
def test_pss_divides_what_is_shared_and_is_read_only_when_asked_for() -> None:
    if not Path("/proc/self/smaps_rollup").exists():
        pytest.skip("a kernel without smaps_rollup (before 4.14)")
    held = bytearray(b"\x01") * (64 * MB)
    with forked():
        assert snapshot().pss_bytes is None
        found = snapshot(pss=True)
    assert len(held) == 64 * MB
    assert found.main.pss_bytes < found.main.rss_bytes - 25 * MB, "half of what the child shares"
    assert found.pss_bytes >= found.main.pss_bytes
    assert "pss_bytes" not in found.amounts


@needs_proc
def test_page_tables_grow_with_what_is_mapped() -> None:
    before = snapshot()
    with mmap.mmap(-1, 64 * MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        for at in range(0, len(pages), mmap.PAGESIZE):
            pages[at] = 1
        after = snapshot()
    grown = after.main.page_tables_bytes - before.main.page_tables_bytes
    assert grown == 0 or 64 * MB // 1024 < grown < MB  # 0: huge pages


@needs_proc
def test_pages_shared_with_forked_workers_count_once_where_the_cgroup_tells() -> None:
    if snapshot().scope != "job":
        pytest.skip("no readable memory cgroup")
    held = bytearray(b"\x01") * (96 * MB)
    with forked() as one, forked() as other, forked(lambda: bytearray(b"\x01") * (32 * MB)) as writer:
        found = snapshot()
    assert len(held) == 96 * MB
    ours = (one, other, writer)  # other tests may have left a helper of a library
    listed = {worker.pid: worker.anon_bytes for worker in found.workers if worker.pid in ours}
    assert min(listed.values()) > 90 * MB, "the kernel lists the shared pages in each process"
    assert listed[writer] > 120 * MB
    assert found.job.anon_bytes >= found.anon_bytes
    # other processes of a shared cgroup may fill the gap, so only an upper bound holds
    assert found.workers_anon_bytes <= found.job.anon_bytes - found.main.anon_bytes


def test_reader_reads_again_if_statm_changes_or_after_some_seconds(
    tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("memory.measure.process.time.monotonic", lambda: now_s[0])
    reader, proc = ProcessReader(), f"{tree.root}/proc"

    def anon_mb(written_mb: int, statm: str, at_s: float) -> int:
        tree.process(anon_mb=written_mb)
        tree.write(f"proc/{PID}/statm", statm)
        now_s[0] = at_s
        process, _ = reader.read(PID, proc)
        return process.anon_bytes // MB

    assert anon_mb(10, "900 600 500", 100) == 10
    assert anon_mb(20, "900 600 500", 102) == 10
    assert anon_mb(30, "900 601 500", 102) == 30
    assert anon_mb(40, "900 601 500", 105) == 30
    assert anon_mb(50, "900 601 500", 106) == 50
    shutil.rmtree(f"{proc}/{PID}")
    assert reader.read(PID, proc) is None
