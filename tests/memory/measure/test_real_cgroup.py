"""A real limit, real memory against it, and a real OOM kill by the kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from supervised import limited_cgroup

pytestmark = pytest.mark.privileged

MB = 1 << 20
LIMIT = 200 * MB
ROOT = Path(__file__).parents[3]
Run = Callable[..., subprocess.CompletedProcess[str]]
Limited = tuple[tuple[str, ...], Path, str]


@pytest.fixture
def limited() -> Iterator[Limited]:
    with limited_cgroup(LIMIT) as found:
        yield found


@pytest.fixture
def run_limited(limited: Limited) -> Run:
    """Runs Python code whose every page is charged to the task's cgroup."""

    def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [*limited[0], sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)

    return run


def test_unreclaimable_limit_and_file_pages(limited: Limited, run_limited: Run, tmp_path: Path) -> None:
    code = """
import json, mmap, os, sys
from memory import snapshot
before = snapshot().to_json()
path, shared = sys.argv[1:]
held = bytearray(b"x") * (50 << 20)
with open(path, "wb") as file:
    for _ in range(64):
        file.write(b"x" * (1 << 20))
    os.fsync(file.fileno())
with open(shared, "wb") as file:
    file.write(b"x" * (20 << 20))
with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
    sum(mapped[at] for at in range(0, len(mapped), mmap.PAGESIZE))
    print(json.dumps([before, snapshot().to_json()]))
"""
    shared = Path(f"/dev/shm/highwater_test_{os.getpid()}")
    try:
        done = run_limited(code, tmp_path / "tokens.bin", shared)
    finally:
        shared.unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    job, path = after["job"], limited[2]
    assert (after["scope"], after["limit_bytes"], after["limit_at"], job["path"]) == (
        "job",
        LIMIT,
        path,
        path,
    )
    assert grown(before, after, "job", "anon_bytes") == pytest.approx(50 * MB, abs=3 * MB)
    assert grown(before, after, "job", "shmem_bytes") == pytest.approx(20 * MB, abs=MB)
    assert grown(before, after, "job", "file_bytes") == pytest.approx(64 * MB, abs=3 * MB)
    assert 0 < job["kernel_bytes"] < 20 * MB
    assert after["unreclaimable_bytes"] == job["anon_bytes"] + job["shmem_bytes"] + job["kernel_bytes"]
    assert after["unreclaimable_bytes"] - before["unreclaimable_bytes"] == pytest.approx(70 * MB, abs=6 * MB)
    assert grown(before, after, "main", "file_bytes") == pytest.approx(64 * MB, abs=3 * MB)
    assert grown(before, after, "main", "anon_bytes") == pytest.approx(50 * MB, abs=3 * MB)
    assert job["peak_usage_bytes"] >= job["usage_bytes"] > 134 * MB
    assert job["anon_bytes"] == pytest.approx(after["main"]["anon_bytes"], abs=4 * MB)


