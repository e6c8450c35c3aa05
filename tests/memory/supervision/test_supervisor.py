"""A supervised command and its starter behave as without the supervisor."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from supervised import is_alive, outcome_in, pid_in, python, start_supervised, supervise, wait_for

from memory.record.ring import read_ring
from memory.record.samples import Sample
from memory.supervision.options import Options, command_line, parse
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


def some_slow(*values: object) -> list[Any]:
    """Values that are not in the quick tests."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


COUNTS = """
import os, signal, sys, time
seen = []
def note(number, frame):
    seen.append(signal.Signals(number).name)
    open(sys.argv[1] + ".seen", "a").write(seen[-1] + " ")
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGALRM"):
    signal.signal(getattr(signal, name), note)
open(sys.argv[1] + ".tmp", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
until = time.monotonic() + 120
while not os.path.exists(sys.argv[2]) and time.monotonic() < until:
    time.sleep(0.02)
print(*seen, flush=True)
"""
"""Writes its pid to the first path and signals to PATH.seen, and prints those when the second path exists."""
LEAVES_AN_ORPHAN = """
import os, sys, time
folder = sys.argv[1] + "/"
def wait_for(name):
    until = time.monotonic() + 120
    while not os.path.exists(folder + name) and time.monotonic() < until:
        time.sleep(0.02)
if os.fork() == 0:
    if os.fork() == 0:
        held = bytearray(b"x") * (20 << 20)
        open(folder + "orphan", "w").write(str(os.getpid()))
        wait_for("go")
    os._exit(0)
os.wait()
wait_for("end")
"""


@pytest.mark.parametrize("code", [0, 3, *some_slow(1, 2, 130, 255)])
def test_exit_code_is_that_of_the_command(tmp_path: Path, code: int) -> None:
    done = supervise(tmp_path, ["sh", "-c", f"echo out; echo err >&2; exit {code}"])
    assert (done.returncode, done.stdout, done.stderr) == (code, "out\n", "err\n")
    outcome = outcome_in(tmp_path)
    assert (outcome["exit_code"], outcome["signal"], outcome["by"]) == (code, None, "exit")
    assert outcome["started_s"] <= outcome["last_sample_s"] <= outcome["ended_s"] <= time.time() + 1


@pytest.mark.parametrize("name", ["SIGKILL", "SIGINT", *some_slow("SIGTERM", "SIGSEGV", "SIGBUS", "SIGUSR1")])
def test_signal_that_ends_the_command_ends_the_supervisor(tmp_path: Path, name: str) -> None:
    done = supervise(tmp_path, ["sh", "-c", f"ulimit -c 0; kill -{name[3:]} $$"])
    assert done.returncode == -getattr(signal, name)
    outcome = outcome_in(tmp_path)
    assert (outcome["exit_code"], outcome["signal"], outcome["by"]) == (None, name, "signal")
    assert outcome["victim"] is None, "no count of the kernel's rose"


@pytest.mark.parametrize("name", ["SIGINT", "SIGUSR2", *some_slow("SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT")])
def test_signals_are_passed_on(tmp_path: Path, name: str) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    process = start_supervised(tmp_path, [*python(COUNTS), str(ready), str(go)])
    child = pid_in(ready)
    assert child != process.pid
    process.send_signal(getattr(signal, name))
    _wait_until_seen(ready)
    time.sleep(0.05)  # a second one would come by then
    go.touch()
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out.split(), err) == (0, [name], "")
    (told,) = outcome_in(tmp_path)["signals_passed_on"]
    assert (told["signal"], told["from_pid"]) == (name, os.getpid())
    assert told["from_name"] == Path("/proc/self/comm").read_text().strip()


def test_signal_to_the_whole_group_is_recorded(tmp_path: Path) -> None:
    """timeout(1) sends it so: the command can have ended before the supervisor looks."""
    prefix = ("timeout", "--signal=TERM", "0.8")
    process = start_supervised(tmp_path, ["sleep", "240"], prefix=prefix, session=True)
    process.communicate(timeout=240)
    told = outcome_in(tmp_path)
    assert told["signal"] == "SIGTERM"
    sent = [(entry["signal"], entry["from_name"]) for entry in told["signals_passed_on"]]
    assert ("SIGTERM", "timeout") in sent


