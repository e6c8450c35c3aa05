"""`python -m memory stacks`: Python stacks of the processes of a run on this host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from made_runs import sample_of, write_ring
from supervised import pid_in, start_supervised, wait_for

from memory.measure.process import started_at
from memory.record.ring import RingWriter, read_ring
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[3]
ANSWERS = f"""
import sys; sys.path.append({str(ROOT)!r})
from memory import black_box
import os, subprocess, threading, time
assert black_box.install()
parent = os.getpid()
def wait_in_a_worker():
    while os.getppid() == parent and not os.path.exists(sys.argv[1] + "/go"):
        time.sleep(0.05)
if os.fork() == 0:
    wait_in_a_worker()
    os._exit(0)
other = subprocess.Popen(["sleep", "60"])
def wait_in_a_thread():
    time.sleep(60)
for _ in range(2):
    threading.Thread(target=wait_in_a_thread, daemon=True).start()
def train_for_ever():
    open(sys.argv[1] + "/up", "w").write(str(os.getpid()))
    until = time.monotonic() + 60
    while not os.path.exists(sys.argv[1] + "/go") and time.monotonic() < until:
        time.sleep(0.05)
train_for_ever()
other.kill()
"""


def stacks(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memory", "stacks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def processes(folder: Path) -> list[dict[str, object]]:
    done = stacks(folder, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["processes"]
    assert isinstance(found, list)
    return found


@pytest.mark.slow
def test_stacks_of_all_ranks(tmp_path: Path) -> None:
    """A rank that hangs is seen only next to the others, and after they have ended."""
    own = {rank: tmp_path / f"rank{rank}" if rank else tmp_path for rank in (0, 1, 2)}
    running = {}
    for rank in (0, 1):
        own[rank].mkdir(exist_ok=True)
        running[rank] = start_supervised(own[rank], [sys.executable, "-c", ANSWERS, str(own[rank])])
    own[2].mkdir()  # of an attempt on more ranks
    write_ring(own[2], [sample_of(0, 10)], host=os.uname().nodename, pid=2**22 + 1, started_at=1)
    pids = {rank: pid_in(own[rank] / "up") for rank in running}
    wait_for(lambda: all(read_ring(own[rank] / "memory.ring") for rank in running))
    mains = {one["rank"]: one for one in reversed(processes(tmp_path))}
    assert {rank: one["pid"] for rank, one in mains.items()} == pids
    assert all("train_for_ever" in one["stacks"] for one in mains.values())
    (own[0] / "go").touch()
    running[0].wait(60)  # it has ended, and the other hangs
    plain = stacks(tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert f" {pids[1]} " in plain.stdout
    assert f" {pids[0]} " not in plain.stdout
    (own[1] / "go").touch()
    running[1].wait(60)
    assert stacks(tmp_path).returncode == 2


@pytest.mark.slow
def test_stacks_of_all_processes(tmp_path: Path, golden: Golden) -> None:
    process = start_supervised(tmp_path, [sys.executable, "-c", ANSWERS, str(tmp_path)])
    main_pid = pid_in(tmp_path / "up")
    wait_for(lambda: read_ring(tmp_path / "memory.ring"))
    for _ in range(2):  # asking changes nothing
        first, *others = processes(tmp_path)
        assert first["pid"] == main_pid
        own, *threads = first["stacks"].split("\n\n")
        assert "train_for_ever" in own, "the main thread is first"
        assert ["wait_in_a_thread" in one for one in threads] == [True, True]
        by_name = {one["name"]: one for one in others}
        assert "wait_in_a_worker" in by_name[first["name"]]["stacks"]
        asleep = by_name["sleep"]
        assert (asleep["stacks"], asleep["command"]) == (None, "sleep 60")
        assert asleep["kernel"]["state"] == "S (sleeping)"
    assert not list(tmp_path.glob("memory.blackbox*"))
    plain = stacks(tmp_path)
    assert "wait_in_a_worker" in plain.stdout
    assert asleep["why"] in plain.stdout
    os.kill(main_pid, signal.SIGSTOP)
    try:
        stopped = processes(tmp_path)[0]
    finally:
        os.kill(main_pid, signal.SIGCONT)
    assert stopped["stacks"] is None
    golden.text("\n".join([asleep["why"], stopped["why"]]))
    assert stopped["kernel"]["state"].startswith("T (stopped")
    (tmp_path / "go").touch()
    assert process.wait(timeout=240) == 0
    gone = stacks(tmp_path)
    assert gone.returncode == 2
    assert f" {main_pid} " in gone.stderr
    assert f" explain {tmp_path}" in gone.stderr


def test_a_run_that_does_not_run_here_is_refused(tmp_path: Path, golden: Golden) -> None:
    golden.text(stacks(tmp_path).stderr, "not begun")
    facts = {"pid": os.getpid(), "host": "elsewhere", "attempt": 1, "started_at": started_at(os.getpid())}
    RingWriter(tmp_path / "memory.ring", facts).close()
    golden.text(stacks(tmp_path).stderr, "elsewhere", pids=[os.getpid()])
    assert stacks("no-such-run").returncode == 2
