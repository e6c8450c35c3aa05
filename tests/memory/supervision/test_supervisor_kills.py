"""Kills by the kernel in a real cgroup, and a black box that tells what the run was doing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from supervised import limited_cgroup, outcome_in, python, supervise

from memory.record.ring import read_ring

pytestmark = pytest.mark.privileged

MB = 1 << 20
LIMIT = 200 * MB
ROOT = Path(__file__).parents[3]
GROWS = """
import time
def load_it_all(step):
    held = []
    while True:
        held.append(bytearray(b"x") * (4 << 20))
        time.sleep(step)
"""

IS_SEEN = """
import sys
sys.path.append({root!r})
import pathlib, time
from memory.record.ring import read_head
ring, until_s, times = pathlib.Path({folder!r}, "memory.ring"), time.monotonic() + 60, set()
def look():
    head = read_head(ring)
    sample = head and head[1]
    if sample and sample.unreclaimable_bytes > 0.92 * sample.limit_bytes:
        times.add(sample.time_s)
look()
held = bytearray(b"x") * (181 << 20)
while len(times) < 3 and time.monotonic() < until_s:
    time.sleep(0.02)
    look()
print("lives")
"""
"""Near the limit until that was seen, and seen again: in between a process would be asked."""


def test_the_kernel_kills_the_main_process(tmp_path: Path) -> None:
    with limited_cgroup(LIMIT) as (enter, _, path):
        done = supervise(tmp_path, python(GROWS + "load_it_all(0.04)"), prefix=enter)
    assert done.returncode == -9
    outcome = outcome_in(tmp_path)
    assert (outcome["signal"], outcome["by"]) == ("SIGKILL", "signal")
    assert (outcome["limit_bytes"], outcome["limit_at"], outcome["scope"]) == (LIMIT, path, "job")
    assert outcome["cgroup_path"] == f"{path}/task_0"
    assert (outcome["counters_before"]["oom_kill"], outcome["counters_after"]["oom_kill"]) == (0, 1)
    assert [level["oom_kill_after"] for level in outcome["parents"]][:2] == [1, 1]
    assert outcome["parents"][1]["limit_bytes"] == LIMIT
    assert (outcome["victim"]["pid"], outcome["victim"]["is_main"]) == (outcome["pid"], True)
    assert outcome["peak_unreclaimable_bytes"] > 0.7 * LIMIT
    assert outcome["signals_passed_on"] == []
    ring = read_ring(tmp_path / "memory.ring")
    assert ring is not None
    assert ring.taken > 5, "it looks more often where memory grows fast"


def test_the_kernel_kills_a_worker_and_the_main_process_goes_on(tmp_path: Path) -> None:
    code = GROWS + (
        "import os, sys\npid = os.fork()\nif pid == 0:\n    load_it_all(0.04)\n"
        "_, status = os.waitpid(pid, 0)\ntime.sleep(1.5)\nprint(pid, os.waitstatus_to_exitcode(status))\n"
    )
    with limited_cgroup(LIMIT) as (enter, _, _):
        done = supervise(tmp_path, python(code), prefix=enter)
    pid, status = map(int, done.stdout.split())
    assert (done.returncode, status) == (0, -9)
    outcome = outcome_in(tmp_path)
    assert outcome["counters_after"]["oom_kill"] == 1
    assert (outcome["victim"]["pid"], outcome["victim"]["is_main"]) == (pid, False)
    (lost,) = outcome["children_lost"]
    assert (lost["pid"], lost["parent_pid"]) == (pid, outcome["pid"])
    assert lost["last_anon_bytes"] > 0.3 * LIMIT


def test_a_command_that_enters_the_cgroup_itself(tmp_path: Path) -> None:
    """The supervisor stands outside: what it tells is of where the command is."""
    with limited_cgroup(LIMIT) as (enter, _, path):
        done = supervise(tmp_path, [*enter, *python(GROWS + "load_it_all(0.04)")])
    assert done.returncode == -9
    outcome = outcome_in(tmp_path)
    assert (outcome["limit_at"], outcome["counters_after"]["oom_kill"]) == (path, 1)
    assert outcome["counters_before"]["oom_kill"] == 0
    assert outcome["victim"]["is_main"]


def test_the_black_box(tmp_path: Path) -> None:
    """A process that fills memory is asked what it does; it and its forked worker answer, once."""
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "from memory import black_box\nimport os, time\n"
        "def largest():\n    return [{'what': 'held', 'bytes': 7}]\n"
        "box = black_box.install(largest=largest)\nassert box\n"
        "def wait_in_a_worker():\n    while os.getppid() == parent:\n        time.sleep(0.1)\n"
        "parent = os.getpid()\nif os.fork() == 0:\n    wait_in_a_worker()\n    os._exit(0)\n"
        "def load_it_all():\n    held = []\n"
        "    while True:\n        held.append(bytearray(b'x') * (1 << 20))\n"
        "        time.sleep(0.005 if len(held) < 160 else 0.3)\n"
        "load_it_all()\n"
    )
    (tmp_path / "memory.blackbox.2.txt").write_text("== of an earlier command in this folder ==")
    with limited_cgroup(LIMIT) as (enter, _, _):
        done = supervise(tmp_path, [sys.executable, "-c", code], prefix=enter, attempt=2)
    assert done.returncode == -9, done.stderr
    told = (tmp_path / "memory.blackbox.2.txt").read_text()
    assert told.count("== ") == 2, "main and the worker, once"
    main, worker = told.split(" unreclaimable ")[1:]
    assert f"{outcome_in(tmp_path)['pid']} " in main
    assert "load_it_all" in main
    assert "wait_in_a_worker" in worker
    share = int(main.partition("(")[2].partition("%")[0])
    assert 92 <= share <= 100
    largest = json.loads((tmp_path / "memory.blackbox.2.json").read_text())
    assert largest["largest"] == [{"what": "held", "bytes": 7}]
    assert not list(tmp_path.glob(".memory.stacks*"))


def test_a_process_without_a_handler_is_never_signalled(tmp_path: Path) -> None:
    (tmp_path / ".memory.stacks.1.txt").touch()  # as of a parent that has one
    with limited_cgroup(LIMIT) as (enter, _, _):
        done = supervise(tmp_path, python(IS_SEEN.format(root=str(ROOT), folder=str(tmp_path))), prefix=enter)
    assert done.stdout == "lives\n", outcome_in(tmp_path)
    assert outcome_in(tmp_path)["peak_nearness"] > 0.92
    assert not list(tmp_path.glob("*blackbox*"))


@pytest.mark.parametrize("kind", ["ring", "outcome", "log"])
def test_a_full_disk(small_disk: Path, kind: str) -> None:
    """Full before it starts, or full when it ends: the command runs to its end."""
    folder = small_disk / "run"
    folder.mkdir()
    fill = f"head -c 64M /dev/zero > {small_disk}/filler 2>/dev/null; true"
    if kind == "ring":
        os.system(fill)
        command = ["sh", "-c", "echo ran; exit 3"]
    else:
        command = ["sh", "-c", f"{fill}; echo ran; exit 3"]
    done = supervise(folder, command, log=kind == "log")
    assert (done.returncode, done.stdout) == (3, "ran\n")
    if kind != "ring":  # room for it was taken at the start
        assert outcome_in(folder)["exit_code"] == 3
    assert not (folder / "outcome.json").exists() or outcome_in(folder)["exit_code"] == 3
    assert {path.name for path in folder.iterdir()} <= {"outcome.json", "memory.ring", "log.txt"}
