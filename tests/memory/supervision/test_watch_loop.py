"""Observation of one attempt: nothing in it breaks a run, and outcome.json says how it ended."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervised import outcome_in, pid_in, python, start_supervised, supervise, wait_for

import memory.supervision.watch_loop as watch_module
from memory.measure.cgroup import NO_CGROUP
from memory.record.ring import RingWriter, read_ring
from memory.record.samples import Sample
from memory.supervision.options import Options
from memory.supervision.outcome import ending, summary
from memory.supervision.watch_loop import Watch
from tests.golden_text import Golden

MB = 1 << 20
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")


@pytest.mark.parametrize("broken", ["look", "RingWriter", "started_at", "Reserved", "KernelLog"])
def test_failures_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    def fails(*arguments: object, **options: object) -> None:
        raise MemoryError(f"{broken} is broken")

    if broken == "KernelLog":
        monkeypatch.setattr(watch_module.KernelLog, "read", fails)
    else:
        monkeypatch.setattr(watch_module, broken, fails)
    watch = Watch(Options(("true",), str(tmp_path)))
    watch.started(os.getpid())
    for _ in range(3):
        watch.tick()
        watch.wait_s()
    watch.gone(os.getpid())
    watch.ended(0, None)
    assert watch.facts["exit_code"] == 0
    if broken not in ("Reserved", "KernelLog"):
        assert any(broken in note for note in outcome_in(tmp_path)["notes"])


def test_process_that_has_just_ended_gives_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(Options(("true",), str(tmp_path)))
    watch.started(os.getpid())
    watch.tick()
    before = watch.last
    assert before is not None
    for gone in (
        dataclasses.replace(before, main_lives=False),
        dataclasses.replace(before, job=dataclasses.replace(NO_CGROUP, path="/")),
    ):
        monkeypatch.setattr(watch_module, "look", lambda *a, gone=gone, **k: gone)
        monkeypatch.setattr(watch_module, "read_process", lambda pid: None)
        watch._sample()
        assert (watch.last, watch.taken) == (before, 1)


def test_folder_is_deleted_while_it_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    away = f"while [ -e {folder} ]; do rm -rf {folder} 2>&-; done"  # the ring may come into it meanwhile
    done = supervise(folder, ["sh", "-c", f"{away}; sleep 0.3; echo ran; exit 4"])
    assert (done.returncode, done.stdout, done.stderr) == (4, "ran\n", "")
    assert not folder.exists()


def test_folder_at_the_path_of_the_ring(tmp_path: Path) -> None:
    (tmp_path / "memory.ring" / "x").mkdir(parents=True)
    done = supervise(tmp_path, ["sh", "-c", "exit 4"])
    assert (done.returncode, done.stderr) == (4, "")
    assert any("memory.ring" in note for note in outcome_in(tmp_path)["notes"])


def test_broken_installation(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    for room in ("memory", "experiment_utils"):
        shutil.copytree(root / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    line = [sys.executable, "-I", "-S", str(tmp_path / "memory" / "supervisor.py"), "--output", str(tmp_path)]

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run([*line, "--", "sh", "-c", "echo ran; exit 4"], capture_output=True, text=True)

    done = run()
    assert (done.returncode, done.stdout, done.stderr) == (4, "ran\n", "")
    (tmp_path / "memory" / "supervision" / "watch_loop.py").write_text("import no_such_module\n")
    done = run()
    assert (done.returncode, done.stdout) == (4, "ran\n")
    assert "[mem] " in done.stderr
    assert "ModuleNotFoundError" in done.stderr


def test_limits_that_a_process_set_itself(tmp_path: Path) -> None:
    code = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (300 << 20, -1)); bytearray(400 << 20)"
    done = supervise(tmp_path, python(code))
    assert "MemoryError" in done.stderr
    assert outcome_in(tmp_path)["rlimits"] == {"as_bytes": None, "data_bytes": 300 * MB, "cpu_hard_s": None}


def test_wait_status() -> None:
    assert ending(3 << 8) == {"exit_code": 3, "signal": None, "by": "exit"}
    assert ending(9) == ending(9 | 0x80) == {"exit_code": None, "signal": "SIGKILL", "by": "signal"}
    assert ending(45)["signal"] == "signal 45"
    assert ending(None) == {"exit_code": None, "signal": None, "by": "lost"}


@pytest.mark.slow
def test_worker_that_dies_is_lost(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\npid = os.fork()\n"
        "if pid == 0:\n    held = bytearray(b'x') * (30 << 20)\n"
        "    open(sys.argv[1] + '/up', 'w').write(str(os.getpid()))\n    time.sleep(60)\n"
        "os.waitpid(pid, 0)\n"
        "until = time.monotonic() + 60\n"
        "while not os.path.exists(sys.argv[1] + '/end') and time.monotonic() < until: time.sleep(0.02)\n"
    )
    process = start_supervised(tmp_path, [*python(code), str(tmp_path)])
    worker = pid_in(tmp_path / "up")
    wait_for(lambda: _anon(tmp_path, worker) > 30 * MB)
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: _anon(tmp_path, worker) == 0)
    (tmp_path / "end").touch()
    process.communicate()
    outcome = outcome_in(tmp_path)
    (lost,) = outcome["children_lost"]
    assert (lost["pid"], lost["parent_pid"]) == (worker, outcome["pid"])
    assert lost["last_anon_bytes"] > 30 * MB
    assert (outcome["victim"], outcome["exit_code"]) == (None, 0)


def _anon(folder: Path, pid: int) -> int:
    ring = read_ring(folder / "memory.ring")
    tree = ring.samples[-1].tree if ring and ring.samples else ()
    return next((one.anon_bytes or 0 for one in tree if one.pid == pid), 0)


def test_summary_line(golden: Golden) -> None:
    outcome = {
        "exit_code": 0, "signal": None, "started_s": 10.0, "ended_s": 12.5, "limit_bytes": 80 * MB,
        "limit_at": "/job", "peak_unreclaimable_bytes": 50 * MB, "peak_limit_bytes": 100 * MB,
        "peak_nearness": 0.5,
    }  # fmt: skip
    quiet, always = (Options(("true",), "a b", tell=tell) for tell in ("failed", "always"))
    assert summary(outcome, quiet) is None
    changes = [
        {"peak_nearness": 0.95},
        {"exit_code": None, "signal": "SIGKILL"},
        {"counters_before": {"oom_kill": 2}, "counters_after": {"oom_kill": 3}},
        {"peak_unreclaimable_bytes": None, "exit_code": 1},
    ]
    lines = [summary(outcome, always), *(summary(outcome | change, quiet) for change in changes)]
    golden.text("\n".join(map(str, lines)))


@pytest.mark.parametrize(("age_s", "is_ours"), [(1, False), (60, True)])
def test_folder_that_another_host_writes_to(tmp_path: Path, age_s: int, is_ours: bool) -> None:
    facts = {"host": "elsewhere", "supervisor_pid": 5, "supervisor_started_at": 6}
    with RingWriter(tmp_path / "memory.ring", facts) as ring:
        ring.add(Sample(time.time() - age_s))
    assert Watch(Options(("true",), str(tmp_path))).is_ours is is_ours
