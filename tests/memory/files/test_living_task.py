"""A process whose main thread has ended and whose other threads work on: nothing of it is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import limited_cgroup, outcome_in, supervise

from memory.files.living_task import living_task
from memory.measure.cgroup import read_cgroup, read_membership
from memory.measure.dev_shm import read_dev_shm
from memory.measure.process import read_process

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads in /proc are Linux's")

MB = 1 << 20
EXITS = """
import ctypes, mmap, os, sys, threading, time
held = bytearray(b"x") * (40 << 20)
path = f"/dev/shm/highwater_test_{os.getpid()}"
shared = open(path, "w+b")
shared.write(bytes(1 << 20)); shared.flush()
def work():
    while open("/proc/self/stat").read().rpartition(") ")[2][0] != "Z":
        time.sleep(0.01)
    print(path, flush=True)
    WORK
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(93 if os.uname().machine == "aarch64" else 60, 0)
"""
"""exit(2) of the main thread alone, by its number."""
KNOWS_IT = os.uname().machine in ("x86_64", "aarch64")


@pytest.fixture
def without_main_thread() -> Iterator[tuple[int, str]]:
    """(pid, path of a file in /dev/shm that it has open)."""
    if not KNOWS_IT:
        pytest.skip("the number of exit(2) on this machine is not known")
    code = EXITS.replace("WORK", "sys.stdin.read()")
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    path = process.stdout.readline().strip()
    try:
        yield process.pid, path
    finally:
        process.communicate("", timeout=60)
        Path(path).unlink(missing_ok=True)


def test_what_it_holds_is_seen(without_main_thread: tuple[int, str]) -> None:
    pid, path = without_main_thread
    task = living_task(pid)
    assert task is not None, Path(f"/proc/{pid}/stat").read_text()
    assert task.startswith(f"/proc/{pid}/task/")
    assert not task.endswith(f"/{pid}")
    found = read_process(pid)
    assert found is not None
    assert (found.anon_bytes or 0) > 40 * MB
    assert (found.threads or 0) > 1
    shm = read_dev_shm()
    assert shm is not None
    assert next(file for file in shm.files if file.path == path).used_by == (pid,)


def test_its_cgroup_is_the_one_that_it_is_in(without_main_thread: tuple[int, str]) -> None:
    pid, _ = without_main_thread
    assert read_membership(pid) == read_membership(os.getpid())
    here, there = read_cgroup(os.getpid()), read_cgroup(pid)
    assert (here and here.path) == (there and there.path)


def test_who_lives_and_who_has_ended_have_none() -> None:
    assert living_task(os.getpid()) is None
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert living_task(ended.pid) is None
    assert read_process(ended.pid) is None
    ended.wait()
    assert living_task(ended.pid) is None


@pytest.mark.privileged
@pytest.mark.skipif(not KNOWS_IT, reason="the number of exit(2) on this machine is not known")
def test_a_run_whose_main_thread_has_ended_is_sampled_to_its_end(tmp_path: Path) -> None:
    code = EXITS.replace(
        "WORK",
        "time.sleep(2); held = []\n"
        "    os.unlink(path)\n"
        "    while True:\n"
        "        held.append(bytearray(b'x') * (4 << 20)); time.sleep(0.05)",
    )
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with limited_cgroup(150 * MB) as (enter, _, path):
            done = supervise(folder, [sys.executable, "-c", code], prefix=enter)
        assert done.returncode == -9, done.stderr
        # the kernel does not see a victim whose main thread is dead: it may take the supervisor as well
        if (folder / "outcome.json").exists():
            break
    outcome = outcome_in(folder)
    assert outcome["counters_after"]["oom_kill"] - outcome["counters_before"]["oom_kill"] == 1
    assert outcome["limit_at"] == path
    assert outcome["peak_unreclaimable_bytes"] > 0.7 * 150 * MB
    assert outcome["victim"]["is_main"]