def _wait_until_seen(ready: Path) -> None:
    """Until a signal has come to `COUNTS`."""
    wait_for(lambda: ready.with_name(f"{ready.name}.seen").exists(), "no signal came")


def test_blocked_signal_stays_pending_for_the_command(tmp_path: Path) -> None:
    """slurm/launch/processes.py starts runs so: a signal that comes while the run imports must not end it."""
    code = (
        f"import signal, sys, time\nopen({str(tmp_path / 'up')!r}, 'w').write('1')\ntime.sleep(0.3)\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\ntime.sleep(30)\n"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        process = start_supervised(tmp_path, python(code))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    process.send_signal(signal.SIGTERM)  # maybe before the supervisor's own first line
    assert process.wait(timeout=240) == 9


@pytest.mark.slow
def test_signal_during_the_start_leaves_no_process(tmp_path: Path) -> None:
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        process = start_supervised(folder, ["sh", "-c", f"echo $$ > {folder}/pid; exec sleep 30"])
        time.sleep(0.004 * number)
        process.terminate()
        assert process.wait(timeout=240) == -signal.SIGTERM
        process.communicate()
        if (folder / "pid").exists() and (folder / "pid").read_text().strip():
            assert not is_alive(int((folder / "pid").read_text()))


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    done = supervise(
        tmp_path,
        ["sh", "-c", "grep SigIgn /proc/$$/status"],
        prefix=("sh", "-c", 'trap "" HUP QUIT; exec "$@"', "sh"),
    )
    ignored = int(done.stdout.split()[1], 16)
    assert ignored >> (signal.SIGHUP - 1) & 1
    assert ignored >> (signal.SIGQUIT - 1) & 1
    assert not ignored >> (signal.SIGPIPE - 1) & 1, "Python ignores it, the command must not"


def test_ctrl_c_comes_once(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    pid, terminal = pty.fork()
    if pid == 0:
        line = command_line([*python(COUNTS), str(ready), str(go)], tmp_path)
        os.execv(line[0], line)
    try:
        pid_in(ready)
        os.write(terminal, b"\x03")
        _wait_until_seen(ready)
        time.sleep(0.3)  # a second one would come by then
        go.touch()
        told = b""
        while b"SIGINT" not in told:
            told += os.read(terminal, 1000)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert told.count(b"SIGINT") == 1
    (passed,) = outcome_in(tmp_path)["signals_passed_on"]
    assert passed["signal"] == "SIGINT"
    assert (passed["from_pid"], passed["from_name"]) == (None, None)


def test_stop_and_continue(tmp_path: Path) -> None:
    """kill -TSTP stops both, kill -CONT continues both, as Ctrl-Z and fg do."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    # In a group whose parent is in another one of this session: an orphaned group is not stopped.
    process = start_supervised(tmp_path, [*python(COUNTS), str(ready), str(go)], group=True)
    child = pid_in(ready)
    process.send_signal(signal.SIGTSTP)
    for pid in (child, process.pid):
        wait_for(lambda pid=pid: _state(pid) == "T", "it did not stop")
    process.send_signal(signal.SIGCONT)
    for pid in (child, process.pid):
        wait_for(lambda pid=pid: _state(pid) in "SR", "it did not continue")
    go.touch()
    assert process.wait(timeout=240) == 0


def test_signal_after_the_end_is_not_recorded(tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    process = start_supervised(tmp_path, [*python(COUNTS), str(ready), str(go)])
    child = pid_in(ready)
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: _state(process.pid) == "T", "it did not stop")
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: _state(child) == "Z", "it did not end")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=240) == -signal.SIGKILL
    told = outcome_in(tmp_path)
    assert (told["signal"], told["signals_passed_on"]) == ("SIGKILL", [])


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_orphans_are_adopted_and_reaped(tmp_path: Path) -> None:
    process = start_supervised(tmp_path, [*python(LEAVES_AN_ORPHAN), str(tmp_path)])
    orphan = pid_in(tmp_path / "orphan")
    wait_for(lambda: _parent(orphan) == process.pid, "it was adopted by another")
    ring = wait_for(lambda: _with(tmp_path, orphan), "it is in no sample")
    assert ring.samples[-1].tree[0].pid == ring.facts["pid"], "the main one is first, though it is smaller"
    (tmp_path / "go").touch()
    wait_for(lambda: not Path(f"/proc/{orphan}").exists(), "it stays a zombie")
    assert process.poll() is None
    wait_for(lambda: read_ring(tmp_path / "memory.ring").samples[-1].processes == 1)
    (tmp_path / "end").touch()
    assert process.wait(timeout=240) == 0
    lost = {one["pid"]: one for one in outcome_in(tmp_path)["children_lost"]}
    assert lost[orphan]["last_anon_bytes"] > 20 << 20


def _with(folder: Path, pid: int):  # type: ignore[no-untyped-def]
    ring = read_ring(folder / "memory.ring")
    tree = ring.samples[-1].tree if ring and ring.samples else ()
    return ring if any(one.pid == pid and (one.anon_bytes or 0) > 20 << 20 for one in tree) else None


def _large(folder: Path, least_bytes: int) -> Sample | None:
    """The last sample, once its main process holds so much."""
    ring = read_ring(folder / "memory.ring")
    last = ring.samples[-1] if ring and ring.samples else None
    return last if last and last.tree and (last.tree[0].anon_bytes or 0) >= least_bytes else None


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("ends", [True, False])
def test_supervisor_is_killed(tmp_path: Path, ends: bool) -> None:
    """A run that belongs to it gets SIGTERM; a foreign command continues."""
    (tmp_path / "outcome.json").write_text('{"exit_code": 0, "attempt": 1}')  # of an earlier attempt
    ready, go = tmp_path / "ready", tmp_path / "go"
    process = start_supervised(
        tmp_path, [*python(COUNTS), str(ready), str(go)], parent=os.getpid() if ends else None
    )
    child = pid_in(ready)
    wait_for(lambda: (tmp_path / "memory.ring").exists() and read_ring(tmp_path / "memory.ring").taken > 2)
    process.kill()
    process.wait()
    time.sleep(0.1)
    assert is_alive(child)
    go.touch()
    out, _ = process.communicate(timeout=240)
    assert out.split() == (["SIGTERM"] if ends else [])
    assert not (tmp_path / "outcome.json").exists()
    ring = read_ring(tmp_path / "memory.ring")
    assert ring is not None
    assert ring.facts["pid"] == child
    assert ring.facts["limit_at"] == "host" or ring.facts["limit_at"].startswith("/")
    assert ring.facts["counters_before"].keys() >= {"oom_kill"} or ring.facts["cgroup_version"] is None
    assert ring.samples[-1].tree[0].pid == child


def test_own_peak_without_a_neighbours_memory(tmp_path: Path) -> None:
    hold = "import time; held = bytearray(b'1') * ({mb} << 20); print(flush=True); time.sleep({s})"
    neighbour = subprocess.Popen(python(hold.format(mb=300, s=60)), stdout=subprocess.PIPE)
    try:
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline()
        supervise(tmp_path, python(hold.format(mb=100, s=1.5)))
    finally:
        neighbour.kill()
        neighbour.communicate()
    assert 100 << 20 <= outcome_in(tmp_path)["peak_own_bytes"] < 140 << 20


def test_last_sample_after_everything_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\nheld = []\n"
        "while True:\n    held.append(bytearray(b'x') * (1 << 20)); time.sleep(0.01)\n"
        "    open('grown.tmp', 'w').write(str(len(held))); import os; os.rename('grown.tmp', 'grown')"
    )
    process = start_supervised(
        tmp_path, ["sh", "-c", f'cd {tmp_path} && exec {sys.executable} -S -c "$0"', code], session=True
    )
    grown = tmp_path / "grown"
    seen = wait_for(lambda: _large(tmp_path, 60 << 20), "no sample saw it")
    os.killpg(process.pid, signal.SIGKILL)
    killed_s = time.time()
    assert process.wait(timeout=240) == -signal.SIGKILL
    process.communicate()
    held_bytes = int(grown.read_text()) + 1 << 20
    ring = read_ring(tmp_path / "memory.ring")
    assert ring is not None
    last = ring.samples[-1]
    assert ring.damaged == 0
    assert seen.time_s <= last.time_s <= killed_s
    assert seen.tree[0].anon_bytes <= last.tree[0].anon_bytes <= held_bytes + (16 << 20)
    assert not (tmp_path / "outcome.json").exists()


def test_parent_of_the_supervisor_is_killed(tmp_path: Path) -> None:
    """The command gets SIGTERM, and its end is recorded."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    code = (
        "import os, subprocess, sys, time\nfrom memory.supervision.options import command_line\n"
        "line = command_line(sys.argv[2:], sys.argv[1], parent=os.getpid())\n"
        "subprocess.Popen(line)\ntime.sleep(60)"
    )
    root = Path(__file__).parents[3]
    entry = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), *python(COUNTS), str(ready), str(go)],
        cwd=root, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    pid_in(ready)
    entry.kill()
    entry.wait()
    _wait_until_seen(ready)
    time.sleep(0.2)  # a second one would come by then
    go.touch()
    outcome = wait_for(lambda: (tmp_path / "outcome.json").exists() and outcome_in(tmp_path))
    assert entry.stdout is not None
    assert entry.stdout.read().split() == ["SIGTERM"]
    assert outcome["exit_code"] == 0
    assert [told["signal"] for told in outcome["signals_passed_on"]] == ["SIGTERM"]


