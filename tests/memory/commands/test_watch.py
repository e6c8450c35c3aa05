"""`python -m memory watch`: a run to its end, a process, a Slurm job, as lines and in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from made_runs import sample_of, write_outcome, write_ring
from supervised import python, start_supervised, wait_for

from memory.explain.evidence.run_facts import RunFacts
from memory.measure.process import started_at
from memory.record.evidence import Evidence
from memory.record.ring import read_ring
from memory.record.samples import ProcessSample, Sample
from memory.show.screen import draw
from memory.show.watch_lines import growth, watch_screen
from memory.show.watch_view import Slope, View, job_processes, slope_of, watch_run
from tests.golden_text import Golden

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

ROOT = Path(__file__).parents[3]
MB = 1 << 20


def watch(*arguments: object, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memory", "watch", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=240, env=environment, check=False
    )


def start_watching(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "memory", "watch", *map(str, arguments), "--interval", "0.1"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def sampled_pid(folder: Path) -> int:
    ring = wait_for(lambda: (ring := read_ring(folder / "memory.ring")) and ring.taken > 2 and ring)
    return int(ring.facts["pid"])


def test_a_run_to_its_end(tmp_path: Path, golden: Golden) -> None:
    process = start_supervised(tmp_path, python("import time; time.sleep(120)"))
    os.kill(sampled_pid(tmp_path), 0)
    once = json.loads(watch(tmp_path, "--once", "--json").stdout)
    assert once["ended"] is None
    assert once["tree"][0]["name"].startswith("python")
    watching = start_watching(tmp_path)
    assert watching.stdout is not None
    assert "%)" in watching.stdout.readline()
    process.terminate()
    process.communicate(timeout=240)
    output = watching.communicate(timeout=240)[0]
    golden.text("\n".join(output.splitlines()[-2:]))
    assert "\x1b" not in output


def test_a_run_whose_supervisor_was_killed(tmp_path: Path, golden: Golden) -> None:
    process = start_supervised(tmp_path, python("import time; time.sleep(60)"))
    pid = sampled_pid(tmp_path)
    began = started_at(pid)
    try:
        process.kill()
        process.wait()  # the command holds the pipe that communicate() would read
        look = json.loads(watch(tmp_path, "--once", "--json").stdout)
        assert (look["ended"], look["processes"]) == (None, 1)
        assert RunFacts(Evidence(tmp_path), now_s=time.time() + 3000).is_running
        watching = start_watching(tmp_path)
        assert watching.stdout is not None
        assert look["note"] in watching.stdout.readline()
    finally:
        if started_at(pid) == began:
            os.kill(pid, signal.SIGKILL)
    lines = watching.communicate(timeout=240)[0].splitlines()
    golden.text(f"{look['note']}\n{lines[-2]}", pids=[pid])
    facts = RunFacts(Evidence(tmp_path))
    assert facts.vanished
    assert not facts.is_running


def test_the_stage_of_a_run_and_its_end_without_a_supervisor(tmp_path: Path, golden: Golden) -> None:
    me = os.getpid()
    facts = {"pid": 2**22 + 1, "host": os.uname().nodename, "supervisor_pid": me, "attempt": 1}
    sample = Sample(time.time(), unreclaimable_bytes=50 * MB, limit_bytes=100 * MB, processes=1)
    write_ring(tmp_path, [sample], **facts, supervisor_started_at=started_at(me))
    records = [("begin", "train", 7, 0), ("begin", "evaluate", None, 1), ("end", "evaluate", None, 1)]
    lines = [
        json.dumps({"event": event, "stage": stage, "depth": depth, "facts": {"step": step} if step else {}})
        for event, stage, step, depth in records
    ]
    (tmp_path / "memory.jsonl").write_text("\n".join([*lines, '{"event": "beg']))
    view = watch_run(tmp_path)()
    assert view.ended is None
    assert str(view.stage).split() == ["train", "step", "7"]
    write_ring(tmp_path, [sample], **facts, supervisor_started_at=1)
    unknown = watch_run(tmp_path)().ended
    status = {"state": "cancelled", "reason": "stopped by SIGTERM", "attempt": 1}
    (tmp_path / "status.json").write_text(json.dumps(status))
    golden.text(f"{unknown}\n{watch_run(tmp_path)().ended}")
    (tmp_path / "status.json").write_text(json.dumps(status | {"attempt": 77}))
    assert watch_run(tmp_path)().ended == unknown, "of another attempt"


def test_a_process_to_its_end(golden: Golden) -> None:
    process = subprocess.Popen(python("held = bytearray(b'x') * (50 << 20); import time; time.sleep(60)"))
    try:
        look = json.loads(watch("--pid", process.pid, "--once", "--json").stdout)
        assert look["processes"] == 1
        assert "beside_anon_bytes" in look, "keys are never renamed"
        watching = start_watching("--pid", process.pid)
        assert watching.stdout is not None
        assert "%)" in watching.stdout.readline()
    finally:
        process.kill()
        process.wait()
    golden.text(watching.stdout.read().splitlines()[-1], "ended", pids=[process.pid])
    assert watching.wait(timeout=240) == 0
    again = watch("--pid", process.pid)
    assert again.returncode == 2
    golden.text(again.stderr, "not here", pids=[process.pid])


@pytest.mark.parametrize("arguments", [("watch", "--interval", "0.1"), ("watch", "--once"), ()])
def test_the_screen_of_a_terminal_fits_80_columns_and_24_lines(arguments: tuple[str, ...]) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.pop("NO_COLOR", None)
        os.environ["TERM"] = "xterm-256color"
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        watched = ["--pid", str(os.getppid())]
        os.execv(sys.executable, [sys.executable, "-m", "memory", *arguments, *watched])
    output, status, is_stopped, is_live = b"", None, False, "--interval" in arguments
    while status is None:
        try:
            output += os.read(terminal, 10_000)
        except OSError:
            _, status = os.waitpid(pid, 0)
        if is_live and not is_stopped and output.count(b"Ctrl-C") >= 2:
            is_stopped = True
            os.write(terminal, b"\x03")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == (130 if is_live else 0)
    assert b"Traceback" not in output
    assert "--once" in arguments or str(os.getpid()).encode() in output
    assert (b"\x1b[" in output) == is_live
    first = output.decode().partition("Ctrl-C")[0].splitlines()
    assert len(first) <= 24
    assert is_live or max(map(len, first)) <= 80


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--interval", "0", "x"], "0.05"),
        (["no-such-run"], "no-such-run"),
        (["--job", "987654321"], "srun --overlap --jobid=987654321"),
    ],
)
def test_refusals(words: list[str], part: str) -> None:
    done = watch(*words)
    assert done.returncode == 2
    assert part in done.stderr


def test_without_arguments_the_run_that_runs_or_this_job(tmp_path: Path, golden: Golden) -> None:
    environment = {**os.environ, "HIGHWATER_RUNS_DIR": str(tmp_path)}
    environment.pop("SLURM_JOB_ID", None)
    nothing = watch("--once", environment=environment)
    assert nothing.returncode == 2
    golden.text(nothing.stderr, "nothing runs")
    job = watch("--once", environment=environment | {"SLURM_JOB_ID": "987654321"})
    golden.text(job.stderr.splitlines()[0], "job")
    folder = tmp_path / "study" / "run-12345678"
    folder.mkdir(parents=True)
    (folder / "config.yaml").touch()
    process = start_supervised(folder, python("import time; time.sleep(60)"))
    try:
        sampled_pid(folder)
        look = watch("--once", environment=environment)
    finally:
        process.terminate()
        process.communicate()
    golden.text(look.stderr, "run")
    assert "%)" in look.stdout
    assert watch("--once", environment=environment).returncode == 2


@pytest.mark.parametrize(
    ("job_id", "pids"), [("77", [10, 13, 14]), ("9", [15, 16]), ("7_3", [15, 16]), ("7_4", [])]
)
def test_processes_of_a_slurm_job(tmp_path: Path, job_id: str, pids: list[int]) -> None:
    array = "SLURM_JOB_ID=9\0SLURM_ARRAY_JOB_ID=7\0SLURM_ARRAY_TASK_ID=3\0"
    for pid, parent, cgroup, environ in (
        (10, 1, "/slurm/uid_0/job_77/step_0/task_0", ""),
        (11, 10, "/slurm/uid_0/job_77/step_0/task_0", ""),
        (12, 1, "/slurm/uid_0/job_777/step_0", ""),
        (13, 1, "/user.slice", "A=1\0SLURM_JOB_ID=77\0"),
        (14, 1, "/slurm/uid_0/job_77", ""),
        (15, 1, "/user.slice", array),
        (16, 1, "/slurm/uid_0/job_9", ""),
    ):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (a b) S {parent} 1 1 0\n")
        (folder / "cgroup").write_text(f"5:memory:{cgroup}\n")
        (folder / "environ").write_text(environ)
    (tmp_path / "meminfo").touch()
    assert job_processes(job_id, str(tmp_path)) == pids


def sample(time_s: float, used_mb: float) -> Sample:
    return Sample(time_s, unreclaimable_bytes=int(used_mb * MB))


@pytest.mark.parametrize("content", [b"", bytes(range(1, 256)) * 9])
def test_damaged_ring_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memory.ring").write_bytes(content)
    assert "memory.ring" in (ended := str(watch_run(tmp_path)().ended))
    assert "damaged" in ended


def test_damaged_outcome_is_named(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(1, 90)], supervisor_pid=2**30, host=os.uname().nodename)
    (tmp_path / "outcome.json").write_text('{"exit_co')
    assert "outcome.json" in (ended := str(watch_run(tmp_path)().ended))
    assert "damaged" in ended


def test_slope_of_the_last_minute() -> None:
    samples = tuple(sample(1000.0 + t, 5 * t if t < 100 else 500 + 3 * (t - 100)) for t in range(200))
    found = slope_of(samples)
    assert found is not None
    assert found.bytes_per_s == pytest.approx(3 * MB)
    assert slope_of(samples[:3]) is slope_of(()) is None


def test_memory_that_has_stopped_growing_has_no_slope() -> None:
    """It grew in its first second, in which it was sampled more often."""
    grown = [sample(1000.0 + t / 10, 6 * t) for t in range(11)]
    still = [sample(1001.0 + t, 60) for t in range(1, 12)]
    again = [sample(1012.0 + t, 60 + 2 * t) for t in range(12)]
    slopes = [slope_of(tuple(one)) for one in (grown, [*grown, *still], [*still, *again])]
    found = [None if one is None else one.bytes_per_s for one in slopes]
    assert found[:2] == [pytest.approx(60 * MB), 0]
    assert found[2] is not None
    assert found[2] > 0


def test_a_run_that_has_ended_has_no_slope(tmp_path: Path) -> None:
    write_ring(tmp_path, [sample_of(t, 10 + 10 * t) for t in range(12)])
    assert watch_run(tmp_path)().slope is None, "of another host, and silent for long"
    write_outcome(tmp_path, 12.0)
    view = watch_run(tmp_path)()
    assert "SIGKILL" in str(view.ended)
    assert view.slope is None


def test_growth_until_the_machine_has_no_more_to_give(golden: Golden) -> None:
    near = Sample(1.0, unreclaimable_bytes=MB, limit_bytes=64_000 * MB, host_available_bytes=30 * MB)
    slopes = [Slope(MB, 60), Slope(MB // 50, 60), Slope(MB // 10, 10)]  # 25 minutes and 5 are too far ahead
    golden.text("\n".join(str(growth(View("run", near, slope=one))) for one in slopes))


def test_the_screen_of_many_processes(golden: Golden) -> None:
    tree = tuple(ProcessSample(pid, "py[red]thon", 5 * MB, None, 0, 9 * MB) for pid in range(1, 17))
    near = Sample(
        1.0, 95 * MB, 100 * MB, 99 * MB, 4 * MB, 95 * MB, processes=16, tree=tree, oom_kills=2
    )  # fmt: skip
    view = View("runs/[a]", near, "/job_7", Slope(MB, 30), "train step 7")
    lines = [f"{style:6} {text}" for text, style in draw(watch_screen(view), columns=80, height=24)]
    assert len(lines) == 24
    golden.text("\n".join(lines), numbers=False)
