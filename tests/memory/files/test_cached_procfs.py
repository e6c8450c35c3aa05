"""Files that are held open say what a fresh read says, of whomever their name is by now."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memory.files import cached_procfs as kept_files
from memory.files.cached_procfs import KeptFiles
from memory.files.procfs import read_file

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")


def descriptors() -> list[str]:
    return [
        str(Path(f"/proc/self/fd/{name}").readlink())
        for name in os.listdir("/proc/self/fd")
        if _is_open(name)
    ]


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


@pytest.fixture
def kept() -> KeptFiles:
    return KeptFiles()


def test_it_reads_what_stands_there_now(kept: KeptFiles) -> None:
    path = f"/proc/{os.getpid()}/comm"
    before = kept.read(path)
    os.write(one := os.open(path, os.O_WRONLY), b"other name")
    try:
        assert kept.read(path) == b"other name\n" != before
    finally:
        os.write(one, (before or b"").strip())
        os.close(one)
    assert len(kept._open) == 1, "opened once"
    kept.close()


def test_a_process_that_is_gone_takes_its_files_along(kept: KeptFiles) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    status, children = f"/proc/{child.pid}/status", f"/proc/{child.pid}/task/{child.pid}/children"
    assert kept.read(status)
    assert kept.read(children) == b""
    child.communicate(b"\n")
    assert kept.read(status) is None
    assert kept._open == {}, "its children file answers nothing for ever, also for another of that number"


def test_another_of_the_same_number_is_read(kept: KeptFiles, tmp_path: Path) -> None:
    """The descriptor is of a process that is gone; the name is of one that lives."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gone = os.open(f"/proc/{child.pid}/status", os.O_RDONLY)
    child.communicate(b"\n")
    path = f"/proc/{os.getpid()}/status"
    kept._open[path] = gone
    assert f"Pid:\t{os.getpid()}\n".encode() in (kept.read(path) or b"")
    kept.close()


@pytest.mark.parametrize("become", ["closed", "a pipe"])
def test_a_descriptor_that_somebody_closed_is_no_longer_ours(kept: KeptFiles, become: str) -> None:
    path = f"/proc/{os.getpid()}/status"
    kept.read(path)
    (number,) = kept._open.values()
    if become == "closed":
        os.close(number)
        assert kept.read(path)
    else:
        reading, writing = os.pipe()
        os.dup2(reading, number)
        assert kept.read(path)
        os.fstat(number)  # left alone: it is somebody else's
        for one in (number, reading, writing):
            os.close(one)
    kept.close()


def test_no_more_than_so_many_are_held(kept: KeptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "_MOST", 3)
    monkeypatch.setattr(kept_files, "_BEGINS_ANEW_AFTER", 5)
    names = ["status", "stat", "statm", "limits", "cgroup", "mountinfo"]
    for _ in range(4):
        for name in names:
            assert kept.read(f"/proc/self/{name}") is not None
            assert len(kept._open) <= 3
    kept.close()


def test_recorded_trees_are_read_anew(kept: KeptFiles, tmp_path: Path) -> None:
    path = tmp_path / "memory.stat"
    for content in (b"anon 1\n", b"anon 2\n"):
        path.with_suffix(".new").write_bytes(content)
        path.with_suffix(".new").rename(path)
        assert kept.read(str(path)) == content
    assert kept.read(str(tmp_path / "missing")) is None
    assert kept._open == {}


def test_a_fork_reads_its_own(kept: KeptFiles) -> None:
    kept_files.read_kept("/proc/self/status")
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        held = [one for one in descriptors() if one.startswith("/proc/") and one.endswith("/status")]
        told = f"Pid:\t{os.getpid()}\n".encode() in (kept_files.read_kept("/proc/self/status") or b"")
        os.write(writing, f"{told} {held}".encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    assert os.read(reading, 1000) == b"True []"
    os.close(reading)


def test_threads(kept: KeptFiles) -> None:
    path, wrong = f"/proc/{os.getpid()}/stat", []

    def read() -> None:
        for _ in range(2000):
            content = kept.read(path) or b""
            if not content.startswith(f"{os.getpid()} (".encode()):
                wrong.append(content)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len([one for one in descriptors() if one == path]) == len(kept._open) == 1
    kept.close()
    assert read_file(path)


def test_who_closes_all_files_and_opens_his_own_keeps_them() -> None:
    """As a daemon does; in a process of its own."""
    code = (
        "import os, sys; from memory import snapshot\n"
        "before = snapshot()\n"
        "os.closerange(3, 256)\n"
        "own = [open('/dev/null') for _ in range(60)]\n"
        "after = snapshot()\n"
        "assert after.notes == before.notes and after.main.anon_bytes, after\n"
        "if os.fork() == 0:\n"
        "    os._exit(any(os.fstat(one.fileno()) is None for one in own))\n"
        "sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_where_few_files_are_allowed_none_are_held() -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "from memory import snapshot; from memory.files.cached_procfs import KEPT\n"
        "assert snapshot().main.anon_bytes and not KEPT._open\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
