"""Children are found at once where there is haste, and within a few looks in calm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from memory.process import Process
from memory.supervision import descent
from memory.supervision.descent import LOOKS_IN_CALM, Descent
from memory.supervision.sampler import look

PIDS = range(100, 120)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Processes whose list was read; 100 is the parent of all others."""
    found: list[int] = []

    def children_of(process: Process, proc: str) -> list[int]:
        found.append(process.pid)
        return list(PIDS[1:]) if process.pid == PIDS[0] else []

    monkeypatch.setattr(descent, "children_of", children_of)
    return found


def looked(by: Descent, *, is_calm: bool) -> None:
    by.begin(is_calm=is_calm)
    for pid in PIDS:
        by.children(Process(pid), "/proc")


def test_in_calm_each_is_asked_once_in_so_many_looks(asked: list[int]) -> None:
    by = Descent()
    looked(by, is_calm=True)
    assert asked == [*PIDS], "at first all"
    asked.clear()
    for _ in range(LOOKS_IN_CALM):
        looked(by, is_calm=True)
    assert sorted(asked) == sorted([PIDS[0]] * LOOKS_IN_CALM + [*PIDS[1:]])


def test_in_haste_all_are_asked(asked: list[int]) -> None:
    by = Descent()
    for is_calm in (True, True, False, False):
        asked.clear()
        looked(by, is_calm=is_calm)
    assert asked == [*PIDS]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_a_grandchild_is_seen_within_so_many_looks() -> None:
    code = "import subprocess, sys; input(); subprocess.run([sys.executable, '-c', 'input()'])"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    by = Descent()

    def seen() -> int:
        by.begin(is_calm=True)
        return len(look(child.pid, (child.pid,), 0.0, children=by.children).processes)

    try:
        assert seen() == 1
        child.stdin.write(b"\n")
        child.stdin.flush()
        while not Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text():
            pass
        assert 2 in [seen() for _ in range(LOOKS_IN_CALM)]
        assert seen() == 2, "one that has children is asked each time"
    finally:
        child.kill()
        child.communicate()