def test_a_kill_by_the_kernel_is_counted(limited: Limited, run_limited: Run, tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from memory import record_to, snapshot, stage
with record_to(Path(sys.argv[1]), attempt=1), stage("load"):
    pid = os.fork()
    if pid == 0:
        Path("/proc/self/oom_score_adj").write_text("1000")
        held = []
        while True:
            held.append(bytearray(b"x") * (1 << 20))
    _, status = os.waitpid(pid, 0)
print(os.WTERMSIG(status))
"""
    done = run_limited(code, tmp_path / "memory.jsonl")
    assert (done.returncode, done.stdout) == (0, "9\n"), done.stderr
    begin, end = (json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines())
    assert begin["snapshot"]["job"]["events"]["oom_kill"] == 0
    assert end["snapshot"]["job"]["events"]["oom_kill"] == 1
    assert end["snapshot"]["limit_at"] == limited[2]
    assert end["snapshot"]["job"]["peak_usage_bytes"] == pytest.approx(LIMIT, rel=0.02)


def test_a_killed_run_leaves_its_last_stage(run_limited: Run, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from memory import record_to, stage
with record_to(Path(sys.argv[1]), attempt=1):
    held = []
    for step in range(1000):
        with stage("train", step=step):
            held.append(bytearray(b"x") * (10 << 20))
"""
    done = run_limited(code, tmp_path / "memory.jsonl")
    assert done.returncode == -9
    found = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
    assert found[-1]["event"] == "begin"
    assert found[-1]["facts"]["step"] == len(found) // 2
    assert found[-1]["snapshot"]["unreclaimable_bytes"] > 0.8 * LIMIT


def test_the_screen_shows_the_job_and_all_that_runs_in_it(limited: Limited, run_limited: Run) -> None:
    code = """
import os, signal, sys
held = bytearray(b"x") * (45 << 20)
pids = [os.fork() or signal.pause() for _ in range(2)]
from memory.__main__ import main
status = main(sys.argv[1:])
for pid in pids:
    os.kill(pid, 9)
sys.exit(status)
"""
    found = json.loads(run_limited(code, "--json").stdout)
    job, path = found["snapshot"]["job"], limited[2]
    assert (found["processes_of"], job["path"], job["limit_bytes"]) == ("job", path, LIMIT)
    assert len(found["processes"]) >= 2
    assert all(process["anon_bytes"] > 45 * MB for process in found["processes"][:2])
    assert 45 * MB < job["anon_bytes"] < 90 * MB, "shared pages once"
    levels = [(level["path"], level["limit_bytes"]) for level in found["limits"][:2]]
    assert levels == [(f"{path}/task_0", None), (path, LIMIT)]
    text = run_limited(code).stdout
    assert "200 MB" in text
    assert path in text


def grown(before: dict[str, Any], after: dict[str, Any], part: str, key: str) -> int:
    return after[part][key] - before[part][key]


def test_a_leak_in_a_limited_job(run_limited: Run) -> None:
    code = """
import json, time
from memory import LeakMonitor, snapshot
from memory.leaks import monitor as leak_monitor
leak_monitor._SHARE = 1.0  # of a core: on a busy machine too, every step is measured
monitor, held = LeakMonitor(), []
for step in range(160):
    held.append(bytearray(b"x" * (1 << 19)))
    time.sleep(0.02)
    monitor.sample(step)
report = monitor.look(160)
now = snapshot()
left = now.limit_bytes - now.unreclaimable_bytes
print(json.dumps({**report.to_json(), "left": left, "parts": report.parts()}))
"""
    done = run_limited(code)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["scope"], found["verdict"], found["holder"]) == ("job", "leak", "main")
    assert found["slope_bytes_per_step"] == pytest.approx(MB / 2, rel=0.2)
    assert found["eta_steps"] == pytest.approx(found["left"] / found["slope_bytes_per_step"], rel=0.1)
    assert found["parts"][0].startswith("+0.5 MB/step")


def test_shared_pages_that_become_copies_grow_in_no_process(run_limited: Run) -> None:
    """Per process nothing moves when a forked worker writes to what it shares; the job's anon does."""
    code = """
import json, os, time
from memory import LeakMonitor
from memory.leaks import monitor as leak_monitor
leak_monitor._SHARE = 1.0
pages = bytearray(b"x") * (60 << 20)
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    for step in range(160):
        if not os.read(read, 1):
            break
        for at in range(step << 18, (step + 1) << 18, 4096):
            pages[at] = 1
    os.read(read, 1)
    os._exit(0)
os.close(read)
monitor = LeakMonitor()
for step in range(160):
    os.write(write, b"x")
    time.sleep(0.02)
    monitor.sample(step)
report = monitor.look(160)
os.close(write)
os.wait()
print(json.dumps(report.to_json()))
"""
    done = run_limited(code)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["scope"], found["verdict"], found["processes"]) == ("job", "leak", {})
    assert found["holder"] != "main"
    assert found["slope_bytes_per_step"] == pytest.approx(MB / 4, rel=0.3)


def test_a_file_that_is_locked_cannot_be_given_back(run_limited: Run, tmp_path: Path) -> None:
    code = """
import ctypes, json, mmap, sys
from memory import snapshot
path = sys.argv[1]
with open(path, "wb") as file:
    for _ in range(60):
        file.write(b"x" * (1 << 20))
libc = ctypes.CDLL(None, use_errno=True)
with open(path, "r+b") as file:
    held = mmap.mmap(file.fileno(), 0)
at = ctypes.addressof(ctypes.c_char.from_buffer(held))
before = snapshot().to_json()
if libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(40 << 20)):
    sys.exit(f"mlock: {ctypes.get_errno()}")
print(json.dumps([before, snapshot().to_json()]))
"""
    done = run_limited(code, tmp_path / "tokens.bin")
    assert done.returncode == 0, done.stderr
    before, after = json.loads(done.stdout)
    job = after["job"]
    assert before["job"]["locked_bytes"] == 0
    assert job["locked_bytes"] == pytest.approx(40 * MB, abs=MB)
    assert grown(before, after, "job", "file_bytes") == pytest.approx(-40 * MB, abs=3 * MB)
    parts = ("anon_bytes", "shmem_bytes", "kernel_bytes", "locked_bytes")
    assert after["unreclaimable_bytes"] == sum(job[part] for part in parts)
