"""Files are whole or absent; locks have one holder, also when holders die."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from experiment_utils import atomic_files, lock_file
from experiment_utils.errors import UserError

ROOT = Path(atomic_files.__file__).parent.parent


def run_python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        **options,  # type: ignore[call-overload]
    )


def test_atomic_file_replaces_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    atomic_files.write_json(path, {"step": 1})
    atomic_files.write_json(path, {"step": 2})
    assert json.loads(path.read_text()) == {"step": 2}
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_device_has_the_content_before_the_name_and_then_the_name(
    tmp_path: Path, synced: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    had: list[int] = []
    monkeypatch.setattr(atomic_files, "on_point", lambda name: had.append(len(synced)))
    atomic_files.write_text(tmp_path / "a.txt", "new")
    assert synced[0] == ((tmp_path / "a.txt").stat().st_ino, 3)
    assert synced[1][0] == tmp_path.stat().st_ino
    assert had == [1, 2], "before and after the rename"


def test_an_exception_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    atomic_files.write_text(path, "old")
    with pytest.raises(ZeroDivisionError), atomic_files.atomic_file(path, "w") as file:
        file.write("new")
        1 / 0  # noqa: B018
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("point", ["a.txt:before_rename", "a.txt:after_rename"])
def test_a_kill_at_any_point_leaves_one_whole_version(tmp_path: Path, point: str) -> None:
    path = tmp_path / "a.txt"
    atomic_files.write_text(path, "old" * 1000)
    done = run_python(
        """
        import os, signal, sys
        from experiment_utils import atomic_files, lock_file
        path, point = sys.argv[1:]
        atomic_files.on_point = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == point else None
        atomic_files.write_text(path, "new" * 1000)
        """,
        path,
        point,
    )
    assert done.returncode == -signal.SIGKILL
    expected = "old" if point.endswith("before_rename") else "new"
    assert path.read_text() == expected * 1000


@pytest.mark.privileged
def test_full_disk_raises_and_keeps_the_old_file(small_disk: Path) -> None:
    path = small_disk / "a.bin"
    atomic_files.write_text(path, "old")
    with pytest.raises(OSError) as raised, atomic_files.atomic_file(path) as file:  # noqa: PT011
        file.write(b"x" * (64 << 20))
    assert raised.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert os.listdir(small_disk) == ["a.bin"]


def test_lock_tells_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with lock_file.lock(path, "the run folder"):
        with pytest.raises(lock_file.LockHeld) as raised, lock_file.lock(path, "the run folder"):
            pass
        message = str(raised.value)
        assert f"process {os.getpid()} on " in message
        assert "since " in message
        assert str(path) in message
    assert os.listdir(tmp_path) == []


def test_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    done = run_python(
        """
        import os, signal, sys
        from experiment_utils import atomic_files, lock_file
        with lock_file.lock(sys.argv[1], "it"):
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        path,
    )
    assert done.returncode == -signal.SIGKILL
    assert path.exists()
    with lock_file.lock(path, "it"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert os.listdir(tmp_path) == []


def test_what_a_process_killed_while_it_locked_has_left_goes_away(tmp_path: Path) -> None:
    done = run_python(
        """
        import os, signal, sys
        from experiment_utils import atomic_files, lock_file
        os.link = lambda *a: os.kill(os.getpid(), signal.SIGKILL)
        with lock_file.lock(sys.argv[1], "it"):
            pass
        """,
        tmp_path / "run.lock",
    )
    assert done.returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 1
    with lock_file.lock(tmp_path / "run.lock", "it"):
        assert os.listdir(tmp_path) == ["run.lock"]


def test_a_reused_process_id_does_not_keep_a_lock_alive(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with lock_file.lock(path, "it"):
        holder = json.loads(path.read_text())
    path.write_text(json.dumps(holder | {"started_at": holder["started_at"] - 1}))
    with lock_file.lock(path, "it"):
        pass


def test_a_lock_from_another_host_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with lock_file.lock(path, "it"):
        holder = json.loads(path.read_text())
    path.write_text(json.dumps(holder | {"host": "elsewhere", "pid": 2**22 + 1}))
    with pytest.raises(lock_file.LockHeld, match="elsewhere"), lock_file.lock(path, "it"):
        pass
    assert path.exists()


def test_waiting_for_a_lock_gets_it_when_the_holder_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys\nfrom experiment_utils import lock_file\n"
         "with lock_file.lock(sys.argv[1], 'it'):\n"
         "    print('held', flush=True)\n"
         "    sys.stdin.read()", str(path)],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waits, sleep = [], time.sleep

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            holder.stdin.close()
        sleep(seconds)

    monkeypatch.setattr(lock_file.time, "sleep", wait)
    with lock_file.lock(path, "it", wait_s=60):
        assert len(waits) >= 3
    assert holder.wait() == 0
    holder.stdout.close()


def test_many_processes_taking_over_a_dead_lock_never_hold_it_together(tmp_path: Path) -> None:
    path, journal = tmp_path / "run.lock", tmp_path / "journal"
    with lock_file.lock(path, "it"):
        holder = json.loads(path.read_text())
    path.write_text(json.dumps(holder | {"started_at": 1}))
    code = """
        import os, sys, time
        from experiment_utils import atomic_files, lock_file
        for _ in range(10):
            with lock_file.lock(sys.argv[1], "it", wait_s=50):
                for word in ("in", "out"):
                    descriptor = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                    os.write(descriptor, f"{word} {os.getpid()}\\n".encode())
                    os.close(descriptor)
                    time.sleep(0.001)
    """
    processes = [
        subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(path), str(journal)], cwd=ROOT)
        for _ in range(4)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    lines = journal.read_text().split("\n")[:-1]
    assert len(lines) == 80
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert entered.replace("in", "out") == left


@pytest.mark.parametrize("content", [b"", b"\x80\xffgarbage", b"[]", b'{"host": "here"}'])
def test_a_damaged_lock_says_which_file_to_remove(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.lock"
    path.write_bytes(content)
    with pytest.raises(UserError) as raised, lock_file.lock(path, "the run folder a"):
        pass
    assert str(path) in str(raised.value)
    assert f"rm {path}" in str(raised.value)
    assert path.read_bytes() == content


def test_a_lock_of_a_later_version_may_say_more(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    with lock_file.lock(path, "it"):
        holder = json.loads(path.read_text())
        path.write_text(json.dumps(holder | {"purpose": "training"}))
        with pytest.raises(lock_file.LockHeld) as raised, lock_file.lock(path, "it"):
            pass
    held = raised.value
    assert (held.path, held.what, held.holder.pid) == (path, "it", os.getpid())
