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
from memory.ring import RingWriter, read_ring
from memory.samples import ProcessSample, Sample
from memory.supervision.census import started_at
from memory.watch_lines import line
from memory.watching import job_processes, of_run, slope

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[2]
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
    done = memory(
        "run", "--output", tmp_path / "new" / "mem", "--", "sh", "-c", f"cat; exit {code}", input="in"
    )
    assert (done.returncode, done.stdout) == (code, "in")
    assert outcome_in(tmp_path / "new" / "mem")["command"] == ["sh", "-c", f"cat; exit {code}"]
    if code == 0:
        assert done.stderr == ""
    else:
        assert done.stderr.startswith(f"[mem] exit code {code} after ")
        assert done.stderr.endswith(f"next: python -m memory explain {tmp_path}/new/mem\n")


def test_run_tells_more_when_asked(tmp_path: Path) -> None:
    done = memory(
        "run", "--output", tmp_path, "--verbose", "--log", "--", "sh", "-c", "echo out; echo err >&2"
    )
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert done.stderr.splitlines()[0] == "err"
    assert " of the host's " in done.stderr or " unreclaimable" in done.stderr
    assert "out" in (tmp_path / "log.txt").read_text()


def test_run_dies_as_the_command_does(tmp_path: Path) -> None:
    done = memory("run", "--output", tmp_path, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -signal.SIGTERM
    assert "[mem] killed by SIGTERM after " in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (
            ["--output", "mem", "--", "no-such-command"],
            127,
            "error: no-such-command: no such command in PATH",
        ),
        (["--output", "mem", "--", "./text"], 126, "chmod"),
        (["--output", "mem", "--", "text"], 127, "the file of this folder is ./text"),
        (["--output", "mem", "--", "./"], 126, "it is a folder"),
        (["--output", "mem", "--"], 2, "memory run --output DIR -- COMMAND"),
        (["--output", "text/mem", "--", "true"], 2, "--output text/mem: cannot be made"),
        (["--output", "text", "--", "true"], 2, "--output text: cannot be made"),
        (["--", "true"], 2, "--output"),
    ],
)
def test_run_refuses(tmp_path: Path, words: list[str], code: int, told: str) -> None:
    (tmp_path / "text").write_text("no program")
    done = subprocess.run(
        [sys.executable, "-m", "memory", "run", *words],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mem").exists()


@pytest.mark.parametrize("command", ["run", "stacks", "watch"])
def test_help_has_examples(command: str) -> None:
    done = memory(command, "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout


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
    assert all("in train_for_ever" in one["stacks"] for one in mains.values())
    (own[0] / "go").touch()
    running[0].wait(60)  # it has ended, and the other hangs
    plain = memory("stacks", tmp_path)
    assert plain.returncode == 0, plain.stderr
    assert f"rank 1, process {pids[1]} " in plain.stdout
    assert f"process {pids[0]} " not in plain.stdout
    (own[1] / "go").touch()
    running[1].wait(60)
    over = memory("stacks", tmp_path)
    assert over.returncode == 2
    assert "does not run" in over.stderr


@pytest.mark.slow
def test_stacks_of_all_processes(tmp_path: Path) -> None:
    process = start_supervised(tmp_path, [sys.executable, "-c", ANSWERS, str(tmp_path)])
    main = pid_in(tmp_path / "up")
    wait_for(lambda: read_ring(tmp_path / "memory.ring"))
    for _ in range(2):  # asking changes nothing
        done = memory("stacks", tmp_path, "--json")
        assert done.returncode == 0, done.stderr
        first, *others = json.loads(done.stdout)["processes"]
        assert first["pid"] == main
        own, *threads = first["stacks"].split("\n\n")
        assert "in train_for_ever" in own, "the main thread is first"
        assert ["in wait_in_a_thread" in one for one in threads] == [True, True]
        by_name = {one["name"]: one for one in others}
        assert "in wait_in_a_worker" in by_name[first["name"]]["stacks"]
        asleep = by_name["sleep"]
        assert (asleep["stacks"], asleep["command"]) == (None, "sleep 60")
        assert "memory.black_box.install" in asleep["why"]
        assert asleep["kernel"]["state"] == "S (sleeping)"
    assert not list(tmp_path.glob("memory.blackbox*"))
    plain = memory("stacks", tmp_path)
    assert "in wait_in_a_worker" in plain.stdout
    assert "no Python stacks: its program does not answer" in plain.stdout
    os.kill(main, signal.SIGSTOP)
    try:
        stopped = json.loads(memory("stacks", tmp_path, "--json").stdout)["processes"][0]
    finally:
        os.kill(main, signal.SIGCONT)
    assert stopped["why"] == "no answer in 2 s"
    assert stopped["kernel"]["state"].startswith("T (stopped")
    (tmp_path / "go").touch()
    assert process.wait(timeout=240) == 0
    gone = memory("stacks", tmp_path)
    assert gone.returncode == 2
    assert f"does not run: process {main} " in gone.stderr
    assert f"python -m memory explain {tmp_path}" in gone.stderr


def test_stacks_of_a_run_that_nobody_knows(tmp_path: Path) -> None:
    assert "it has not begun" in memory("stacks", tmp_path).stderr
    facts = {"pid": os.getpid(), "host": "elsewhere", "attempt": 1, "started_at": started_at(os.getpid())}
    RingWriter(tmp_path / "memory.ring", facts).close()
    assert "runs on elsewhere" in memory("stacks", tmp_path).stderr
    assert memory("stacks", "no-such-run").returncode == 2


@pytest.mark.slow
def test_watch_a_run_to_its_end(tmp_path: Path) -> None:
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
    assert " unreclaimable (" in lines[0]
    assert ended == "ended with exit code 0"
    assert after.endswith(f"python -m memory explain {tmp_path}")
    assert "\x1b" not in told


def test_watch_tells_the_stage_and_that_everything_was_killed(tmp_path: Path) -> None:
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
    assert memory("watch", tmp_path, "--once").stdout.endswith(
        " | 50 MB of 100 MB unreclaimable (50%) | 1 process | train step 7\n"
    )
    with RingWriter(tmp_path / "memory.ring", facts | {"supervisor_started_at": 1}) as ring:
        ring.add(Sample(time.time(), unreclaimable_bytes=50 * MB, limit_bytes=100 * MB, processes=1))
    assert "nobody knows how" in memory("watch", tmp_path).stdout
    status = {"state": "cancelled", "reason": "stopped by SIGTERM", "attempt": facts.get("attempt")}
    (tmp_path / "status.json").write_text(json.dumps(status))
    told = "it has ended: cancelled, stopped by SIGTERM; its supervisor had been killed before"
    assert told in memory("watch", tmp_path).stdout
    (tmp_path / "status.json").write_text(json.dumps(status | {"attempt": 77}))
    assert "nobody knows how" in memory("watch", tmp_path).stdout, "that is of another attempt"


def test_watch_a_process(tmp_path: Path) -> None:
    process = subprocess.Popen(python("held = bytearray(b'x') * (50 << 20); import time; time.sleep(60)"))
    try:
        wait_for(lambda: json.loads(_watched(process.pid))["tree_anon_bytes"] > 50 * MB)
        watching = subprocess.Popen(
            [sys.executable, "-m", "memory", "watch", "--pid", str(process.pid), "--interval", "0.1"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert watching.stdout is not None
        assert "unreclaimable" in watching.stdout.readline()
    finally:
        process.kill()
        process.wait()
    assert watching.stdout.read().splitlines()[-1] == f"process {process.pid} has ended"
    assert watching.wait(timeout=240) == 0
    gone = memory("watch", "--pid", str(process.pid))
    assert gone.returncode == 2
    assert "is not on this host" in gone.stderr


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
    while told.count(b"unreclaimable") < 2:
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
    assert f"process {os.getpid()}".encode() in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--interval", "0", "x"], "expected 0.05 to 3600 seconds"),
        (["no-such-run"], "no such run"),
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
    assert (view.ended, view.slope) == ("killed by SIGKILL", None)


def test_where_slurm_polls_rss_it_is_watched_against_what_was_asked_for(tmp_path: Path) -> None:
    """No cgroup limits it: U is all of the machine's, and its limit what the machine has."""
    write_ring(tmp_path, [sample_of(t, 10 + 10 * t, limit=None) for t in range(12)], attempt=2)
    newest = of_run(tmp_path)().sample
    for attempt, is_polled in ((1, False), (2, True)):
        told = {"state": "running", "attempt": attempt, "polled_limit_bytes": 1000 * MB}
        (tmp_path / "status.json").write_text(json.dumps(told))
        view = of_run(tmp_path)()
        assert view.is_polled == is_polled
    assert view.sample.unreclaimable_bytes == newest.tree_rss_bytes
    used, share = format_bytes(newest.tree_rss_bytes), newest.tree_rss_bytes / (10 * MB)
    assert f"| {used} rss of --mem 1.0 GB, polled by Slurm ({share:.0f}%) | anon 120 MB | 1 process" in line(
        view
    )


def test_a_sample_of_many_processes_is_drawn() -> None:
    from rich.console import Console

    from memory.watch_lines import drawing
    from memory.watching import Slope, View

    tree = tuple(ProcessSample(pid, "py[red]thon", 5 * MB, None, 0, 9 * MB) for pid in range(1, 17))
    sample = Sample(
        1.0, unreclaimable_bytes=95 * MB, limit_bytes=100 * MB, processes=40, tree=tree, oom_kills=2
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(drawing(View("runs/[a]", sample, stage="train", slope=Slope(MB, 30))))
    text = console.export_text()
    for words in (
        "runs/[a]",
        "95 MB of 100 MB unreclaimable (95%)",
        "py[red]thon",
        "32 more",
        "2 killed by the kernel",
        "full in 5 s",
    ):
        assert words in text


def test_memory_is_full_where_the_machine_has_no_more_to_give() -> None:
    from memory.watch_lines import growth
    from memory.watching import Slope, View

    sample = Sample(1.0, unreclaimable_bytes=MB, limit_bytes=64_000 * MB, host_available_bytes=30 * MB)
    assert growth(View("run", sample, slope=Slope(MB, 60))) == "+1.0 MB/s: full in 30 s"
    assert growth(View("run", sample, slope=Slope(MB // 50, 60))) == "+20 KB/s", "no 25 minutes of one"
    assert growth(View("run", sample, slope=Slope(MB // 10, 10))) == "+102 KB/s", "no 5 minutes of 10 seconds"
