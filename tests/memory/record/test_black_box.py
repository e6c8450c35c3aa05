"""A process writes its stacks when it is asked, and a process that cannot answer is never harmed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from supervised import wait_for

from memory import black_box
from memory.record.process_stacks import ask_all
from memory.record.stack_requests import NEAR_LIMIT, STACKS_SIGNAL, StackRequests, has_handler, hidden_path

pytestmark = pytest.mark.skipif(not STACKS_SIGNAL, reason="no real-time signals here")
ROOT = Path(__file__).parents[3]

BUSY = """
import hashlib, os, signal, sys, threading, time
sys.path.append(sys.argv[1])
from memory import black_box
folder, how = sys.argv[2:]
def wait_in_a_thread():
    threading.Event().wait()
def call_python():
    while True:
        len(str(os.getpid()))
def call_c():
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 10**9)  # releases the GIL
def hold_the_gil():
    sum(range(10**11))
def count_signals():
    numbers = []
    for number in range(signal.SIGRTMIN, signal.SIGRTMAX):
        signal.signal(number, lambda number, frame: numbers.append(number))
    while not os.path.exists(folder + "/stop"):
        time.sleep(0.05)
    print(len(numbers), flush=True)
    signal.pause()
box = black_box.install(folder, attempt=1)
if how == "installed_again":
    black_box.install(folder, attempt=1)
if how == "count_signals":
    box.close()
    open(folder + "/.memory.stacks.1.txt", "w").close()
threading.Thread(target=call_python if how == "next_to_python" else wait_in_a_thread, daemon=True).start()
open(folder + "/up", "w").close()
{"python": call_python, "gil": hold_the_gil, "count_signals": count_signals}.get(how, call_c)()
"""


def ask(folder: Path, pids: list[int], words: str = " ") -> StackRequests:
    requests = StackRequests(hidden_path(str(folder), 1), [(pid, f"=={words}{pid} ==") for pid in pids])
    wait_for(requests.step)
    return requests


@contextmanager
def busy(folder: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    """A program at its work, which is still alive at the end of the block."""
    command = [sys.executable, "-S", "-c", BUSY, str(ROOT), str(folder), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: (folder / "up").exists())
            time.sleep(0.2)
            yield process
            assert process.poll() is None
        finally:
            process.kill()


def test_this_process_answers_until_it_is_closed(tmp_path: Path) -> None:
    with black_box.installed(tmp_path, attempt=1):
        assert has_handler(os.getpid(), STACKS_SIGNAL)
        answers = ask(tmp_path, [os.getpid()]).stacks
        assert "test_this_process_answers" in answers[os.getpid()]
    assert list(tmp_path.iterdir()) == []
    assert not has_handler(os.getpid(), STACKS_SIGNAL)
    os.kill(os.getpid(), STACKS_SIGNAL)  # by a process that had seen the handler: it must not kill


def test_forked_workers_answer_and_other_programs_get_no_signal(tmp_path: Path) -> None:
    children = []
    with black_box.installed(tmp_path, attempt=1):
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                parent = os.getppid()
                while os.getppid() == parent:
                    time.sleep(0.05)
                os._exit(0)
            children.append(pid)
        other = subprocess.Popen(["sleep", "60"])
        try:
            requests = ask(tmp_path, [*children, other.pid, 2**22 + 1])
            assert other.poll() is None
        finally:
            for pid in (*children, other.pid):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    assert set(requests.stacks) == set(children)
    assert all("test_forked_workers" in text for text in requests.stacks.values())
    assert set(requests.silent) == {other.pid, 2**22 + 1}


@pytest.mark.parametrize("how", ["python", "c", "next_to_python", "installed_again"])
def test_stacks_of_all_threads_in_python_and_in_c(tmp_path: Path, how: str) -> None:
    other = "call_python" if how == "next_to_python" else "wait_in_a_thread"
    with busy(tmp_path, how) as process:
        for _ in range(3):
            answer = ask(tmp_path, [process.pid]).stacks[process.pid]
            assert other in answer
            assert len(answer.strip().split("\n\n")) == 2, "each thread once"
            current = answer.partition("Current thread")[2]
            assert current.splitlines()[1].endswith(" call_python" if how == "python" else " call_c")


def test_a_process_that_does_not_answer_gets_one_signal(tmp_path: Path) -> None:
    with busy(tmp_path, "count_signals") as process:
        assert set(ask(tmp_path, [process.pid]).silent) == {process.pid}
        (tmp_path / "stop").touch()
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"


def test_py_spy_shows_a_process_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1 $2 $3" = "dump --nonblocking --pid" ] && echo "Process $4\n\nseen"\n'
    )
    program.chmod(0o755)
    with busy(tmp_path, "gil") as process:
        (silent,) = ask_all(process.pid, str(tmp_path), 1)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        (seen,) = ask_all(process.pid, str(tmp_path), 1)
        program.write_text("#!/bin/sh\necho not allowed; exit 1\n")
        (refused,) = ask_all(process.pid, str(tmp_path), 1)
    assert (seen.stacks, seen.why, seen.kernel) == ("seen", None, {})
    for one in (silent, refused):
        assert one.stacks is None
        assert one.kernel["state"].startswith("R")
        assert "py-spy" in str(one.why)


def test_the_main_process_writes_its_largest_objects_near_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "memory.blackbox.1.json"
    with black_box.installed(tmp_path, attempt=1, largest=lambda: [{"what": "weights", "bytes": 5}]):
        ask(tmp_path, [os.getpid()])
        assert not file.exists()
        ask(tmp_path, [os.getpid()], NEAR_LIMIT)
        assert json.loads(file.read_text())["largest"] == [{"what": "weights", "bytes": 5}]
    file.unlink()
    with black_box.installed(tmp_path, attempt=1, largest=lambda: 1 / 0):  # type: ignore[arg-type,return-value]
        ask(tmp_path, [os.getpid()], NEAR_LIMIT)
    assert list(tmp_path.iterdir()) == []


def test_the_descriptor_of_an_event_loop_is_left_alone(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end)
    with black_box.installed(tmp_path, attempt=1):
        assert signal.set_wakeup_fd(before) == write_end
    os.close(read_end)
    os.close(write_end)


def test_it_is_not_installed_without_a_folder_or_signals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HIGHWATER_OUTPUT", raising=False)
    assert black_box.install() is None
    assert black_box.install(tmp_path / "nowhere") is None
    monkeypatch.setattr(black_box, "STACKS_SIGNAL", 0)
    assert black_box.install(tmp_path) is None
