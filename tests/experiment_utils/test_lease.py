"""Leases: one holder, taken over from the dead alone, and a holder that lost its lease writes nothing."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from experiment_utils import atomic_files, lease, lock_file
from experiment_utils.exit_status import LEASE_LOST
from experiment_utils.lease import Periodic, Watch, hold, remove_lapsed, take
from experiment_utils.lock_file import LockHeld

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of 0.6 s."""
    monkeypatch.setattr(lease, "LAPSE_S", 0.6)
    monkeypatch.delenv(lease.TOKEN, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.lock"


def write(path: Path, **changes: object) -> None:
    """The lease of a process on another host."""
    holder = {"host": "elsewhere", "pid": 1, "started_at": 1, "since": "today", "job_id": None, "token": "a"}
    path.write_text(json.dumps(holder | changes))


def python(code: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "HIGHWATER_LEASE_S": "0.6", **variables},
    )  # fmt: skip


def is_free(path: Path) -> bool:
    """Whether it can be taken, by a look that goes on until that is known."""
    try:
        with hold(path, "it"):
            assert json.loads(path.read_text())["host"] == socket.gethostname()
    except LockHeld:
        return False
    assert os.listdir(path.parent) == []
    return True


def test_one_holder(path: Path) -> None:
    assert is_free(path)
    with hold(path, "it"):
        assert not is_free(path)
        time.sleep(0.8)
        assert not is_free(path), "it is touched"
    assert is_free(path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"token": None, "job_id": "7"}, True),  # of an earlier version, in a job
        ({"token": None}, False),  # of an earlier version, in a shell: no process touches it
        ({"host": socket.gethostname(), "pid": 2**22 + 1}, True),
        ({"host": socket.gethostname(), "pid": os.getpid(), "started_at": 0}, True),
    ],
)
def test_a_lease_that_nobody_touches(path: Path, changes: dict[str, object], expected: bool) -> None:
    write(path, **changes)
    assert is_free(path) == expected


def test_a_lease_that_is_touched_is_held_whatever_its_clock_says(path: Path) -> None:
    write(path)
    touch = threading.Timer(0.1, lambda: os.utime(path, (1, 1)))
    touch.start()
    assert not is_free(path)
    touch.join()
    assert is_free(path), "it was not touched since"


def test_a_process_of_this_host_that_lives_is_never_taken_for_dead(path: Path) -> None:
    """It can be stopped, by Ctrl-Z."""
    with take(path, "it", Watch()):
        time.sleep(0.7)
        assert not is_free(path)


def test_a_look_takes_no_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path)
    watch = Watch()
    monkeypatch.setattr(lease.time, "sleep", None)
    for now_s, is_lapsed in ((100.0, False), (100.5, False), (100.7, True)):
        monkeypatch.setattr(lease.time, "monotonic", lambda: now_s)  # noqa: B023
        assert (watch.holder(path, "it") is None) == is_lapsed


def test_leases_of_the_dead_are_removed_together(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(40)]
    for one in paths[1:]:
        write(one)
    write(paths[0], host=socket.gethostname(), pid=os.getppid(), started_at=_began(os.getppid()))
    before_s = time.monotonic()
    remove_lapsed(paths)
    assert os.listdir(tmp_path) == ["0"]
    assert time.monotonic() - before_s < 39 * 0.6


def _began(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_of_many_takers_one_has_it(path: Path, tmp_path: Path) -> None:
    """All of them see it lapse together; one that has lost it again has ended as such."""
    write(path)
    code = """
        import sys, time
        from pathlib import Path
        from experiment_utils.lease import hold
        from experiment_utils.lock_file import LockHeld
        try:
            with hold(Path(sys.argv[1]), "it"):
                time.sleep(2)
                print("held")
        except LockHeld:
            print("left")
    """
    takers = [python(code, path) for _ in range(6)]
    said = sorted(taker.communicate()[0] for taker in takers)
    assert said == ["held\n"] + ["left\n"] * 5
    assert [taker.returncode for taker in takers] == [0] * 6
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_lease_that_another_taker_has_by_now_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """is_late: the other one took it after the last look, on a file system whose locks stay on a host."""
    write(path)
    found = lock_file.version(path)
    path.unlink()
    write(path, token="b")
    versions = [found] if is_late else []
    real = lock_file.version
    monkeypatch.setattr(lock_file, "version", lambda path: versions.pop() if versions else real(path))
    if not is_late:
        monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("renamed"))
    lock_file.remove(path, found)
    assert json.loads(path.read_text())["token"] == "b"
    assert os.listdir(path.parent) == [path.name]


WRITES = """
    import os, sys, time
    from pathlib import Path
    from experiment_utils import atomic_files, lease, lock_file
    from experiment_utils.lease import hold
    folder = Path(sys.argv[1])
    with hold(folder / "run.lock", "it") as held:
        {before}
        print("ready", flush=True)
        sys.stdin.readline()
        while True:
            atomic_files.write_text(folder / "status.json", "first")
"""


@pytest.mark.parametrize("end", ["taken over", "removed"])
@pytest.mark.parametrize("before", ["pass", "held.beat = lambda: None"], ids=["thread", "write"])
def test_a_holder_that_lost_its_lease_writes_nothing(tmp_path: Path, before: str, end: str) -> None:
    """Neither its thread nor a write lets it pass: each of the two finds out alone."""
    holder = python(WRITES.format(before=before), tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    holder.send_signal(signal.SIGSTOP)
    path = tmp_path / "run.lock"
    write(path, **(json.loads(path.read_text()) | {"host": "elsewhere"}))
    remove_lapsed([path])
    if end == "taken over":
        write(path)
    (tmp_path / "status.json").write_text("second")
    holder.send_signal(signal.SIGCONT)
    _, said = holder.communicate()
    assert holder.returncode == LEASE_LOST, said
    assert str(path) in said
    assert (tmp_path / "status.json").read_text() == "second"
    assert path.exists() == (end == "taken over")


def test_a_check_is_free_while_the_last_touch_is_recent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with take(path, "it", Watch()) as held:
        path.unlink()
        monkeypatch.setattr(lease.os, "_exit", lambda code: pytest.fail("lost"))
        held.check()


def test_a_process_hands_its_lease_to_its_child(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it holds the lease no third process gets it between the two, nor after the child was killed."""
    monkeypatch.setenv(lease.TOKEN, "ours")
    code = """
        import os, signal, sys
        from pathlib import Path
        from experiment_utils.lease import hold
        with hold(Path(sys.argv[1]), "it"):
            print(os.getpid(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    with take(path, "it", Watch()) as held:
        child = python(code, path)
        said = child.communicate()[0]
        assert json.loads(path.read_text())["pid"] == int(said)
        assert held.touch()
    assert not path.exists()


def test_periodic_calls_end_with_the_block() -> None:
    calls: list[int] = []
    with Periodic(0.01, lambda: calls.append(1)):
        while len(calls) < 2:
            time.sleep(0.005)
    count = len(calls)
    time.sleep(0.05)
    assert len(calls) == count
    assert atomic_files.guards == []
