"""A process answers by its stacks when it is asked, and by nothing when it is not there to."""

from __future__ import annotations

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
from memory.record.stack_requests import LARGEST_SIGNAL, STACKS_SIGNAL, Asking, has_handler, hidden_path

pytestmark = pytest.mark.skipif(STACKS_SIGNAL is None, reason="no real-time signals here")
ROOT = Path(__file__).parents[3]


LARGEST = """
import os, signal, sys
sys.path.append(sys.argv[1])
from memory import black_box
from memory.record.stack_requests import LARGEST_SIGNAL
folder = sys.argv[2]
def told():
    print(os.path.exists(folder + "/memory.blackbox.2.json"), flush=True)
def largest():
    return [{"what": "weights", "bytes": 5}]
def fails():
    raise MemoryError
with black_box.installed(folder, attempt=2, largest=largest):
    if os.fork() == 0:
        os.kill(os.getpid(), LARGEST_SIGNAL)
        os._exit(0)
    os.wait()
    told()
    os.kill(os.getpid(), LARGEST_SIGNAL)
    told()
with black_box.installed(folder, attempt=3, largest=fails):
    os.kill(os.getpid(), LARGEST_SIGNAL)
print(os.listdir(folder))
"""


def ask(folder: Path, pids: list[int]) -> dict[int, str]:
    assert STACKS_SIGNAL is not None
    asking = Asking(hidden_path(str(folder), 1), [(pid, f"== {pid} ==") for pid in pids], STACKS_SIGNAL)
    wait_for(asking.step)
    return {answer.pid: answer.text or answer.why for answer in asking.answers}


def test_this_process_answers(tmp_path: Path) -> None:
    (tmp_path / ".memory.stacks.7.txt").touch()  # of an attempt that was killed with everything
    with black_box.installed(tmp_path, attempt=1) as box:
        assert box is not None
        assert [path.name for path in tmp_path.iterdir()] == [".memory.stacks.1.txt"]
        assert has_handler(os.getpid(), STACKS_SIGNAL)
        assert not has_handler(os.getpid(), LARGEST_SIGNAL)
        assert "test_this_process_answers" in ask(tmp_path, [os.getpid()])[os.getpid()]
    assert list(tmp_path.iterdir()) == []
    assert not has_handler(os.getpid(), STACKS_SIGNAL)
    assert STACKS_SIGNAL is not None
    os.kill(os.getpid(), STACKS_SIGNAL)  # who had asked in this moment: it must not kill


def test_several_answer_one_after_another(tmp_path: Path) -> None:
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
        bystander = subprocess.Popen(["sleep", "60"])
        try:
            answers = ask(tmp_path, [*children, bystander.pid, 2**22 + 1])
            assert bystander.poll() is None
        finally:
            bystander.kill()
            bystander.wait()
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    for pid in children:
        assert "\n\n" not in answers[pid].strip(), "one thread"
        assert "test_several_answer" in answers[pid]
    for pid in (bystander.pid, 2**22 + 1):
        assert "File " not in answers[pid]


def test_an_answer_is_whole_when_who_writes_it_is_through(tmp_path: Path) -> None:
    """A busy machine may take the core from it in the midst, for longer than an answer takes."""
    assert STACKS_SIGNAL is not None
    with black_box.installed(tmp_path, attempt=1) as box:
        assert box is not None
        ready, is_ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, [STACKS_SIGNAL])  # as while the handler runs
            os.write(is_ready, b"x")
            signal.sigwait([STACKS_SIGNAL])
            os.write(box._file, b"first")
            time.sleep(0.3)
            os.write(box._file, b"-last")
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [STACKS_SIGNAL])
            signal.pause()
        try:
            os.read(ready, 1)
            assert ask(tmp_path, [pid])[pid] == "first-last"
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(ready)
            os.close(is_ready)


BUSY = """
import os, signal, sys, threading
sys.path.append(sys.argv[1])
from memory import black_box
from memory.record.stack_requests import AT_ONCE_SIGNAL
how, is_up = sys.argv[3], os.path.join(sys.argv[2], "up")
def wait_in_a_thread():
    threading.Event().wait()
def call_python():
    open(is_up, "w").close()
    while True:
        len(str(os.getpid()))
def call_c():
    open(is_up, "w").close()
    sum(range(10**11))
with black_box.installed(sys.argv[2], attempt=1):
    if how == "python":
        signal.signal(AT_ONCE_SIGNAL, signal.SIG_IGN)
    threading.Thread(target=wait_in_a_thread, daemon=True).start()
    call_python() if how == "python" else call_c()
"""


@contextmanager
def busy(program: str, folder: Path, *more: str) -> Iterator[int]:
    """The pid of such a program, which is at its work, and lives at the end."""
    process = subprocess.Popen([sys.executable, "-S", "-c", program, str(ROOT), str(folder), *more])
    try:
        wait_for(lambda: (folder / "up").exists())
        time.sleep(0.2)
        yield process.pid
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", ["python", "c"])
def test_python_answers_between_two_instructions_else_faulthandler_from_within(
    tmp_path: Path, how: str
) -> None:
    """faulthandler reads frames in the midst of a call too, where one may not be there yet: it crashes."""
    with busy(BUSY, tmp_path, how) as pid:
        for _ in range(3):
            answer = ask(tmp_path, [pid])[pid]
            assert f"call_{how}" in answer
            assert "wait_in_a_thread" in answer
            assert "_tell_stacks" not in answer
            assert len(answer.strip().split("\n\n")) == 2, "once of each thread"
            current = answer.partition("Current thread")[2]
            assert current.splitlines()[1].endswith(f" call_{how}")


BESIDE_ANOTHER = """
import hashlib, os, sys, threading
sys.path.append(sys.argv[1])
from memory import black_box
def call_python():
    while True:
        len(str(os.getpid()))
def call_c():
    open(os.path.join(sys.argv[2], "up"), "w").close()
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 10**9)
with black_box.installed(sys.argv[2], attempt=1):
    threading.Thread(target=call_python, daemon=True).start()
    call_c()
"""


def test_faulthandler_is_not_asked_for_a_thread_that_runs(tmp_path: Path) -> None:
    """Its frames change as they are read: of 42 such questions one was deadly."""
    with busy(BESIDE_ANOTHER, tmp_path) as pid:
        answer = ask(tmp_path, [pid])[pid]
        assert "call_c" in answer
        assert "call_python" not in answer
        assert "(1)" in answer, "it was told as all that there is"


AGAIN = """
import hashlib, os, sys
sys.path.append(sys.argv[1])
from memory import black_box
for _ in range(2):
    black_box.install(sys.argv[2], attempt=1)
open(os.path.join(sys.argv[2], "up"), "w").close()
hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 10**9)
"""


def test_one_that_installs_it_again_still_answers_in_a_long_call(tmp_path: Path) -> None:
    """As a module and a function of it do, a worker after its parent: in a hang of gloo it kept silent."""
    with busy(AGAIN, tmp_path) as pid:
        assert "in <module>" in ask(tmp_path, [pid])[pid]


def test_largest_is_told_by_the_process_itself_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", LARGEST, str(ROOT), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["False", "True", "['memory.blackbox.2.json']"]


def test_where_it_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIGHWATER_OUTPUT", raising=False)
    assert black_box.install() is None
    assert black_box.install(tmp_path / "nowhere") is None
    monkeypatch.setattr(black_box, "STACKS_SIGNAL", None)
    assert black_box.install(tmp_path) is None