def test_command_that_does_not_exist(tmp_path: Path, golden: Golden) -> None:
    done = supervise(tmp_path, ["no-such-command-anywhere"])
    assert done.returncode == 127
    golden.text(done.stderr, "missing")
    assert outcome_in(tmp_path)["exit_code"] == 127
    (tmp_path / "text").write_text("not a program")
    done = supervise(tmp_path, [str(tmp_path / "text")])
    assert done.returncode == 126
    golden.text(done.stderr, "not executable")


def test_bad_options() -> None:
    for words in (
        "--output x", "--output x --", "-- true", "--outptu x -- true", "--output -- true",
        "--output x --attempt one -- true", "--output x --tell loudly -- true",
    ):  # fmt: skip
        with pytest.raises(ValueError, match="expected"):
            parse(words.split())


def test_options_are_read_as_written() -> None:
    line = command_line(["a", "--", "--output", "b"], "there", attempt=3, parent=7, tell="failed", log=True)
    command = ("a", "--", "--output", "b")
    assert parse(line[line.index("--output") :]) == Options(command, "there", 3, 7, "failed", log=True)


def test_small_and_standard_library_alone(tmp_path: Path) -> None:
    supervise(tmp_path, ["true"])  # compiles
    process = start_supervised(tmp_path, ["sleep", "30"])
    wait_for(lambda: (tmp_path / "memory.ring").exists() and read_ring(tmp_path / "memory.ring").taken > 3)
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak_bytes = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    maps = Path(f"/proc/{process.pid}/maps").read_text()
    process.terminate()
    process.communicate()
    assert peak_bytes <= 16 << 20
    assert "site-packages" not in maps
    assert outcome_in(tmp_path)["sampler"]["rss_bytes"] <= 16 << 20


