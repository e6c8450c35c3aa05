"""Children get every signal their parent gets, and are never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from slurm.launch.processes import Children
from training.interrupt import SIGNALS

CORES = os.sched_getaffinity(0)
WAITS = """
import signal, sys, time
signal.signal(signal.{0}, lambda *_: sys.exit({1}))
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.{0}])
open({2!r}, "w").close()
time.sleep(60)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def signal_when(path: Path, number: int) -> threading.Thread:
    """Send this process the signal as soon as the file is there."""

    def send() -> None:
        deadline = time.monotonic() + 30
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_exit_codes_come_through(code: int) -> None:
    with Children() as children:
        children.start(python(f"raise SystemExit({code})"), quiet=True)
        child = children.wait()
    assert child.exit_code == code
    assert child.killed_by is None
    assert child.seconds > 0


@pytest.mark.parametrize(("number", "code"), [("SIGKILL", 1), ("SIGSEGV", 1), ("SIGINT", 130)])
def test_a_child_that_was_killed(number: str, code: int) -> None:
    with Children() as children:
        children.start(
            python(
                "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n"
                "signal.pthread_sigmask(signal.SIG_UNBLOCK, [2])\n"
                f"os.kill(os.getpid(), signal.{number})"
            ),
            quiet=True,
        )
        child = children.wait()
    assert (child.exit_code, child.killed_by) == (code, number)


def test_the_last_line_of_a_quiet_childs_stderr_is_kept() -> None:
    with Children() as children:
        children.start(python("import sys; print('out'); sys.exit('one\\nreason\\n\\n')"), quiet=True)
        assert children.wait().last_error() == "reason"
        children.start(python("pass"), quiet=True)
        assert children.wait().last_error() is None


@pytest.mark.usefixtures("hears_hangup")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 1), (signal.SIGHUP, 1)])
def test_a_signal_goes_on_to_every_child_and_the_parent_waits(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    ready = tmp_path / "ready"
    with Children(slots=2) as children:
        for path in (tmp_path / "first", ready):
            children.start(python(WAITS.format(number.name, code, str(path))), quiet=True)
        while not (tmp_path / "first").exists():
            time.sleep(0.01)
        thread = signal_when(ready, number)
        codes = [children.wait().exit_code, children.wait().exit_code]
        thread.join()
        assert not children.free
    assert codes == [code, code]
    assert children.requested == number


def test_every_signal_goes_on_not_only_the_first(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\ncount = []\n"
        "def note(*_):\n    count.append(1)\n    open(sys.argv[1] + str(len(count)), 'w').close()\n"
        "    if len(count) == 2: sys.exit(130)\n"
        "signal.signal(signal.SIGINT, note)\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, [2])\n"
        "open(sys.argv[1] + '0', 'w').close()\n"
        "time.sleep(60)\ntime.sleep(60)"
    )
    with Children() as children:
        children.start([*python(code), str(tmp_path / "n")], quiet=True)
        threads = [signal_when(tmp_path / "n0", signal.SIGINT), signal_when(tmp_path / "n1", signal.SIGINT)]
        assert children.wait().exit_code == 130
        for thread in threads:
            thread.join()


def test_a_signal_that_comes_while_a_child_imports_waits_for_its_handler(tmp_path: Path) -> None:
    slow = (
        f"import time\nopen({str(tmp_path / 'ready')!r}, 'w').close()\ntime.sleep(0.5)\n"
        "import sys\nfrom training.interrupt import Interrupt\n"
        "with Interrupt() as asked:\n    sys.exit(asked.requested)"
    )
    with Children() as children:
        children.start(python(slow), quiet=True)
        thread = signal_when(tmp_path / "ready", signal.SIGINT)
        child = children.wait()
        thread.join()
    assert child.process.returncode == signal.SIGINT  # it exited with the number that Interrupt noted
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_hangup_that_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Children() as children:
            os.kill(os.getpid(), signal.SIGHUP)
            assert children.free
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hears_hangup")
def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with Children():
        assert all(signal.getsignal(n) != old for n, old in zip(SIGNALS, before, strict=True))
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_an_exception_stops_the_children_and_waits_for_them() -> None:
    processes = []
    with pytest.raises(RuntimeError), Children() as children:
        code = "import signal, time; signal.pthread_sigmask(signal.SIG_SETMASK, []); time.sleep(60)"
        processes.append(children.start(python(code), quiet=True).process)
        raise RuntimeError
    assert processes[0].returncode == -signal.SIGTERM


def test_children_side_by_side_share_the_cores(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\ncores = os.sched_getaffinity(0)\n"
        "open(sys.argv[1], 'w').write(','.join(map(str, cores)))\ntime.sleep(0.3)"
    )
    with Children(slots=2) as children:
        children.start([*python(code), str(tmp_path / "a")], quiet=True)
        children.start([*python(code), str(tmp_path / "b")], quiet=True)
        children.wait()
        children.wait()
    assert os.sched_getaffinity(0) == CORES
    shares = [set(map(int, (tmp_path / name).read_text().split(","))) for name in "ab"]
    if len(CORES) > 1:
        assert shares[0] | shares[1] == CORES
        assert not shares[0] & shares[1]


def test_a_child_by_itself_has_all_cores_and_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with Children() as children:
        children.start(python("import os; print(len(os.sched_getaffinity(0)))"), quiet=False)
        children.wait()
    assert capfd.readouterr().out.strip() == str(len(os.sched_getaffinity(0)))


def test_importing_it_is_light() -> None:
    code = (
        "import sys, slurm; print([m for m in ('hydra', 'omegaconf', 'torch', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        python(code), capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout.strip() == "[]"


def test_a_signal_without_a_name() -> None:
    """Of SIGRTMIN+6 Python has none; a batch system may send it."""
    with Children() as children:
        children.start(python("import os; os.kill(os.getpid(), 40)"), quiet=True)
        child = children.wait()
    assert (child.exit_code, child.killed_by) == (1, "signal 40")
