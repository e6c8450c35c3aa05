"""`run`, `stacks` and `watch`, as a user types them."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from made_runs import sample_of, write_outcome, write_ring
from supervised import outcome_in, pid_in, python, start_supervised, wait_for

from experiment_utils.quantities import format_bytes
from memory.__main__ import main
from memory.measure.process import started_at
from memory.record.ring import RingWriter, read_ring
from memory.record.samples import ProcessSample, Sample
from memory.show.watch_lines import line
from memory.show.watch_view import job_processes, of_run, slope
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[3]
MB = 1 << 20
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


def memory(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memory", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=240, **options,
    )  # fmt: skip


@pytest.mark.parametrize("code", [0, 3])
def test_run_is_the_command(tmp_path: Path, code: int) -> None:
    command = ["sh", "-c", f"cat; exit {code}"]
    done = memory("run", "--output", tmp_path / "new" / "mem", "--", *command, input="in")
    assert (done.returncode, done.stdout) == (code, "in")
    assert outcome_in(tmp_path / "new" / "mem")["command"] == command
    if code == 0:
        assert done.stderr == ""
    else:
        assert done.stderr.count("\n") == 1
        assert f" {code} " in done.stderr
        assert done.stderr.endswith(f" explain {tmp_path}/new/mem\n")


def test_run_tells_more_when_asked(tmp_path: Path) -> None:
    done = memory(
        "run", "--output", tmp_path, "--verbose", "--log", "--", "sh", "-c", "echo out; echo err >&2"
    )
    assert (done.returncode, done.stdout) == (0, "out\n")
    first, told = done.stderr.splitlines()
    assert first == "err"
    assert "%" in told
    assert "out" in (tmp_path / "log.txt").read_text()


def test_run_dies_as_the_command_does(tmp_path: Path) -> None:
    done = memory("run", "--output", tmp_path, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM
    assert "SIGTERM" in done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--output mem -- no-such-command", 127),
        ("--output mem -- ./text", 126),
        ("--output mem -- text", 127),
        ("--output mem -- ./", 126),
        ("--output mem --", 2),
        ("--output text/mem -- true", 2),
        ("--output text -- true", 2),
        ("-- true", 2),
    ],
    ids=[
        "no command",
        "not executable",
        "not in PATH",
        "folder",
        "empty",
        "in a file",
        "a file",
        "no output",
    ],
)
def test_run_refuses(tmp_path: Path, words: str, code: int, golden: Golden) -> None:
    (tmp_path / "text").write_text("no program")
    done = subprocess.run(
        [sys.executable, "-m", "memory", "run", *words.split()],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == code
    if words in ("-- true", "--output mem --"):
        assert "--output" in done.stderr  # by argparse; with the command as it is typed here
    else:
        golden.text(done.stderr)
    assert not (tmp_path / "mem").exists()


@pytest.mark.parametrize("command", ["compare", "explain", "report", "run", "stacks", "watch"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"\n  python -m memory {command} " in capsys.readouterr().out


@pytest.mark.slow
def test_stacks_of_all_ranks(tmp_path: Path) -> None:
    """One waits for the other: which of them hangs, only both can tell."""
    own = {rank: tmp_path / f"rank{rank}" if rank else tmp_path for rank in (0, 1, 2)}
    running = {}
    for rank in (0, 1):
        own[rank].mkdir(exist_ok=True)
        running[rank] = start_supervised(own[rank], [sys.executable, "-c", ANSWERS, str(own[rank])])
    own[2].mkdir()  # of an attempt on more ranks
    write_ring(own[2], [sample_of(0, 10)], host=os.uname().nodename, pid=2**22 + 1, started_at=1)
    pids = {rank: pid_in(own[rank] / "up") for rank in running}
    wait_for(lambda: all(read_ring(own[rank] / "memory.ring") for rank in running))
    done = memory("stacks", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["processes"]
    mains = {one["rank"]: one for one in reversed(told)}
    assert {rank: one["pid"] for rank, one in mains.items()} == pids
    assert all("train_for_ever" in one["stacks"] for one in mains.values())
    (own[0] / "go").touch()
    running[0].wait(60)  # it has ended, and the other hangs
    plain = memory("stacks", tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert f" {pids[1]} " in plain.stdout
    assert f" {pids[0]} " not in plain.stdout
    (own[1] / "go").touch()
    running[1].wait(60)
    assert memory("stacks", tmp_path).returncode == 2


@pytest.mark.slow
def test_stacks_of_all_processes(tmp_path: Path, golden: Golden) -> None:
    process = start_supervised(tmp_path, [sys.executable, "-c", ANSWERS, str(tmp_path)])
    main_pid = pid_in(tmp_path / "up")
    wait_for(lambda: read_ring(tmp_path / "memory.ring"))
    for _ in range(2):  # asking changes nothing
        done = memory("stacks", tmp_path, "--json")
        assert done.returncode == 0, done.stderr
        first, *others = json.loads(done.stdout)["processes"]
        assert first["pid"] == main_pid
        own, *threads = first["stacks"].split("\n\n")
        assert "train_for_ever" in own, "the main thread is first"
        assert ["wait_in_a_thread" in one for one in threads] == [True, True]
        by_name = {one["name"]: one for one in others}
        assert "wait_in_a_worker" in by_name[first["name"]]["stacks"]
        asleep = by_name["sleep"]
        assert (asleep["stacks"], asleep["command"]) == (None, "sleep 60")
        assert "memory.record.black_box.install" in asleep["why"]
        assert asleep["kernel"]["state"] == "S (sleeping)"
    assert not list(tmp_path.glob("memory.blackbox*"))
    plain = memory("stacks", tmp_path)
    assert "wait_in_a_worker" in plain.stdout
    assert asleep["why"] in plain.stdout
    os.kill(main_pid, signal.SIGSTOP)
    try:
        stopped = json.loads(memory("stacks", tmp_path, "--json").stdout)["processes"][0]
    finally:
        os.kill(main_pid, signal.SIGCONT)
    assert stopped["stacks"] is None
    golden.text("\n".join([asleep["why"], stopped["why"]]))
    assert stopped["kernel"]["state"].startswith("T (stopped")
    (tmp_path / "go").touch()
    assert process.wait(timeout=240) == 0
    gone = memory("stacks", tmp_path)
    assert gone.returncode == 2
    assert f" {main_pid} " in gone.stderr
    assert f" explain {tmp_path}" in gone.stderr


def test_stacks_of_a_run_that_nobody_knows(tmp_path: Path, golden: Golden) -> None:
    golden.text(memory("stacks", tmp_path).stderr, "not begun")
    facts = {"pid": os.getpid(), "host": "elsewhere", "attempt": 1, "started_at": started_at(os.getpid())}
    RingWriter(tmp_path / "memory.ring", facts).close()
    golden.text(memory("stacks", tmp_path).stderr, "elsewhere", pids=[os.getpid()])
    assert memory("stacks", "no-such-run").returncode == 2


@pytest.mark.slow
def test_watch_a_run_to_its_end(tmp_path: Path, golden: Golden) -> None:
    code = (
        "import os, sys, time\nheld, until = bytearray(b'x') * (50 << 20), time.monotonic() + 120\n"
        "while not os.path.exists(sys.argv[1]) and time.monotonic() < until: time.sleep(0.05)"
    )
    process = start_supervised(tmp_path, [*python(code), str(tmp_path / "go")])
    wait_for(lambda: read_ring(tmp_path / "memory.ring") and read_ring(tmp_path / "memory.ring").taken > 2)
    once = json.loads(memory("watch", tmp_path, "--once", "--json").stdout)
    assert once["ended"] is None
    assert once["tree"][0]["name"].startswith("python")
    watching = subprocess.Popen(
        [sys.executable, "-m", "memory", "watch", str(tmp_path), "--interval", "0.2"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert watching.stdout is not None
    told = watching.stdout.readline()
    (tmp_path / "go").touch()
    process.communicate(timeout=240)
    told += watching.communicate(timeout=240)[0]
    *lines, ended, after = told.splitlines()
    assert "%)" in lines[0]
    golden.text(f"{ended}\n{after}")
    assert "\x1b" not in told


def test_watch_tells_the_stage_and_that_everything_was_killed(tmp_path: Path, golden: Golden) -> None:
    me = os.getpid()
    facts = {
        "pid": me,
        "host": os.uname().nodename,
        "supervisor_pid": me,
        "supervisor_started_at": started_at(me),
    }
    with RingWriter(tmp_path / "memory.ring", facts | {"host_total_bytes": 999 * MB}) as ring:
        ring.add(Sample(time.time(), unreclaimable_bytes=50 * MB, limit_bytes=100 * MB, processes=1))
    records = [("begin", "train", 7, 0), ("begin", "evaluate", None, 1), ("end", "evaluate", None, 1)]
    lines = [
        json.dumps({"event": event, "stage": stage, "depth": depth, "facts": {"step": step} if step else {}})
        for event, stage, step, depth in records
    ]
    (tmp_path / "memory.jsonl").write_text("\n".join([*lines, '{"event": "beg']))
    golden.text(memory("watch", tmp_path, "--once").stdout.partition(" | ")[2], "stage")
    with RingWriter(tmp_path / "memory.ring", facts | {"supervisor_started_at": 1}) as ring:
        ring.add(Sample(time.time(), unreclaimable_bytes=50 * MB, limit_bytes=100 * MB, processes=1))
    unknown = memory("watch", tmp_path).stdout
    golden.text(unknown, "all killed", numbers=False)
    status = {"state": "cancelled", "reason": "stopped by SIGTERM", "attempt": facts.get("attempt")}
    (tmp_path / "status.json").write_text(json.dumps(status))
    golden.text(memory("watch", tmp_path).stdout, "supervisor killed", numbers=False)
    (tmp_path / "status.json").write_text(json.dumps(status | {"attempt": 77}))
    assert memory("watch", tmp_path).stdout == unknown, "that is of another attempt"


def test_watch_a_process(tmp_path: Path, golden: Golden) -> None:
    process = subprocess.Popen(python("held = bytearray(b'x') * (50 << 20); import time; time.sleep(60)"))
    try:
        wait_for(lambda: json.loads(_watched(process.pid))["tree_anon_bytes"] > 50 * MB)
        watching = subprocess.Popen(
            [sys.executable, "-m", "memory", "watch", "--pid", str(process.pid), "--interval", "0.1"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert watching.stdout is not None
        assert "%)" in watching.stdout.readline()
    finally:
        process.kill()
        process.wait()
    golden.text(watching.stdout.read().splitlines()[-1], "ended", pids=[process.pid])
    assert watching.wait(timeout=240) == 0
    gone = memory("watch", "--pid", str(process.pid))
    assert gone.returncode == 2
    golden.text(gone.stderr, "gone", pids=[process.pid])


def _watched(pid: int) -> str:
    return memory("watch", "--pid", str(pid), "--once", "--json").stdout


def test_watch_in_a_terminal_moves_and_leaves_with_ctrl_c(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.pop("NO_COLOR", None)
        os.environ["TERM"] = "xterm-256color"
        parent = str(os.getppid())
        os.execv(
            sys.executable, [sys.executable, "-m", "memory", "watch", "--pid", parent, "--interval", "0.1"]
        )
    told = b""
    while told.count(b"%)") < 2:
        told += os.read(terminal, 10_000)
    os.write(terminal, b"\x03")
    status = None
    while status is None:
        try:
            told += os.read(terminal, 10_000)
        except OSError:
            _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert b"Traceback" not in told
    assert str(os.getpid()).encode() in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--interval", "0", "x"], "0.05"),
        (["no-such-run"], "no-such-run"),
        (["--job", "987654321"], "srun --overlap --jobid=987654321"),
    ],
)
def test_watch_refuses(words: list[str], told: str) -> None:
    done = memory("watch", *words)
    assert done.returncode == 2
    assert told in done.stderr


def test_the_processes_of_a_job(tmp_path: Path) -> None:
    def process(pid: int, parent: int, cgroup: str, environ: str = "") -> None:
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a b) S {parent} 1 1 0\n")
        (folder / "cgroup").write_text(f"5:memory:{cgroup}\n")
        (folder / "environ").write_text(environ)

    process(10, 1, "/slurm/uid_0/job_77/step_0/task_0")
    process(11, 10, "/slurm/uid_0/job_77/step_0/task_0")
    process(12, 1, "/slurm/uid_0/job_777/step_0")
    process(13, 1, "/user.slice", "A=1\0SLURM_JOB_ID=77\0")
    process(14, 1, "/slurm/uid_0/job_77")
    process(15, 1, "/user.slice", "SLURM_JOB_ID=9\0SLURM_ARRAY_JOB_ID=7\0SLURM_ARRAY_TASK_ID=3\0")
    process(16, 1, "/slurm/uid_0/job_9")
    (tmp_path / "meminfo").touch()
    assert job_processes("77", str(tmp_path)) == [10, 13, 14]
    assert job_processes("9", str(tmp_path)) == job_processes("7_3", str(tmp_path)) == [15, 16]
    assert job_processes("7_4", str(tmp_path)) == []


def test_the_slope_is_of_the_last_minute() -> None:
    samples = tuple(
        Sample(1000.0 + t, unreclaimable_bytes=(5 * t if t < 100 else 500 + 3 * (t - 100)) * MB)
        for t in range(200)
    )
    assert slope(samples).bytes_per_s == pytest.approx(3 * MB)
    assert slope(samples[:3]) is None
    assert slope(()) is None


def test_what_stands_still_is_not_on_its_way_to_the_limit() -> None:
    """It grew in its first second, in which it was looked at more often."""
    grown = [Sample(1000.0 + t / 10, unreclaimable_bytes=6 * t * MB) for t in range(11)]
    still = [Sample(1001.0 + t, unreclaimable_bytes=60 * MB) for t in range(1, 12)]
    assert slope(tuple(grown)).bytes_per_s == pytest.approx(60 * MB)
    assert slope((*grown, *still)).bytes_per_s == 0
    again = slope((*still, *(Sample(1012.0 + t, unreclaimable_bytes=(60 + 2 * t) * MB) for t in range(12))))
    assert again.bytes_per_s > 0


def test_of_a_run_that_has_ended_nothing_grows_any_more(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(t, 10 + 10 * t) for t in range(12)])
    assert of_run(tmp_path)().slope is None, "of another host, and silent for long"
    write_outcome(tmp_path, 12.0)
    view = of_run(tmp_path)()
    assert view.ended is not None
    assert "SIGKILL" in view.ended
    assert view.slope is None


def test_where_slurm_polls_rss_it_is_watched_against_what_was_asked_for(
    tmp_path: Path, golden: Golden
) -> None:
    """No cgroup limits it: U is all of the machine's, and its limit what the machine has."""
    write_ring(tmp_path, [sample_of(t, 10 + 10 * t, limit=None) for t in range(12)], attempt=2)
    newest = of_run(tmp_path)().sample
    for attempt, is_polled in ((1, False), (2, True)):
        told = {"state": "running", "attempt": attempt, "polled_limit_bytes": 1000 * MB}
        (tmp_path / "status.json").write_text(json.dumps(told))
        view = of_run(tmp_path)()
        assert view.is_polled == is_polled
    assert view.sample.unreclaimable_bytes == newest.tree_rss_bytes
    told = line(view)
    assert f" {format_bytes(newest.tree_rss_bytes)} " in told
    assert f"({newest.tree_rss_bytes / (10 * MB):.0f}%)" in told
    golden.text(told, numbers=False)


def test_a_sample_of_many_processes_is_drawn(golden: Golden) -> None:
    from rich.console import Console

    from memory.show.watch_lines import drawing
    from memory.show.watch_view import Slope, View

    tree = tuple(ProcessSample(pid, "py[red]thon", 5 * MB, None, 0, 9 * MB) for pid in range(1, 17))
    sample = Sample(
        1.0, unreclaimable_bytes=95 * MB, limit_bytes=100 * MB, processes=40, tree=tree, oom_kills=2
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(drawing(View("runs/[a]", sample, stage="train", slope=Slope(MB, 30))))
    text = console.export_text()
    golden.text(text.partition("runs/")[2], numbers=False)


def test_memory_is_full_where_the_machine_has_no_more_to_give(golden: Golden) -> None:
    from memory.show.watch_lines import growth
    from memory.show.watch_view import Slope, View

    sample = Sample(1.0, unreclaimable_bytes=MB, limit_bytes=64_000 * MB, host_available_bytes=30 * MB)
    slopes = [Slope(MB, 60), Slope(MB // 50, 60), Slope(MB // 10, 10)]  # no 25 minutes of one, no 5 of 10 s
    golden.text("\n".join(growth(View("run", sample, slope=one)) for one in slopes))