def test_two_supervisors_in_one_folder(tmp_path: Path) -> None:
    first = start_supervised(tmp_path, ["sleep", "30"])
    wait_for(lambda: (tmp_path / "memory.ring").exists())
    second = supervise(tmp_path, ["sh", "-c", "exit 5"])
    assert second.returncode == 5
    assert str(tmp_path) in second.stderr
    assert not (tmp_path / "outcome.json").exists()
    first.terminate()
    first.communicate()
    assert outcome_in(tmp_path)["supervisor_pid"] == first.pid


def test_log_has_what_the_terminal_had(tmp_path: Path) -> None:
    code = f"echo one; echo two >&2; echo three; until [ -e {tmp_path}/go ]; do sleep 0.2; done; exit 4"
    process = start_supervised(tmp_path, ["sh", "-c", code], log=True)
    wait_for(lambda: _names(tmp_path) >= {"sh", "sleep"}, "a sample saw not all of it")
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=240)
    assert (process.returncode, out, err) == (4, "one\nthree\n", "two\n")
    assert sorted((tmp_path / "log.txt").read_text().split()) == ["one", "three", "two"]
    assert _names(tmp_path) == {"sh", "sleep"}, "tee is no part of the run"


def _names(folder: Path) -> set[str]:
    """Of all processes in any sample."""
    ring = read_ring(folder / "memory.ring")
    return {one.name for sample in ring.samples for one in sample.tree} if ring else set()
